# SPDX-License-Identifier: Apache-2.0
"""Step-by-step comparison with the run that is replayed, in standard deviations of what clean repeats of it show.

With twins one standard deviation at a step is the root mean square difference between any two of the run and its twins, pooled over
5 steps to each side. It is never below a floor (numbers that happen to agree are no measure), widened where the twins are few, and a
little with time, for replays part for good and the twins are only some of the ways. How many of them a healthy replay reaches is the
catalogue's (`windows`). Without twins the noise that clean replays of the corpus had stands in, where it was measured, and the
catalogue's tolerance elsewhere.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from sentinel.core.compare.betting import Bets, learn_bets
from sentinel.core.compare.learn import EQUAL, Baseline
from sentinel.core.compare.windows import clamped
from sentinel.core.frames import Bools, Floats, SeriesIndex, frozen

ULP = 2.0**-23
"""Relative spacing of float32."""
ROUNDING = 8 * ULP
"""Differences up to here are the order of a sum: 8 units in the last place."""
POOL = 5
"""Steps to each side over which differences are pooled."""
FLOOR = 1e-4
"""Smallest standard deviation, in shares of the value: what another device changes in bf16 training."""
TIGHT = 100.0
"""Where the twins agree better, the floor is so many times their typical difference (fp32 on one machine parts by 1e-7)."""
LEAST_FLOOR = 3e-6
OFTEN_EQUAL = 0.3
"""Share of exact agreement from which a step's difference is luck: the whole run's stands for it."""
WHOLE = 0.1
"""Standard deviation, at least, as a share of the whole run's; all of it for metrics that few tokens decide."""
ENOUGH = 4
"""Twins from which on nothing is widened."""
FEW = 2.0
"""Widening with a single twin, less 1."""
REPEATED = 0.01
"""Share of the spread of run and twins up to which two of them are the same again."""
AGE = 200.0
"""Steps after which a standard deviation counts double."""
YOUNG = 0.8
"""Widening at the first step, less 1, falling with 1 / step: twins that share a kernel are identical there, and noise grows fastest."""
NOISE_STEPS = (2.0, 65.0)
"""Steps at which the catalogue states the noise of clean replays; between them it grows evenly, and so beyond."""
LONE = 1.35
"""Widening of measured noise that is not this recipe's own, and for a baseline that is itself the odd one out."""
IDENTICAL_REL = 5e-5
IDENTICAL_ABS = 1e-5
"""Tolerance where the twins were bit-identical in everything: rounding, amplified by a few updates (fp32 replays on one machine
part by 1e-7 at first)."""
GROWTH, STRICT_GROWTH = 0.25, 0.1
"""Growth of the catalogue's tolerances, and of the documented ones of bit-identical replays, a step: without twins it cannot be learned."""
LEAST_NOISE = 0.05
"""Measured noise, at least, as a share of the catalogue's tolerance: what is 0 but for rounding in one recipe need not be in another."""
NOTHING = 1e-12
"""What a setting of 0 may be off."""
LEEWAY, ODDS = 2.0, 1e9
"""Of the bets that are laid on all metrics together (`betting`): multiple of the twins' own offsets, and odds that are an alarm. Replays
part for good, each in its own way, so both are wider than in free runs."""
FLAT, FLAT_HEAVY = (1.0, 0.7, 0.7, 0.7), (0.0, 0.0, 1.5, 1.0)
"""Limits over the windows where a stated tolerance is the unit."""


@dataclass(frozen=True)
class Pairing:
    """One seed's course, what one standard deviation around it is, and how many are too many."""

    seed: int
    expected: Floats
    """(steps, series); NaN where the seed has nothing."""
    log: Bools
    """(series,): deviations are logarithmic."""
    unit: Floats
    """(steps, series): one standard deviation of a clean repeat, or the stated tolerance where `limits` is `FLAT`."""
    limits: Floats
    """(windows, series)"""
    strict: Floats
    """(steps, series): tolerance for a run that has shown itself bit-identical to the replayed one so far."""
    widened: float
    """Factor in `unit` for few twins: caution about an alarm, none about which metrics moved."""
    calibrated: bool
    """From twins; otherwise from the catalogue."""
    bets: Bets | None
    inexact: Bools
    """(series,): the twins differ here, so that a metric of class exact is none in this recipe (a reward model's score)."""


def learn_pairing(baseline: Baseline, seed: int) -> Pairing:
    """Course and scale for a replay of this seed."""
    expected, index = baseline.seeds[seed], baseline.index
    twins = _twins_of(baseline, seed)
    log = index.log & _positive(expected) & _positive(twins)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        rounding = _rounding(index, expected, log, baseline.resolution)
        if len(twins) and _part(twins, expected, index):
            unit, limits = _from_twins(twins, expected, index, log), index.replay
        else:
            unit, limits = _without_twins(index, expected, log, identical=bool(len(twins)))
        least = np.where(limits > 0, limits, np.inf).min(axis=0)
        unit = np.fmax(unit, rounding / least)
        unit, limits = _settings(index, expected, baseline.resolution, unit, limits)
        strict = _tolerance(index, expected, log, identical=True) + rounding
    return Pairing(
        seed=seed,
        expected=expected,
        log=frozen(log),
        unit=frozen(unit),
        limits=frozen(limits.copy()),
        strict=frozen(strict),
        widened=float(few(np.array(len(twins)))) if len(twins) else 1.0,
        calibrated=bool(len(twins)),
        bets=_bets(twins, expected, unit, log, index),
        inexact=frozen(_inexact(twins, expected)),
    )


def _bets(twins: Floats, expected: Floats, unit: Floats, log: Bools, index: SeriesIndex) -> Bets | None:
    """What the twins' own deviations say of bets; None where they are too few, or all the same run."""
    if not len(twins) or not _part(twins, expected, index):
        return None
    healthy = deviation(twins, expected, index, log) / unit
    return learn_bets(
        healthy, index.paired & ~index.control & ~(index.exact & ~_inexact(twins, expected)), leeway=LEEWAY, odds=ODDS
    )


def _settings(
    index: SeriesIndex, expected: Floats, resolution: float, unit: Floats, limits: Floats
) -> tuple[Floats, Floats]:
    """The same, with settings held to their schedule whatever the twins did."""
    exact = np.maximum(index.rel, EQUAL) * np.abs(np.nan_to_num(expected)) + resolution + NOTHING
    flat = np.array(FLAT)[:, None]
    return np.where(index.control, exact, unit), np.where(index.control[None], flat, limits)


def deviation(values: Floats, expected: Floats, index: SeriesIndex, log: Bools) -> Floats:
    """Signed distance from the expected values, in logarithms where `log` says so."""
    return np.asarray(clamped(values, index, log) - clamped(expected, index, log), dtype=np.float64)


def _positive(values: Floats) -> Bools:
    flat = values.reshape(-1, values.shape[-1])
    return np.asarray(np.all((flat >= 0) | ~np.isfinite(flat), axis=0), dtype=np.bool_)


def _rounding(index: SeriesIndex, expected: Floats, log: Bools, resolution: float) -> Floats:
    """What is below every tolerance: the order of a sum, one token's share, the digits of the file."""
    base = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    shown_digits = np.where(log, resolution / np.where(base > 0, base, 1.0), resolution)
    absolute = ROUNDING * np.maximum(base, index.natural) + index.floor
    return np.asarray(np.where(log, ROUNDING, absolute) + shown_digits, dtype=np.float64)


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


def _from_twins(twins: Floats, expected: Floats, index: SeriesIndex, log: Bools) -> Floats:
    """One standard deviation (steps, series) from the differences among the run and its twins."""
    members = clamped(np.concatenate([expected[None], twins]), index, log)
    power = 2.0 * np.nanvar(members, axis=0, ddof=1)
    local, whole = np.sqrt(pooled(power, POOL)), np.sqrt(np.nanmean(power, axis=0))
    both = np.isfinite(members[1:]) & np.isfinite(members[:1])
    equal = (both & (members[1:] == members[:1])).sum(axis=(0, 1)) > OFTEN_EQUAL * both.sum(axis=(0, 1))
    least = np.where(equal | (index.replay[0] == 0), whole, WHOLE * whole)
    scale = np.fmax(np.fmax(local, least), _floor(index, expected, log, whole))
    place = np.arange(len(expected))[:, None]
    return np.asarray(
        few(_distinct(members) - 1) * (1.0 + YOUNG / (1.0 + place) + place / AGE) * scale, dtype=np.float64
    )


def _distinct(members: Floats) -> Floats:
    """How many of the runs differ from each other, at most of the steps, by a share of their spread that is worth mention; shape (series,).

    Twins on one split of the batch, or on one kernel, repeat each other: they are one way in which replays part, not several.
    """
    ordered = np.sort(members, axis=0)
    spread = ordered[-1] - ordered[0]
    told = (np.diff(ordered, axis=0) > REPEATED * spread).sum(axis=0)
    counted = np.where(np.isfinite(spread) & (spread > 0), told, np.nan)
    return np.asarray(np.nan_to_num(np.nanmedian(counted, axis=0), nan=len(members) - 1.0) + 1.0, dtype=np.float64)


def _floor(index: SeriesIndex, expected: Floats, log: Bools, whole: Floats) -> Floats:
    base = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    size = np.where(log, 1.0, np.maximum(base.mean(axis=0), 1e-2 * index.natural))
    typical = np.nanmedian((whole / size)[index.paired]) if index.paired.any() else np.nan
    share = float(np.clip(TIGHT * np.nan_to_num(typical, nan=1.0), LEAST_FLOOR, FLOOR))
    return share * np.where(log, 1.0, np.maximum(base, 1e-2 * index.natural))


def few(twins: Floats) -> Floats:
    """Widening with few twins: one shows a third of how replays part."""
    missing = np.clip(ENOUGH - twins, 0, ENOUGH - 1) / (ENOUGH - 1)
    return np.asarray(1.0 + FEW * missing**1.4, dtype=np.float64)


def pooled(power: Floats, reach: int) -> Floats:
    """Mean over so many steps to each side, shape (steps, series); NaN is left out."""
    seen = np.isfinite(power)
    sums = np.cumsum(np.concatenate([np.zeros((1, power.shape[1])), np.where(seen, power, 0.0)]), axis=0)
    counts = np.cumsum(np.concatenate([np.zeros((1, power.shape[1])), seen]), axis=0)
    place = np.arange(len(power))
    first, last = np.maximum(place - reach, 0), np.minimum(place + reach + 1, len(power))
    count = counts[last] - counts[first]
    return np.where(count > 0, np.maximum(sums[last] - sums[first], 0.0) / np.maximum(count, 1), np.nan)


def _without_twins(index: SeriesIndex, expected: Floats, log: Bools, *, identical: bool) -> tuple[Floats, Floats]:
    """Unit and limits where there are no twins, or only bit-identical ones."""
    flat = np.where(index.heavy[None], np.array(FLAT_HEAVY)[:, None], np.array(FLAT)[:, None])
    tolerance = _tolerance(index, expected, log, identical=identical)
    if identical:
        return tolerance, flat
    measured = np.isfinite(index.noise).all(axis=0)
    steps = (np.arange(len(expected)) + 1.0)[:, None]
    early, late = index.noise
    first, second = NOISE_STEPS
    # Noise that was stated for ratios is one of levels here where the metric is not positive.
    size = np.where(log | ~index.log, 1.0, np.where(np.isfinite(expected), np.abs(expected), 0.0) + index.abs)
    noise = size * (early + np.maximum(0.0, steps - first) * (late - early) / (second - first))
    noise = LONE * np.fmax(noise, LEAST_NOISE * tolerance / (1.0 + GROWTH * (steps - 1.0)))
    return np.where(measured, noise, tolerance), np.where(measured, index.replay, flat)


def _tolerance(index: SeriesIndex, expected: Floats, log: Bools, *, identical: bool) -> Floats:
    base = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    if identical:
        absolute = np.where(log, IDENTICAL_REL, IDENTICAL_REL * base + IDENTICAL_ABS * index.natural)
    else:
        absolute = np.where(log, index.rel + index.abs / np.where(base > 0, base, 1.0), index.abs + index.rel * base)
    growth = STRICT_GROWTH if identical else GROWTH
    return np.asarray(absolute * (1.0 + growth * np.arange(len(base)))[:, None], dtype=np.float64)
