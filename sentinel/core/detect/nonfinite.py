# SPDX-License-Identifier: Apache-2.0
"""A metric became NaN or infinite.

Misses on purpose: metrics of time and scheduling; the numbers of rollout against actor when verl says that it had no tokens to
compare (`rollout_probs_diff_valid` is 0); what the baseline itself does (replay: at that step; free run: at a fifth of its steps).
False alarms: none known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.detect.base import strongest
from sentinel.core.frames import Bools
from sentinel.records import Band, Finding

FINITE = Band(low=-np.inf, high=np.inf)
OFTEN = 0.2
VALID = "training/rollout_probs_diff_valid"


@dataclass(frozen=True)
class NonFiniteDetector:
    """NaN and Inf, at once."""

    name: str = "nonfinite"

    def initial(self) -> None:
        """No memory."""

    def observe(self, state: None, look: Look) -> tuple[None, tuple[Finding, ...]]:
        """Find what is present and not finite."""
        frame = look.frame
        rows = frame.present & ~frame.finite & frame.index.evidence
        if not rows.any():
            return state, ()
        rows &= ~_excused(look)
        return state, tuple(_finding(look, row) for row in strongest(rows, np.ones(len(rows))))


def _excused(look: Look) -> Bools:
    frame = look.frame
    out = np.zeros(len(frame.values), dtype=np.bool_)
    valid = frame.index.rows.get(VALID)
    if valid is not None and frame.values[valid] == 0:
        out |= np.fromiter((entry.group == "gap" for entry in frame.index.entries), dtype=np.bool_, count=len(out))
    baseline = look.baseline
    if baseline is not None:
        known = len(baseline.index)
        place = baseline.line.get(frame.step)
        if look.regime == "replayed" and place is not None:
            out[:known] |= baseline.not_finite[place]
        else:
            out[:known] |= baseline.not_finite.mean(axis=0) >= OFTEN
    return out


def _finding(look: Look, row: int) -> Finding:
    frame = look.frame
    entry, value = frame.index.entries[row], float(frame.values[row])
    what = "NaN" if np.isnan(value) else ("Inf" if value > 0 else "-Inf")
    before = next(
        (past.values[row] for past in reversed(look.past) if row < len(past.values) and np.isfinite(past.values[row])),
        None,
    )
    was = "" if before is None else f"; it was {before:.5g} before"
    return Finding(
        detector="nonfinite",
        metric=frame.index.keys[row],
        step=frame.step,
        value=value,
        expected=FINITE,
        because=f"{frame.index.keys[row]} is {what} at step {frame.step}{was}.",
        stage=entry.stage,
        kind="non_finite",
        score=1000.0,
    )
