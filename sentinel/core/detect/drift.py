# SPDX-License-Identifier: Apache-2.0
"""A slow, sustained departure from the seeds' band in a free run: two-sided CUSUM of whitened residuals (Page 1954).

S+ <- max(0, S+ + min(u, 4) - 0.5), S- alike; u is the residual in standard deviations with its AR(1) part taken out.
Threshold a series: what each seed reaches against the others, times 2.2, at least 13 (normal residuals: one alarm in about a million
series-steps). Misses on purpose: shifts below half a standard deviation, and series decided by single tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.compare.free import cusum_step, whitened
from sentinel.core.detect.base import band_of, brief, strongest
from sentinel.core.frames import Floats, frozen, grown
from sentinel.records import Finding


@dataclass(frozen=True)
class DriftState:
    """Memory of one run; rows are series."""

    high: Floats
    low: Floats
    before: Floats
    """Residual of the step before; NaN: none."""
    began: Floats
    """Step at which the larger sum last left zero."""


@dataclass(frozen=True)
class DriftDetector:
    """Sustained departure in a free run."""

    name: str = "drift"

    def initial(self) -> DriftState:
        """Nothing seen."""
        return DriftState(high=np.zeros(0), low=np.zeros(0), before=np.zeros(0), began=np.zeros(0))

    def observe(self, state: DriftState, look: Look) -> tuple[DriftState, tuple[Finding, ...]]:
        """Judge one step; in other regimes the memory rests."""
        bands = look.bands
        if look.regime != "free" or bands is None:
            return state, ()
        rows = len(look.residual)
        before = grown(state.before, rows, np.nan)
        phi, limit = np.zeros(rows), np.full(rows, np.inf)
        phi[: len(bands.phi)], limit[: len(bands.cusum)] = bands.phi, bands.cusum
        white = whitened(look.residual, before, phi)
        high, low = cusum_step(grown(state.high, rows, 0.0), grown(state.low, rows, 0.0), white)
        sums = np.maximum(np.where(look.frame.index.up, high, 0.0), np.where(look.frame.index.down, low, 0.0))
        began = np.where(sums > 0, grown(state.began, rows, np.inf), np.inf)
        began = np.where((sums > 0) & ~np.isfinite(began), look.frame.step, began)
        alarms = (sums > limit) & ~look.frame.index.heavy & look.frame.finite
        found = tuple(
            _finding(look, row, float(sums[row]), float(limit[row]), float(began[row]))
            for row in strongest(alarms, sums / limit)
        )
        kept = np.where(np.isfinite(look.residual), look.residual, before)
        # Beyond twice the limit nothing is learned, and the way back would only grow.
        high, low = np.minimum(high, 2 * limit), np.minimum(low, 2 * limit)
        return DriftState(frozen(high), frozen(low), frozen(kept), frozen(began)), found


def _finding(look: Look, row: int, total: float, limit: float, began: float) -> Finding:
    frame = look.frame
    key, value = frame.index.keys[row], float(frame.values[row])
    return Finding(
        detector="drift",
        metric=key,
        step=frame.step,
        value=value,
        expected=band_of(look, row),
        because=(
            f"{key} has stood off the seeds since step {began:.0f}: cumulative sum {brief(total)} over the limit {brief(limit)}, "
            f"now {brief(value)} where {brief(float(look.expected[row]))} was expected."
        ),
        stage=frame.index.entries[row].stage,
        kind="drift",
        score=total / limit,
    )
