# SPDX-License-Identifier: Apache-2.0
"""A smaller reproduction of a broken rollout: one prompt, short, greedy; inside verl as overrides, and outside of it.

Outside of verl the engine loads its weights from disk and no trainer sends any: text that is sound there and broken inside
verl is a matter of weight sync, text that is broken there as well one of the engine or the files.
"""

from __future__ import annotations

import re

from sentinel.core.rollout.rows import JudgedRow

TOKENS = 256
_TURN = re.compile(r"(?:^|\n)user\n(.*?)(?:\nassistant\n|\Z)", re.DOTALL)

_SCRIPT = '''\
"""One prompt of a broken rollout, greedy, without verl: vLLM, or vllm-ascend on an NPU (pip install vllm-ascend).

Made by `sentinel rollout check --reproduce` from step {step}, row {row}: {label} ({why}).
Sound text here and broken text inside verl: weights are lost or changed on their way (weight sync, resharding, load_format).
Broken text here as well: the engine's forward pass, its kernels, or the files of the model.
"""

import sys

from transformers import AutoTokenizer
from vllm import LLM, SamplingParams

MODEL = sys.argv[1] if len(sys.argv) > 1 else "MODEL"  # actor_rollout_ref.model.path
QUESTION = {question!a}
BROKEN = {output!a}

tokenizer = AutoTokenizer.from_pretrained(MODEL)
prompt = tokenizer.apply_chat_template([{{"role": "user", "content": QUESTION}}], tokenize=False, add_generation_prompt=True)
llm = LLM(model=MODEL, dtype="bfloat16", enforce_eager=True, max_model_len=4096)
(answer,) = llm.generate([prompt], SamplingParams(temperature=0.0, max_tokens={tokens}, logprobs=1))
print("inside verl: ", ascii(BROKEN))
print("outside of it:", ascii(answer.outputs[0].text))
'''


def overrides() -> tuple[str, ...]:
    """Hydra overrides that make the run as small as it can be and still generate."""
    rollout = "actor_rollout_ref.rollout"
    return (
        "data.train_batch_size=1",
        "data.shuffle=False",
        f"data.max_response_length={TOKENS}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=1",
        f"{rollout}.n=1",
        f"{rollout}.temperature=0",
        f"{rollout}.do_sample=False",
        f"{rollout}.enforce_eager=True",
        "trainer.total_training_steps=1",
        "trainer.val_before_train=False",
        "trainer.save_freq=-1",
    )


def script(row: JudgedRow) -> str:
    """A Python program that asks the engine alone; everything of the model is a quoted ASCII literal in it."""
    return _SCRIPT.format(
        step="?" if row.step is None else row.step,
        row=row.place,
        label=row.label,
        why=row.why.encode("unicode_escape").decode("ascii").replace("\\", "/").replace('"', "'"),
        question=question_of(row.prompt),
        output=row.output,
        tokens=TOKENS,
    )


def question_of(prompt: str) -> str:
    """The last thing that the user said: the prompt in rollout text has lost its special tokens."""
    turns = _TURN.findall(prompt)
    return str(turns[-1]).strip() if turns else prompt.strip()
