# SPDX-License-Identifier: Apache-2.0
"""A value crossed a limit that needs no baseline: self-consistency, two models of equal weights at step 1, or the absurd.

Self-consistency must fail on 2 of 3 steps, because single tokens put the correlation at 0.9 now and then in healthy runs; five times
the limit alarms at once unless single tokens decide the metric. Where the baseline's own runs stand at such levels, the limit
lies as far beyond theirs as `Baseline.furthest` says. Misses on purpose: anything below the published limits (verl FAQ 0.01).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.detect.base import brief, strongest
from sentinel.core.frames import Floats, frozen, grown
from sentinel.records import Band, Finding

AT_ONCE = 5.0


@dataclass(frozen=True)
class LimitState:
    """Memory of one run; rows are series."""

    lately: Floats
    """Steps since the limit was last crossed; infinite: never."""


@dataclass(frozen=True)
class LimitDetector:
    """Limits that hold for every run."""

    name: str = "limit"

    def initial(self) -> LimitState:
        """Nothing seen."""
        return LimitState(lately=np.zeros(0))

    def observe(self, state: LimitState, look: Look) -> tuple[LimitState, tuple[Finding, ...]]:
        """Judge one step."""
        frame = look.frame
        index, values = frame.index, frame.values
        lately = grown(state.lately, len(values), np.inf)
        distance, limit = _distance(look)
        size = np.where(np.isfinite(values), np.abs(values), 0.0)
        out = distance > 1.0  # NaN is not
        alarms = out & ((lately <= 2.0) | ((distance > AT_ONCE) & ~index.heavy))
        found = [
            _inconsistent(look, row, float(limit[row]), float(distance[row])) for row in strongest(alarms, distance)
        ]
        found += [_absurd(look, row) for row in strongest(size > index.absurd, size)]
        if frame.step == 1:
            unequal = (size > index.first) & ~np.isfinite(look.expected)
            found += [_not_equal_at_first(look, row) for row in strongest(unequal, size)]
        return LimitState(frozen(np.where(out, 1.0, lately + 1.0))), tuple(found)


def _distance(look: Look) -> tuple[Floats, Floats]:
    """How far out, in units of the limit's own distance from perfect agreement, and the limit itself; NaN without one."""
    index, values = look.frame.index, look.frame.values
    perfect = index.perfect
    reach = np.abs(index.bad - perfect)
    if look.baseline is not None:
        furthest = look.baseline.furthest
        reach[: len(furthest)] = np.maximum(reach[: len(furthest)], furthest)  # keeps NaN: no limit
    off = np.where((perfect == 1.0) & (values >= perfect), 0.0, np.abs(values - perfect))
    return off / reach, np.where(perfect == 1.0, perfect - reach, perfect + reach)


def _inconsistent(look: Look, row: int, limit: float, distance: float) -> Finding:
    frame = look.frame
    key, entry, value = frame.index.keys[row], frame.index.entries[row], float(frame.values[row])
    low_is_bad = entry.direction == "down"
    return Finding(
        detector="limit",
        metric=key,
        step=frame.step,
        value=value,
        expected=Band(low=limit, high=np.inf) if low_is_bad else Band(low=-np.inf, high=limit),
        because=f"{key} is {brief(value)} at step {frame.step}, {'below' if low_is_bad else 'above'} the limit {brief(limit)} that needs no baseline. {entry.text}",
        stage=entry.stage,
        kind="self_inconsistent",
        score=distance,
    )


def _absurd(look: Look, row: int) -> Finding:
    frame = look.frame
    key, entry, value = frame.index.keys[row], frame.index.entries[row], float(frame.values[row])
    return Finding(
        detector="limit",
        metric=key,
        step=frame.step,
        value=value,
        expected=Band(low=-entry.absurd, high=entry.absurd),
        because=f"{key} is {brief(value)} at step {frame.step}: no healthy run exceeds {brief(entry.absurd)}, whatever its history.",
        stage=entry.stage,
        kind="spike",
        score=abs(value) / entry.absurd,
    )


def _not_equal_at_first(look: Look, row: int) -> Finding:
    frame = look.frame
    key, entry, value = frame.index.keys[row], frame.index.entries[row], float(frame.values[row])
    limit = entry.first or 0.0
    return Finding(
        detector="limit",
        metric=key,
        step=frame.step,
        value=value,
        expected=Band(low=-limit, high=limit),
        because=f"{key} is {brief(value)} at step 1, where both sides still have the same weights: about 0 was expected, {brief(limit)} at most.",
        stage=entry.stage,
        kind="self_inconsistent",
        score=abs(value) / limit,
    )
