# SPDX-License-Identifier: Apache-2.0
"""Step-by-step comparison with the run that is replayed, and how far healthy replays part.

With twins the tolerance comes from them. Noise of a replay is small at first and grows as the weights part, for all metrics at
once, so it is fitted as amplitude(series) x growth(step) in logarithms: one twin of a few steps gives a usable scale for each
series that way, where the single deviations are luck. The tolerance is never below what the twins showed, nor below rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.compare.learn import Baseline
from sentinel.core.compare.regime import EQUAL
from sentinel.core.frames import Bools, Floats, SeriesIndex, frozen
from sentinel.core.window import median

ULP = 2.0**-23
"""Relative spacing of float32."""
ROUNDING = 8 * ULP
"""Differences up to here are the order of a sum: 8 units in the last place."""
HALF_NORMAL_MEDIAN = 0.6745
SIGMAS = 8.0
"""Tolerance in fitted standard deviations."""
ENVELOPE = 4.0
"""Tolerance in largest deviations of a twin so far."""
AHEAD = 0.25
"""A healthy replay may part this share of the elapsed steps earlier than the twins did."""
IDENTICAL_REL = 5e-5
IDENTICAL_ABS = 1e-5
"""Tolerance where the twins were bit-identical in everything: rounding, amplified by a few updates (fp32 replays on one machine
part by 1e-7 at first)."""
GROWTH = 0.1
"""Growth of the catalogue's and of the documented tolerances a step, without twins to fit it from."""


@dataclass(frozen=True)
class Pairing:
    """One seed's course and the tolerance around it."""

    seed: int
    expected: Floats
    """(steps, series); NaN where the seed has nothing."""
    tolerance: Floats
    """(steps, series); absolute."""
    calibrated: bool
    """From twins; otherwise from the catalogue."""
    inexact: Bools
    """(series,): the twins differ here, so that a metric of class exact is none in this recipe (a reward model's score)."""


def learn_pairing(baseline: Baseline, seed: int) -> Pairing:
    """Course and tolerance for a replay of this seed."""
    expected = baseline.seeds[seed]
    index = baseline.index
    twins = _twins_of(baseline, seed)
    base = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    rounding = ROUNDING * np.maximum(base, index.natural) + index.floor + baseline.resolution
    if not len(twins):
        tolerance = _from_catalogue(index, base) + rounding
    else:
        tolerance = _from_twins(np.abs(twins - expected), index, base) + rounding
    return Pairing(
        seed=seed,
        expected=expected,
        tolerance=frozen(tolerance),
        calibrated=bool(len(twins)),
        inexact=frozen(_inexact(twins, expected)),
    )


def _inexact(twins: Floats, expected: Floats) -> Bools:
    """Series in which twins differ from the seed at most of the steps by more than the order of a sum."""
    both = np.isfinite(twins) & np.isfinite(expected)
    apart = both & (np.abs(twins - expected) > EQUAL * np.abs(expected))
    return np.asarray(apart.sum(axis=(0, 1)) * 2 > both.sum(axis=(0, 1)), dtype=np.bool_)


def _twins_of(baseline: Baseline, seed: int) -> Floats:
    """Twins that replay this seed: their exact metrics agree with it more than with any other seed."""
    if len(baseline.seeds) == 1 or not len(baseline.twins):
        return baseline.twins
    exact = np.flatnonzero(baseline.index.exact)
    distances = np.array(
        [[_share_different(twin[:, exact], other[:, exact]) for other in baseline.seeds] for twin in baseline.twins]
    )
    return np.asarray(baseline.twins[np.argmin(distances, axis=1) == seed], dtype=np.float64)


def _share_different(one: Floats, other: Floats) -> float:
    both = np.isfinite(one) & np.isfinite(other)
    if not both.any():
        return 1.0
    return float(np.mean(np.abs(one - other)[both] > 1e-6 * np.abs(other)[both]))


def _growth(steps: int) -> Floats:
    return np.asarray(1.0 + GROWTH * np.arange(steps), dtype=np.float64)[:, None]


def _from_catalogue(index: SeriesIndex, base: Floats) -> Floats:
    return np.asarray((index.abs + index.rel * base) * _growth(len(base)), dtype=np.float64)


def _from_twins(deviations: Floats, index: SeriesIndex, base: Floats) -> Floats:
    """Tolerance from |twin - seed|, shape (twins, steps, series)."""
    worst = np.nan_to_num(np.nanmax(np.where(np.isfinite(deviations), deviations, -1.0), axis=0), nan=0.0)
    worst = np.maximum(worst, 0.0)
    if not worst[:, index.paired].any():
        # Bit-identical twins tell of no scale.
        return np.asarray((IDENTICAL_REL * base + IDENTICAL_ABS * index.natural) * _growth(len(base)), dtype=np.float64)
    shares = np.where(index.relative & (base > 0), worst / np.where(base > 0, base, 1.0), worst)
    envelope = _ahead(np.maximum.accumulate(shares, axis=0))
    fitted = _ahead(np.maximum.accumulate(_fitted(shares, index), axis=0))
    tolerance = np.maximum(ENVELOPE * envelope, SIGMAS * fitted)
    return np.asarray(np.where(index.relative & (base > 0), tolerance * base, tolerance), dtype=np.float64)


def _ahead(course: Floats) -> Floats:
    """The course as it will be one step and a share of the elapsed steps later."""
    steps = len(course)
    place = np.arange(steps)
    later = np.minimum(place + 1 + (AHEAD * place).astype(np.int64), steps - 1)
    return np.asarray(course[later], dtype=np.float64)


def _fitted(shares: Floats, index: SeriesIndex) -> Floats:
    """Standard deviations by amplitude(series) x growth(step), fitted to the logarithms of the deviations by medians."""
    use = (shares > 0) & index.paired
    logs = np.where(use, np.log(np.where(use, shares, 1.0)), np.nan)
    amplitude = median(logs, axis=0)
    growth = np.zeros(len(shares))
    for _ in range(3):
        growth = np.nan_to_num(median(logs - amplitude, axis=1), nan=0.0)
        amplitude = median(logs - growth[:, None], axis=0)
    fit = np.exp(np.clip(amplitude[None, :] + growth[:, None], -700, 700)) / HALF_NORMAL_MEDIAN
    return np.nan_to_num(fit, nan=0.0)
