# SPDX-License-Identifier: Apache-2.0
"""Two sides' rollouts, aligned by prompt: equal answers, where others part, equal text with another score, lengths.

Rows of a step come in another order from run to run (V1 trainer), and a prompt is answered several times; so within
one step and prompt equal texts are paired first, and what is left in order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sentinel.records import RolloutRow

SCORE_TOLERANCE = 1e-6
_KEPT = 20


@dataclass(frozen=True, slots=True)
class Parting:
    """Where one answer leaves its counterpart."""

    step: int | None
    prompt: str
    at: int
    """Characters that both begin with."""
    here: str
    there: str
    """What each goes on with."""


@dataclass(frozen=True, slots=True)
class ScoreGap:
    """Equal text that was scored otherwise."""

    step: int | None
    prompt: str
    output: str
    here: float
    there: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Against:
    """One step's, or the whole run's, agreement with the other side."""

    rows_here: int = 0
    rows_there: int = 0
    aligned: int = 0
    """Rows that have a counterpart of the same prompt in the same step."""
    identical: int = 0
    partings: tuple[Parting, ...] = ()
    score_gaps: tuple[ScoreGap, ...] = ()
    score_gap_rows: int = 0
    lengths_here: tuple[int, ...] = ()
    lengths_there: tuple[int, ...] = ()
    """Characters of each output."""
    first_different_step: int | None = None
    steps: tuple[int | None, ...] = field(default=())
    """Steps that both have."""

    @property
    def same_scores(self) -> bool | None:
        """Whether equal text was scored alike everywhere; None where no text was equal."""
        return None if not self.identical else not self.score_gap_rows


def against(
    here: Iterable[tuple[int | None, Sequence[RolloutRow]]], there: Mapping[int | None, Sequence[RolloutRow]]
) -> Against:
    """Compare step by step; steps that only one side has are left out."""
    found = Against()
    for step, rows in here:
        if step in there:
            found = _joined(found, step_against(step, rows, there[step]))
    return found


def step_against(step: int | None, here: Sequence[RolloutRow], there: Sequence[RolloutRow]) -> Against:
    """Compare the rows of one step."""
    others: dict[str, list[RolloutRow]] = defaultdict(list)
    for row in there:
        others[row.prompt].append(row)
    mine: dict[str, list[RolloutRow]] = defaultdict(list)
    for row in here:
        mine[row.prompt].append(row)
    aligned = identical = gap_rows = 0
    partings: list[Parting] = []
    gaps: list[ScoreGap] = []
    for prompt, rows in mine.items():
        equal, parted = _paired(rows, others.get(prompt, ()))
        identical += len(equal)
        aligned += len(equal) + len(parted)
        partings += [_parting(step, left, right) for left, right in parted[: _KEPT - len(partings)]]
        apart = [pair for pair in equal if _scores_part(*pair)]
        gap_rows += len(apart)
        gaps += [ScoreGap(step, a.prompt[-200:], a.output[:200], a.score or 0.0, b.score or 0.0) for a, b in apart][
            :_KEPT
        ]
    other = identical < max(len(here), len(there))
    return Against(
        rows_here=len(here),
        rows_there=len(there),
        aligned=aligned,
        identical=identical,
        partings=tuple(partings),
        score_gaps=tuple(gaps[:_KEPT]),
        score_gap_rows=gap_rows,
        lengths_here=tuple(len(row.output) for row in here),
        lengths_there=tuple(len(row.output) for row in there),
        first_different_step=step if other else None,
        steps=(step,),
    )


def quantiles(lengths: Sequence[int]) -> dict[str, float]:
    """Mean, median, 90 % and maximum; empty for none."""
    if not lengths:
        return {}
    ordered = sorted(lengths)
    last = len(ordered) - 1
    return {
        "mean": sum(ordered) / len(ordered),
        "median": float(ordered[last // 2]),
        "p90": float(ordered[round(0.9 * last)]),
        "max": float(ordered[-1]),
    }


def _paired(
    here: Sequence[RolloutRow], there: Sequence[RolloutRow]
) -> tuple[list[tuple[RolloutRow, RolloutRow]], list[tuple[RolloutRow, RolloutRow]]]:
    """Pairs of equal text, then pairs of what is left, in order."""
    waiting: dict[str, list[RolloutRow]] = defaultdict(list)
    for row in there:
        waiting[row.output].append(row)
    equal, left = [], []
    for row in here:
        if waiting.get(row.output):
            equal.append((row, waiting[row.output].pop(0)))
        else:
            left.append(row)
    used = Counter(id(other) for _, other in equal)
    rest = [row for row in there if not used[id(row)]]
    return equal, list(zip(left, rest, strict=False))


def _parting(step: int | None, here: RolloutRow, there: RolloutRow) -> Parting:
    size = min(len(here.output), len(there.output))
    at = next((n for n in range(size) if here.output[n] != there.output[n]), size)
    return Parting(step, here.prompt[-200:], at, here.output[at : at + 80], there.output[at : at + 80])


def _scores_part(here: RolloutRow, there: RolloutRow) -> bool:
    a, b = here.score, there.score
    if a is None or b is None or (a != a and b != b):  # noqa: PLR0124  # NaN on both sides is the same answer
        return False
    return not abs(a - b) <= SCORE_TOLERANCE * max(1.0, abs(a), abs(b))


def _joined(left: Against, right: Against) -> Against:
    first = left.first_different_step
    return Against(
        rows_here=left.rows_here + right.rows_here,
        rows_there=left.rows_there + right.rows_there,
        aligned=left.aligned + right.aligned,
        identical=left.identical + right.identical,
        partings=(left.partings + right.partings)[:_KEPT],
        score_gaps=(left.score_gaps + right.score_gaps)[:_KEPT],
        score_gap_rows=left.score_gap_rows + right.score_gap_rows,
        lengths_here=left.lengths_here + right.lengths_here,
        lengths_there=left.lengths_there + right.lengths_there,
        first_different_step=right.first_different_step if first is None else first,
        steps=left.steps + right.steps,
    )
