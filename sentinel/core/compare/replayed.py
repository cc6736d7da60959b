# SPDX-License-Identifier: Apache-2.0
"""Step-by-step comparison with the run that is replayed, and how far healthy replays part.

With twins the tolerance comes from them: a multiple of the largest deviation that any twin shows in a window around the step. The
window reaches back over 10 steps, because single deviations are luck, and ahead by a step or two and a quarter of the elapsed steps,
because a healthy replay may part earlier than the twins did. The multiple grows as the window holds fewer numbers and fewer twins.
The same is done for medians over 3 and 7 steps: a shift that stays is seen where single steps are noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sentinel.core.compare.learn import EQUAL, Baseline
from sentinel.core.frames import Bools, Floats, SeriesIndex, frozen

ULP = 2.0**-23
"""Relative spacing of float32."""
ROUNDING = 8 * ULP
"""Differences up to here are the order of a sum: 8 units in the last place."""
WINDOWS = (3, 7)
"""Steps over which a shift that stays is looked for."""
LEAST = {3: 0.35, 7: 0.25}
"""Tolerance of such a median, at least, as a share of a single step's: heavy tails make medians of twins look too calm."""
BACK = 10
AHEAD = 4
"""A healthy replay may part a quarter of the elapsed steps earlier than the twins did."""
MULTIPLE = 3.0
"""Tolerance in largest deviations of four twins over twenty steps; chosen on the tuning split of the corpus."""
FEW_NUMBERS, FEW_TWINS = 3.0, 3.0
"""Growth of the multiple with 1 / sqrt(numbers) and 1 / twins."""
YOUNG = 0.6
LATE = 60.0
"""Steps after which the multiple has doubled: replays part for good, and which ones do is luck."""
IDENTICAL_REL = 5e-5
IDENTICAL_ABS = 1e-5
"""Tolerance where the twins were bit-identical in everything: rounding, amplified by a few updates (fp32 replays on one machine
part by 1e-7 at first)."""
GROWTH, STRICT_GROWTH = 0.25, 0.1
"""Growth of the catalogue's tolerances, and of the documented ones of bit-identical replays, a step: without twins it cannot be learned."""
NOT_POSITIVE = 50.0
"""Deviation in logarithms of a value that cannot have one."""


@dataclass(frozen=True)
class Pairing:
    """One seed's course and the tolerance around it; deviations are logarithmic where `log` says so."""

    seed: int
    expected: Floats
    """(steps, series); NaN where the seed has nothing."""
    log: Bools
    """(series,)"""
    tolerance: Floats
    """(steps, series) for a single step's deviation."""
    sustained: Mapping[int, Floats]
    """Window -> (steps, series) for the median deviation over that many steps."""
    strict: Floats
    """(steps, series) for a run that has shown itself bit-identical to the replayed one so far."""
    calibrated: bool
    """From twins; otherwise from the catalogue."""
    inexact: Bools
    """(series,): the twins differ here, so that a metric of class exact is none in this recipe (a reward model's score)."""


def learn_pairing(baseline: Baseline, seed: int) -> Pairing:
    """Course and tolerance for a replay of this seed."""
    expected, index = baseline.seeds[seed], baseline.index
    twins = _twins_of(baseline, seed)
    log = index.relative & _positive(expected) & _positive(twins)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        deviations = deviation(twins, expected, log)
        rounding = _rounding(index, expected, log, baseline.resolution)
        if len(twins) and _part(twins, expected, index):
            tolerance = _from_twins(deviations) + rounding
            sustained = {
                window: frozen(
                    np.fmax(_from_twins(medians(deviations, window), window) + rounding, LEAST[window] * tolerance)
                )
                for window in WINDOWS
            }
        else:
            tolerance = _without_twins(index, expected, log, identical=bool(len(twins))) + rounding
            sustained = {window: frozen(0.7 * tolerance) for window in WINDOWS}
    return Pairing(
        seed=seed,
        expected=expected,
        log=frozen(log),
        tolerance=frozen(tolerance),
        sustained=sustained,
        strict=frozen(_without_twins(index, expected, log, identical=True) + rounding),
        calibrated=bool(len(twins)),
        inexact=frozen(_inexact(twins, expected)),
    )


def deviation(values: Floats, expected: Floats, log: Bools) -> Floats:
    """Signed distance from the expected values, in logarithms where `log` says so."""
    safe = np.where(log & (values > 0) & (expected > 0), values / np.where(expected > 0, expected, 1.0), 1.0)
    ratio = np.where(values > 0, np.log(safe), np.where(np.isfinite(values), -NOT_POSITIVE, np.nan))
    return np.asarray(
        np.where(log, np.where(np.isfinite(expected), ratio, np.nan), values - expected), dtype=np.float64
    )


def medians(deviations: Floats, window: int) -> Floats:
    """Median over the last `window` steps, shape (..., steps, series); NaN before there are that many."""
    out = np.full(deviations.shape, np.nan)
    for place in range(window - 1, deviations.shape[-2]):
        out[..., place, :] = np.median(deviations[..., place - window + 1 : place + 1, :], axis=-2)
    return out


def _positive(values: Floats) -> Bools:
    flat = values.reshape(-1, values.shape[-1])
    return np.asarray(np.all((flat > 0) | ~np.isfinite(flat), axis=0), dtype=np.bool_)


def _rounding(index: SeriesIndex, expected: Floats, log: Bools, resolution: float) -> Floats:
    base = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    shown = np.where(log, resolution / np.where(base > 0, base, 1.0), resolution)
    absolute = ROUNDING * np.maximum(base, index.natural) + index.floor
    return np.asarray(np.where(log, ROUNDING, absolute) + shown, dtype=np.float64)


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
    return float(np.mean(np.abs(one - other)[both] > EQUAL * np.abs(other)[both]))


def _part(twins: Floats, expected: Floats, index: SeriesIndex) -> bool:
    """Whether any twin differs from the seed at all: bit-identical twins tell of no scale."""
    apart = np.abs(twins - expected)[:, :, index.paired]
    return bool((apart[np.isfinite(apart)] > 0).any())


def _inexact(twins: Floats, expected: Floats) -> Bools:
    """Series in which twins differ from the seed at most of the steps by more than the order of a sum."""
    both = np.isfinite(twins) & np.isfinite(expected)
    apart = both & (np.abs(twins - expected) > EQUAL * np.abs(expected))
    return np.asarray(apart.sum(axis=(0, 1)) * 2 > both.sum(axis=(0, 1)), dtype=np.bool_)


def _without_twins(index: SeriesIndex, expected: Floats, log: Bools, *, identical: bool) -> Floats:
    base = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    if identical:
        absolute = np.where(log, IDENTICAL_REL, IDENTICAL_REL * base + IDENTICAL_ABS * index.natural)
    else:
        absolute = np.where(log, index.rel + index.abs / np.where(base > 0, base, 1.0), index.abs + index.rel * base)
    growth = STRICT_GROWTH if identical else GROWTH
    return np.asarray(absolute * (1.0 + growth * np.arange(len(base)))[:, None], dtype=np.float64)


def _from_twins(deviations: Floats, window: int = 1) -> Floats:
    """Tolerance (steps, series) from signed deviations (twins, steps, series); of medians, they tell a window's share of numbers."""
    twins, steps, series = deviations.shape
    size = np.abs(deviations)
    out = np.zeros((steps, series))
    for place in range(steps):
        first, last = max(0, place - BACK), min(steps, place + 2 + (place > 0) + place // AHEAD)
        part = size[:, first:last].reshape(-1, series)
        worst = np.nan_to_num(np.nanmax(part, axis=0), nan=0.0)
        out[place] = _multiple(len(part) / window, twins) * _age(place) * worst
    return out


def _age(place: int) -> float:
    """Factor for how long the replay has gone on: noise grows fastest right after the first updates, and parts for good late."""
    young = YOUNG / place if place else 0.0
    return 1.0 + young + place / LATE


def _multiple(numbers: float, twins: int) -> float:
    full = (1 + FEW_NUMBERS / np.sqrt(80)) * (1 + FEW_TWINS / 4)
    return float(MULTIPLE * (1 + FEW_NUMBERS / np.sqrt(max(numbers, 1.0))) * (1 + FEW_TWINS / twins) / full)
