# SPDX-License-Identifier: Apache-2.0
"""A tiny Qwen2 that has learnt to talk about small numbers, its tokenizer and its prompts; made here, without network.

The model is trained on questions and answers from templates before any reinforcement learning, so that
rollouts are language, probabilities are peaked as in a real model, and the reward says something.
The same seed gives the same files on the same machine and torch build.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
END, START, PAD = "<|im_end|>", "<|im_start|>", "<|endoftext|>"
NAMES = ("Anna", "Ben", "Chen", "Dora", "Emil", "Fang")
THINGS = ("apples", "books", "coins", "pears")
STAMP = "assets.json"
LAYOUT = 1
"""Raised whenever the files change for the same settings, so that old caches are made anew."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AssetSettings:
    """What is made. Two equal settings give the same model on one machine."""

    seed: int = 0
    hidden_size: int = 64
    layers: int = 3
    vocabulary: int = 384
    train_steps: int = 400
    batch: int = 48
    learning_rate: float = 3e-3
    train_prompts: int = 96


@dataclass(frozen=True, kw_only=True, slots=True)
class Assets:
    """Where the files lie."""

    folder: Path
    model: Path
    train: Path
    validation: Path
    loss: float
    """Cross-entropy of an answer's token at the end of the training, in nats."""


Progress = Callable[[int, int, float], None]
"""Called with steps done, steps in all, and the loss in nats."""


def prepare(
    folder: Path, settings: AssetSettings | None = None, progress: Progress | None = None, device: str = "cpu"
) -> Assets:
    """Make the assets in `folder`, on `device`, or find them there from an earlier call with the same settings."""
    settings = settings or AssetSettings()
    found = load(folder, settings)
    if found is not None:
        return found
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stamp = {"settings": _wanted(settings), "loss": _make(folder, settings, progress, device)}
    (folder / STAMP).write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    return _assets(folder, stamp)


def load(folder: Path, settings: AssetSettings | None = None) -> Assets | None:
    """The assets that lie in `folder`; None where there are none of these settings."""
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if stamp.get("settings") != _wanted(settings or AssetSettings()):
        return None
    return _assets(folder, stamp)


def _wanted(settings: AssetSettings) -> dict[str, Any]:
    return {"layout": LAYOUT, **asdict(settings)}


def _assets(folder: Path, stamp: dict[str, Any]) -> Assets:
    return Assets(
        folder=folder,
        model=folder / "model",
        train=folder / "train.parquet",
        validation=folder / "validation.parquet",
        loss=float(stamp["loss"]),
    )


def module_paths(settings: AssetSettings | None = None) -> tuple[str, ...]:
    """Paths of `named_modules()` that compute something, in the model's order; known before there is a model."""
    projections = ("q_proj", "k_proj", "v_proj", "o_proj")
    inside = (
        "self_attn", *(f"self_attn.{name}" for name in projections),
        "mlp", *(f"mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj", "act_fn")),
        "input_layernorm", "post_attention_layernorm",
    )  # fmt: skip
    layers = [f"model.layers.{number}" for number in range((settings or AssetSettings()).layers)]
    within = [path for layer in layers for path in (layer, *(f"{layer}.{name}" for name in inside))]
    return ("model", "model.embed_tokens", *within, "model.norm", "model.rotary_emb", "lm_head")


def dialogues(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Questions and their right answers, for ever."""
    while True:
        a, b = rng.randint(1, 19), rng.randint(1, 19)
        kind = rng.randrange(4)
        if kind == 0:
            yield f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}."
        elif kind == 1:
            low, high = sorted((a, b + 20))
            yield f"What is {high} minus {low}?", f"{high} minus {low} is {high - low}."
        elif kind == 2:
            who, what = rng.choice(NAMES), rng.choice(THINGS)
            yield f"{who} has {a} {what} and gets {b} more. How many?", f"{who} has {a + b} {what} now."
        else:
            low, high = sorted((a, b + 20))
            pair = [low, high]
            rng.shuffle(pair)
            yield f"Which is larger, {pair[0]} or {pair[1]}?", f"{high} is larger than {low}."


def _make(folder: Path, settings: AssetSettings, progress: Progress | None, device: str) -> float:
    """Write every file; the last loss."""
    rng = random.Random(settings.seed)
    source = dialogues(rng)
    corpus = [next(source) for _ in range(1000)]
    tokenizer = _tokenizer(corpus, settings)
    tokenizer.save_pretrained(folder / "model")
    model, loss = _trained_model(tokenizer, source, settings, progress, device)
    model.save_pretrained(folder / "model")
    prompts = [next(source) for _ in range(settings.train_prompts + 8)]
    _write_prompts(folder / "train.parquet", prompts[: settings.train_prompts])
    _write_prompts(folder / "validation.parquet", prompts[settings.train_prompts :])
    return loss


def _tokenizer(corpus: Sequence[tuple[str, str]], settings: AssetSettings) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    # Single digits, as in the tokenizers of the Qwen family: numbers can be computed rather than memorised.
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator([f"user\nassistant\n{q} {a}" for q, a in corpus], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token=PAD, bos_token=None)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _trained_model(
    tokenizer: Any, source: Iterator[tuple[str, str]], settings: AssetSettings, progress: Progress | None, device: str
) -> tuple[Any, float]:
    """The model after its lessons, and the mean loss of the last fifty steps."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    # One thread: the same sums on every machine, and no spinning where cores are shared.
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        intermediate_size=2 * settings.hidden_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    # Made on the CPU, so that the start is the same on every device.
    model = Qwen2ForCausalLM(config).train().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=settings.learning_rate, total_steps=settings.train_steps, pct_start=0.1
    )
    recent: list[float] = []
    for step in range(settings.train_steps):
        lesson = _lesson(tokenizer, [next(source) for _ in range(settings.batch)])
        ids, labels = (part.to(device) for part in lesson)
        loss = model(input_ids=ids, attention_mask=ids != tokenizer.pad_token_id, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        recent = [*recent[-49:], loss.item()]
        if progress is not None and (step + 1) % 20 == 0:
            progress(step + 1, settings.train_steps, sum(recent) / len(recent))
    return model.eval(), sum(recent) / len(recent)


def _lesson(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> tuple[Any, Any]:
    """Token ids and labels of a batch, padded on the right; only the answers count."""
    import torch

    rows, marks = [], []
    for question, answer in pairs:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
        )
        head = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        tail = tokenizer(answer + END, add_special_tokens=False)["input_ids"]
        rows.append(head + tail)
        marks.append([-100] * len(head) + tail)
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels = torch.full((len(rows), width), -100)
    for i, (row, mark) in enumerate(zip(rows, marks, strict=True)):
        ids[i, : len(row)] = torch.tensor(row)
        labels[i, : len(mark)] = torch.tensor(mark)
    return ids, labels


def _write_prompts(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Prompts as verl's RLHFDataset reads them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "data_source": "sentinel-demo/small-numbers",
            "prompt": [{"role": "user", "content": question}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"index": index},
        }
        for index, (question, answer) in enumerate(pairs)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


def main(folder: str) -> None:
    """Make the assets and say how it goes, for a process of its own."""
    prepare(Path(folder), progress=lambda done, of, loss: print(f"step {done} {of} {loss:.3f}", flush=True))


if __name__ == "__main__":
    main(sys.argv[1])
