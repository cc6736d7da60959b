# SPDX-License-Identifier: Apache-2.0
"""The problem: reverse a string of symbols and stop; the reward is a rule.

A prompt is BOS, the symbols, SEP; the right answer is the symbols backwards, then EOS. The reward is the share of
positions that are right, so it takes few values and is exact: two runs with equal tokens have equal rewards.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

PAD, BOS, SEP, EOS = 0, 1, 2, 3
SPECIAL = 4


@dataclass(frozen=True)
class Task:
    """Alphabet, shortest and longest string, and the room for an answer, in tokens."""

    symbols: int = 20
    shortest: int = 3
    longest: int = 6
    room: int = 9
    prompts: int = 4096

    @property
    def vocabulary(self) -> int:
        return SPECIAL + self.symbols

    @property
    def prompt_width(self) -> int:
        return self.longest + 2


@dataclass(frozen=True)
class Problems:
    """`prompts` [n, prompt_width] padded on the left; `answers` [n, room] padded on the right."""

    prompts: torch.Tensor
    answers: torch.Tensor


def problems(task: Task, seed: int) -> Problems:
    """The data set of a task, in its own order."""
    rng = torch.Generator().manual_seed(seed)
    prompts = torch.full((task.prompts, task.prompt_width), PAD)
    answers = torch.full((task.prompts, task.room), PAD)
    lengths = torch.randint(task.shortest, task.longest + 1, (task.prompts,), generator=rng)
    for row, length in enumerate(lengths.tolist()):
        string = torch.randint(SPECIAL, task.vocabulary, (length,), generator=rng)
        prompts[row, -length - 2] = BOS
        prompts[row, -length - 1 : -1] = string
        prompts[row, -1] = SEP
        answers[row, :length] = string.flip(0)
        answers[row, length] = EOS
    return Problems(prompts, answers)


def response_mask(responses: torch.Tensor) -> torch.Tensor:
    """True up to and including the first EOS; the whole row where there is none."""
    ended = (responses == EOS).int().cumsum(-1)
    return (ended - (responses == EOS).int()) == 0


def score(responses: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """Share of right positions over the longer of answer and response, per row."""
    mask = response_mask(responses)
    wanted = answers != PAD
    right = ((responses == answers) & mask & wanted).sum(-1)
    longer = torch.maximum(mask.sum(-1), wanted.sum(-1))
    return right.float() / longer.float()
