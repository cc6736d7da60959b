# SPDX-License-Identifier: Apache-2.0
"""Rows of rollout text and the verdict on many of them: a step, a file, a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sentinel.core.rollout.text import EMPTY, GARBLED, OK, REPETITIVE, judge_text
from sentinel.records import RolloutRow

HEALTHY = "healthy"
THRESHOLD = 0.05
"""Share of bad rows from which a step or a file is not healthy: single rows of a healthy run loop, too."""
_GRAVEST = (GARBLED, EMPTY, REPETITIVE)
_OPEN = (("<think>", "</think>"), ("<tool_call>", "</tool_call>"))
_LONG = 0.95
_ENDS = frozenset(".!?。！？…)）]}>`'\"”’$|;；:")


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """What was found about one row."""

    step: int | None
    place: int
    """Number of the row within its step, from 0."""
    label: str
    why: str
    prompt: str = ""
    output: str = ""
    """Beginning of both, for bad rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """How many rows of each kind; sums of tallies are tallies."""

    counts: Mapping[str, int] = field(default_factory=dict)
    truncated: int = 0
    """Rows that stop in the middle at the longest length of their step."""

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(self.counts.values())

    @property
    def bad(self) -> int:
        """Rows that are not `ok`."""
        return self.rows - self.counts.get(OK, 0)

    @property
    def share(self) -> float:
        """Bad rows over rows; 0 for no rows."""
        return self.bad / self.rows if self.rows else 0.0

    def verdict(self, threshold: float = THRESHOLD) -> str:
        """`healthy`, or the kind of most bad rows."""
        if not self.bad or self.share < threshold:
            return HEALTHY
        return max(_GRAVEST, key=lambda label: self.counts.get(label, 0))

    def __add__(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(counts=Counter(self.counts) + Counter(other.counts), truncated=self.truncated + other.truncated)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepText:
    """The verdict on the text of one step."""

    step: int | None
    tally: Tally
    labels: tuple[str, ...]
    worst: tuple[JudgedRow, ...]
    """The first bad rows, a few of each kind."""


def judge_step(step: int | None, rows: Sequence[RolloutRow], *, keep: int = 8, shown: int = 300) -> StepText:
    """Judge the rows of one step.

    Args:
        step: its number, where known.
        rows: its answers.
        keep: bad rows that are kept, of each kind.
        shown: characters of prompt and output that are kept of each.
    """
    labels: list[str] = []
    kept: Counter[str] = Counter()
    worst: list[JudgedRow] = []
    for place, row in enumerate(rows):
        verdict = judge_text(row.output)
        labels.append(verdict.label)
        if verdict.label != OK and kept[verdict.label] < keep:
            kept[verdict.label] += 1
            worst.append(JudgedRow(step, place, verdict.label, verdict.why, row.prompt[-shown:], row.output[:shown]))
    tally = Tally(counts=Counter(labels), truncated=_truncated(rows, labels))
    return StepText(step=step, tally=tally, labels=tuple(labels), worst=tuple(worst))


def total(tallies: Iterable[Tally]) -> Tally:
    """All of them together."""
    return sum(tallies, Tally())


def _truncated(rows: Sequence[RolloutRow], labels: Sequence[str]) -> int:
    """Sound rows that stop in the middle: an open block, or no end at the length that the longest rows share."""
    longest = max((len(row.output) for row in rows), default=0)
    return sum(label == OK and _cut(row.output.rstrip(), longest) for row, label in zip(rows, labels, strict=True))


def _cut(output: str, longest: int) -> bool:
    if any(output.count(start) > output.count(end) for start, end in _OPEN) or output.count("```") % 2:
        return True
    return len(output) >= 200 and len(output) >= _LONG * longest and output[-1] not in _ENDS and output[-1].isalpha()
