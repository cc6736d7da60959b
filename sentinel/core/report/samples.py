# SPDX-License-Identifier: Apache-2.0
"""Rollout samples of an incident beside the baseline's answers to the same prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sentinel.core.rollout.rows import judge_step
from sentinel.core.rollout.text import OK
from sentinel.records import RolloutRow

SHOWN = 4
MOST_CHARS = 1500


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplePair:
    """One answer of the run and, where the baseline was asked the same, its answer. All of it is model output: hostile."""

    step: int
    label: str
    """ok, garbled, empty, repetitive."""
    prompt: str
    output: str
    score: float | None
    golden_output: str | None = None
    golden_score: float | None = None


def pair_samples(
    step: int, rows: Sequence[RolloutRow], golden: Sequence[RolloutRow], shown: int = SHOWN
) -> tuple[SamplePair, ...]:
    """The rows that say most: garbled ones first, then those that the baseline answered otherwise.

    Of equal prompts, the first of both sides belong together, then the second, as a group of answers is sampled.
    """
    waiting: dict[str, list[RolloutRow]] = {}
    for row in reversed(golden):
        waiting.setdefault(row.prompt, []).append(row)
    labels = judge_step(step, rows).labels
    pairs: list[tuple[int, int, SamplePair]] = []
    for place, (row, label) in enumerate(zip(rows, labels, strict=True)):
        alike = waiting.get(row.prompt)
        other = alike.pop() if alike else None
        pair = SamplePair(
            step=step,
            label=label,
            prompt=_cut(row.prompt),
            output=_cut(row.output),
            score=row.score,
            golden_output=None if other is None else _cut(other.output),
            golden_score=None if other is None else other.score,
        )
        differs = other is not None and other.output != row.output
        pairs.append((0 if label != OK else 1 if differs else 2, place, pair))
    return tuple(pair for _, _, pair in sorted(pairs, key=lambda found: found[:2])[:shown])


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]} [... {len(text) - MOST_CHARS} more characters]"


def sample_to_plain(sample: SamplePair) -> dict[str, object]:
    """The form of `incident.json`."""
    return {
        "step": sample.step,
        "label": sample.label,
        "prompt": sample.prompt,
        "output": sample.output,
        "score": sample.score,
        "golden_output": sample.golden_output,
        "golden_score": sample.golden_score,
    }
