# SPDX-License-Identifier: Apache-2.0
"""A departure from the seeds' band that stays, in a free run.

Judged is the lower median of the deviation over 3, 5, 10 and 20 steps, each against what healthy runs reach over so many steps
(`compare.windows`); metrics whose catalogue entry names a bad side are judged on that side alone. Misses on purpose: shifts within one
standard deviation of the seeds, which seeds themselves show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.catalogue import FREE_WINDOWS
from sentinel.core.compare import Look
from sentinel.core.compare.windows import FREE_MEMORY, jumped, lasting, pushed
from sentinel.core.detect.base import band_of, brief, strongest
from sentinel.core.frames import Floats, frozen, grown
from sentinel.records import Finding


@dataclass(frozen=True)
class DriftState:
    """Memory of one run; rows are series."""

    recent: Floats
    """(series, FREE_MEMORY): |deviation| of the last steps in standard deviations, newest last; 0 on the side that is not bad."""


@dataclass(frozen=True)
class DriftDetector:
    """Sustained departure in a free run."""

    name: str = "drift"

    def initial(self) -> DriftState:
        """Nothing seen."""
        return DriftState(recent=np.zeros((0, FREE_MEMORY)))

    def observe(self, state: DriftState, look: Look) -> tuple[DriftState, tuple[Finding, ...]]:
        """Judge one step; in other regimes the memory rests."""
        if look.regime != "free" or look.bands is None:
            return state, ()
        index = look.frame.index
        recent = grown(state.recent, len(look.ratio), 0.0)
        bad = ((look.standard > 0) & index.up) | ((look.standard < 0) & index.down)
        now = np.where(bad, np.nan_to_num(np.abs(look.standard), nan=0.0, posinf=1e300), 0.0)
        course = np.concatenate([recent, now[:, None]], axis=1)
        score, window = lasting(course, look.limits[1:], FREE_WINDOWS[1:])
        alarms = (score > 1.0) & look.frame.finite
        found = tuple(
            _finding(look, row, float(score[row]), FREE_WINDOWS[1:][int(window[row])], at_once=jumped(course[row]))
            for row in strongest(alarms, score)
        )
        return DriftState(frozen(pushed(recent, now))), found


def _finding(look: Look, row: int, score: float, window: int, *, at_once: bool) -> Finding:
    frame = look.frame
    key, value = frame.index.keys[row], float(frame.values[row])
    return Finding(
        detector="drift",
        metric=key,
        step=frame.step,
        value=value,
        expected=band_of(look, row),
        because=(
            f"{key} stands off the seeds for most of the {window} steps up to step {frame.step}, by {brief(score)} times what healthy runs show "
            f"over that time: now {brief(value)} where {brief(float(look.expected[row]))} was expected, {float(look.standard[row]):+.3g} standard deviations."
        ),
        stage=frame.index.entries[row].stage,
        kind="drift",
        score=score,
        jumped=at_once,
    )
