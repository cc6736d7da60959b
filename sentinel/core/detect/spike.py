# SPDX-License-Identifier: Apache-2.0
"""One step stands far out: of the seeds' band in a free run, of its own past where no baseline speaks.

Two-sided unless the catalogue says which way is bad. Against seeds: the deviation in standard deviations against what healthy runs reach
at single steps (`compare.windows`), and never less than a seed itself did at any step; metrics that single tokens decide are the drift
detector's. Against the own past: 12 mean absolute deviations of an exponentially weighted past of at least 8 steps, and half the level (a factor of 3 for gradient norms).
Misses on purpose: what grows slowly (drift), and everything that happened before there was a past.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.detect.base import band_of, brief, strongest
from sentinel.core.frames import Bools, Floats, SeriesFrame, frozen, grown
from sentinel.records import Band, Finding

DECAY = 0.1
WARM_UP = 8
OWN = 12.0
OWN_LEVEL = 0.5
OWN_LOG = float(np.log(3.0))
OWN_FLOOR = 0.5
"""In the metric's natural magnitude: a share that was 0 so far may become 0.1."""


@dataclass(frozen=True)
class SpikeState:
    """Memory of one run; rows are series."""

    mean: Floats
    deviation: Floats
    """Exponentially weighted mean absolute deviation."""
    count: Floats


@dataclass(frozen=True)
class SpikeDetector:
    """Far out at one step."""

    name: str = "spike"

    def initial(self) -> SpikeState:
        """Nothing seen."""
        return SpikeState(mean=np.zeros(0), deviation=np.zeros(0), count=np.zeros(0))

    def observe(self, state: SpikeState, look: Look) -> tuple[SpikeState, tuple[Finding, ...]]:
        """Judge one step."""
        rows = len(look.ratio)
        mean, deviation = grown(state.mean, rows, 0.0), grown(state.deviation, rows, 0.0)
        count = grown(state.count, rows, 0.0)
        index = look.frame.index
        out = _out_of_band(look)
        values, log = _own_values(look.frame)
        gap = values - mean
        alone = index.banded & ~np.isfinite(look.ratio) & np.isfinite(values) & ~index.heavy & (count >= WARM_UP)
        limit = OWN * deviation + np.where(log, OWN_LOG, OWN_LEVEL * np.abs(mean) + OWN_FLOOR * index.natural)
        own = alone & (((gap > limit) & index.up) | ((gap < -limit) & index.down))
        after = _updated(values, mean, deviation, count, limit)
        state = SpikeState(*after)
        found = [_against_seeds(look, row) for row in strongest(out, look.ratio)]
        found += [
            _against_past(look.frame, row, float(mean[row]), float(limit[row]), bool(log[row]))
            for row in strongest(own, np.abs(gap) / limit)
        ]
        return state, tuple(found)


def _out_of_band(look: Look) -> Bools:
    if look.regime != "free":
        return np.zeros(len(look.ratio), dtype=np.bool_)
    index = look.frame.index
    side = ((look.standard > 0) & index.up) | ((look.standard < 0) & index.down)
    if look.bands is None:
        return np.zeros(len(side), dtype=np.bool_)
    single, bound = look.limits[0] > 0, look.bands.bound
    single[: len(bound)] |= look.frame.values[: len(bound)] > bound
    return np.asarray((np.nan_to_num(look.ratio) > 1.0) & side & single, dtype=np.bool_)


def _own_values(frame: SeriesFrame) -> tuple[Floats, Bools]:
    """Values as the own past is judged: logarithms of the positive ones among the relative series."""
    log = frame.index.relative & (np.nan_to_num(frame.values) > 0)
    return np.where(
        log, np.log(np.where(log, frame.values, 1.0)), np.where(frame.index.relative, np.nan, frame.values)
    ), log


def _updated(
    values: Floats, mean: Floats, deviation: Floats, count: Floats, limit: Floats
) -> tuple[Floats, Floats, Floats]:
    """Past with this step; an outlier moves it by its limit at most, so that it does not hide the next one."""
    seen = np.isfinite(values)
    gap = np.where(seen, values - mean, 0.0)
    gap = np.where(count >= WARM_UP, np.clip(gap, -limit, limit), gap)
    first = seen & (count == 0)
    weight = np.maximum(DECAY, 1.0 / (count + 1.0))
    moved = np.where(first, np.where(seen, values, 0.0), mean + np.where(seen, weight * gap, 0.0))
    spread = np.where(first, 0.0, deviation + np.where(seen, weight * (np.abs(gap) - deviation), 0.0))
    return frozen(moved), frozen(spread), frozen(count + seen)


def _against_seeds(look: Look, row: int) -> Finding:
    frame = look.frame
    key, value = frame.index.keys[row], float(frame.values[row])
    bands = look.bands
    seeds = 0 if bands is None else bands.seeds
    kept = "one seed, with a widened band" if seeds == 1 else f"{seeds} seeds"
    sigmas = float(look.standard[row])
    return Finding(
        detector="spike",
        metric=key,
        step=frame.step,
        value=value,
        expected=band_of(look, row),
        because=f"{key} is {brief(value)} at step {frame.step} where {kept} stand at {brief(float(look.expected[row]))}: {sigmas:+.3g} standard deviations.",
        stage=frame.index.entries[row].stage,
        kind="spike",
        score=float(look.ratio[row]),
    )


def _against_past(frame: SeriesFrame, row: int, mean: float, limit: float, log: bool) -> Finding:
    key, value = frame.index.keys[row], float(frame.values[row])
    low, high = mean - limit, mean + limit
    if log:
        mean, low, high = (float(np.exp(np.clip(edge, -700, 700))) for edge in (mean, low, high))
    return Finding(
        detector="spike",
        metric=key,
        step=frame.step,
        value=value,
        expected=Band(low=low, high=high),
        because=f"{key} is {brief(value)} at step {frame.step}; its own past stands at {brief(mean)} and never left [{brief(low)}, {brief(high)}].",
        stage=frame.index.entries[row].stage,
        kind="spike",
        score=2.0,
    )
