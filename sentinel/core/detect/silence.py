# SPDX-License-Identifier: Apache-2.0
"""A metric stopped: it vanished, or it stands still.

Vanished: on every step so far (3 at least), and missing now from a step that holds most of the usual metrics. Standing still: a loss,
an entropy or a gradient norm that moved before and is the same number for 6 steps. Misses on purpose: metrics that the catalogue
lets come and go, and metrics that were never there (a baseline tells of those).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.detect.base import brief, strongest
from sentinel.core.frames import Floats, SeriesFrame, frozen, grown
from sentinel.records import Finding

ALWAYS = 3
STILL = 6.0
MOST = 0.5


@dataclass(frozen=True)
class SilenceState:
    """Memory of one run; rows are series."""

    count: Floats
    """Steps in a row that had the metric."""
    last: Floats
    same: Floats
    """Steps in a row with the same number."""
    moved: Floats
    """Times that the number changed."""


@dataclass(frozen=True)
class SilenceDetector:
    """Vanished and standing metrics."""

    name: str = "silence"

    def initial(self) -> SilenceState:
        """Nothing seen."""
        return SilenceState(count=np.zeros(0), last=np.zeros(0), same=np.zeros(0), moved=np.zeros(0))

    def observe(self, state: SilenceState, look: Look) -> tuple[SilenceState, tuple[Finding, ...]]:
        """Judge one step."""
        frame = look.frame
        rows = len(frame.values)
        count, last = grown(state.count, rows, 0.0), grown(state.last, rows, np.nan)
        same, moved = grown(state.same, rows, 0.0), grown(state.moved, rows, 0.0)
        usual = count >= ALWAYS
        whole = not usual.any() or (frame.present & usual).sum() >= MOST * usual.sum()
        if not whole:
            # A fragment of a step: what it lacks is not missing.
            return state, ()
        gone = usual & ~frame.present & frame.index.evidence & ~frame.index.varies
        equal = frame.finite & (frame.values == last)
        same = np.where(equal, same + 1.0, np.where(frame.present, 0.0, same))
        still = (
            frame.index.relative & ~frame.index.varies & (same == STILL - 1) & (moved >= ALWAYS) & (frame.values != 0)
        )
        found = [_vanished(look, row, float(last[row]), int(count[row])) for row in strongest(gone, count)]
        found += [_still(frame, row) for row in strongest(still, same)]
        state = SilenceState(
            count=frozen(np.where(frame.present, count + 1.0, 0.0)),
            last=frozen(np.where(frame.present, frame.values, last)),
            same=frozen(same),
            moved=frozen(moved + (frame.finite & np.isfinite(last) & ~equal)),
        )
        return state, tuple(found)


def _vanished(look: Look, row: int, last: float, count: int) -> Finding:
    frame = look.frame
    key, entry = frame.index.keys[row], frame.index.entries[row]
    return Finding(
        detector="silence",
        metric=key,
        step=frame.step,
        value=float("nan"),
        expected=None,
        because=f"{key} is missing at step {frame.step}; each of the {count} steps before had it, last as {brief(last)}.",
        stage=entry.stage,
        kind="vanished",
        score=1.0,
    )


def _still(frame: SeriesFrame, row: int) -> Finding:
    key, value = frame.index.keys[row], float(frame.values[row])
    return Finding(
        detector="silence",
        metric=key,
        step=frame.step,
        value=value,
        expected=None,
        because=f"{key} has been exactly {brief(value)} for {STILL:.0f} steps up to step {frame.step}, after changing before: nothing is measured or nothing learns.",
        stage=frame.index.entries[row].stage,
        kind="vanished",
        score=1.0,
    )
