# SPDX-License-Identifier: Apache-2.0
"""Real output of the demo's tiny model: as it was trained, and with its weights broken as weights break.

rolled   every matrix is rolled by one row, as when a tensor is read in another layout
random   weights as `load_format=dummy` leaves them
nan      NaN in one layer: the engine picks token 0 for ever
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

BROKEN = ("rolled", "random", "nan")
_TOKENS = {"": 24, "rolled": 96, "random": 96, "nan": 96}


def model_rows(folder: Path, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield (kind of break, output); the kind is empty for the sound model. Needs torch and transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [f"What is {n} plus {n % 7 + 1}?" for n in range(1, 20)]
    for kind in ("", *BROKEN):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        _break(model, kind, torch)
        texts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": prompts[(number + seed) % len(prompts)]}],
                add_generation_prompt=True,
                tokenize=False,
            )
            for number in range(count)
        ]
        for tokens in _written(model, tokenizer, texts, kind, torch):
            yield kind, tokenizer.decode(tokens, skip_special_tokens=True)


def _written(model: Any, tokenizer: Any, texts: list[str], kind: str, torch: Any) -> list[list[int]]:
    """Sample as a rollout engine does; where probabilities are NaN it picks token 0 for ever."""
    tokenizer.padding_side = "left"
    batch = tokenizer(texts, return_tensors="pt", add_special_tokens=False, padding=True)
    limit = _TOKENS[kind]
    with torch.no_grad():
        if not torch.isfinite(model(**batch).logits[:, -1]).all():
            return [[0] * limit for _ in texts]
        # A broken model does not know when to end; what it writes after the first end token counts as well.
        least = limit if kind else 1
        out = model.generate(
            **batch, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=limit, min_new_tokens=least
        )
    return [row[batch.input_ids.shape[1] :].tolist() for row in out]


def _break(model: Any, kind: str, torch: Any) -> None:
    with torch.no_grad():
        for name, value in model.named_parameters():
            if kind == "random":
                value.normal_(0.0, 0.02)
            elif kind == "rolled" and value.ndim > 1:
                value.copy_(value.roll(1, 0))
            elif kind == "nan" and name.endswith("mlp.down_proj.weight"):
                value.fill_(float("nan"))
