# SPDX-License-Identifier: Apache-2.0
"""Bands for free runs: where the seeds of a recipe go, and how far they scatter.

Positive metrics of class close and scale, and those that the catalogue calls so, are judged in logarithms. Per step: the centre is the
seeds' median, smoothed over 5 steps; one standard deviation is the root mean square distance of the seeds from it, pooled over seeds
and 10 steps to each side, with floors. How many of them a healthy run reaches is the catalogue's (`windows`). What a seed itself did
at any step in one or three steps is no alarm at another step.
One seed alone cannot show how seeds differ: its scale is widened by `LONE_FACTOR`, and findings say so.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from sentinel.core.catalogue import FREE_WINDOWS
from sentinel.core.compare.betting import Bets, learn_bets, steps_learned
from sentinel.core.compare.learn import EQUAL, Baseline
from sentinel.core.compare.progress import trending
from sentinel.core.compare.replayed import pooled
from sentinel.core.compare.windows import clamped
from sentinel.core.frames import Bools, Floats, Integers, SeriesIndex, frozen
from sentinel.core.window import median

SMOOTH = 2
"""Steps to each side over which the centre is smoothed (5 in all); `LONE_SMOOTH` for a single seed."""
LONE_SMOOTH = 5
POOL = 10
"""Steps to each side over which the scale is pooled."""
LONE_FACTOR = 2.5
"""Widening with one seed: two identical runs differ by 4 % in reward (verl issue 626), more than one run's own scatter tells."""
LONE_REL = 0.02
"""Scale of a single seed, at least, as a share of the centre."""
FLOOR = 1e-4
"""Scale, at least, as a share of the centre (in logarithms: absolute)."""
OFTEN_CENTRAL = 0.3
"""Share of cells that sit on the centre exactly, from which a step's scatter is luck: the whole run's stands for it."""
WHOLE = 0.3
"""Scale, at least, as a share of the whole run's; all of it for metrics that few tokens decide."""
SEEN = 1.1
"""Margin over what a seed itself did."""
SEEN_WINDOWS = 2
"""Windows, shortest first, over which what a seed did counts at every step."""
YOUNG = 0.5
"""Widening at the first step, less 1, falling with 1 / step: the seeds' first steps are few numbers."""
SCORE, PROMPT = "score", "prompt"
LEEWAY, ODDS = 1.0, 1e5
"""Of the bets that are laid on all metrics together (`betting`): multiple of the seeds' own offsets, and odds that are an alarm."""
GAP, GAP_LEEWAY, GAP_LEAST = "gap", 2.0, 1.2
"""The same for how far rollout engine and trainer are apart: what the engine rounds off is each run's own for long, and five seeds
do not show how much it varies (13 false alarms in one group of the `fresh` split)."""
BOUND_CELLS = 20
"""Numbers that must agree before a bound is believed."""


@dataclass(frozen=True)
class FreeBands:
    """What a free run of the recipe looks like; rows are the baseline's series."""

    log: Bools
    """Judged in logarithms."""
    centre: Floats
    """(steps, series), transformed."""
    scale: Floats
    """(steps, series), transformed; positive."""
    limits: Floats
    """(windows, series)"""
    seen: Floats
    """(windows, series): largest median distance from the centre that a seed itself shows at any step; 0 for long windows."""
    bound: Floats
    """(series,): best score that every seed shows at every step, which no healthy run exceeds; NaN: none."""
    fixed: Bools
    """(series,): about the prompts, and equal in all seeds (two at least) at every step: the data order is the recipe's."""
    seeds: int
    bets: Bets | None
    trending: Integers
    """Rows that tell how far a run has come."""


def learn_bands(baseline: Baseline) -> FreeBands:
    """Bands from the seeds (twins are the seed they repeat, and add nothing here)."""
    index = baseline.index
    gap = np.fromiter((entry.group == GAP for entry in index.entries), dtype=np.bool_, count=len(index))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        log = _positive(baseline.seeds) & index.log
        seeds = clamped(baseline.seeds, index, log)
        centre = _centre(seeds)
        apart = seeds - centre
        scale = _scale(apart, centre, index, log)
        seen = _seen(np.abs(apart))
        healthy = _each_beside_the_others(seeds, scale)
    return FreeBands(
        log=frozen(log),
        centre=frozen(centre),
        scale=frozen(scale),
        limits=frozen(index.free.copy()),
        seen=frozen(SEEN * seen),
        bound=frozen(_bound(baseline)),
        fixed=frozen(_fixed(baseline)),
        seeds=len(seeds),
        bets=learn_bets(
            healthy,
            index.banded,
            leeway=np.where(gap, GAP_LEEWAY, LEEWAY),
            least=np.where(gap, GAP_LEAST, 0.0),
            odds=ODDS,
        ),
        trending=trending(centre, scale, index.banded),
    )


def _each_beside_the_others(seeds: Floats, scale: Floats) -> Floats:
    """Each seed's deviation from the centre of the other ones, as a new run's from all of them; shape (seeds, steps, series)."""
    steps = steps_learned(len(seeds), seeds.shape[-1])
    seeds, scale = seeds[:, :steps], scale[:steps]
    if len(seeds) == 1:
        return np.zeros((0, *scale.shape))
    others = [np.delete(seeds, place, axis=0) for place in range(len(seeds))]
    return np.array([(seed - _centre(rest)) / scale for seed, rest in zip(seeds, others, strict=True)])


def _bound(baseline: Baseline) -> Floats:
    """Highest scores that are one number in all seeds and steps: the rule's own bound."""
    index = baseline.index
    cells = baseline.seeds.reshape(-1, len(index))
    seen = np.isfinite(cells)
    high = np.where(seen, cells, -np.inf).max(axis=0)
    low = np.where(seen, cells, np.inf).min(axis=0)
    pairs = zip(index.keys, index.entries, strict=True)
    top = np.array([entry.group == SCORE and key.endswith("/max") for key, entry in pairs], dtype=np.bool_)
    return np.where(top & (high == low) & (seen.sum(axis=0) >= BOUND_CELLS), high, np.nan)


def _fixed(baseline: Baseline) -> Bools:
    index, seeds = baseline.index, baseline.seeds
    prompts = np.array([entry.group == PROMPT for entry in index.entries], dtype=np.bool_)
    if len(seeds) < 2:
        return np.zeros(len(index), dtype=np.bool_)
    seen = np.isfinite(seeds)
    spread = np.where(seen, seeds, -np.inf).max(axis=0) - np.where(seen, seeds, np.inf).min(axis=0)
    apart = spread > EQUAL * np.maximum(np.abs(np.nan_to_num(seeds[0])), EQUAL)
    return np.asarray(prompts & ~apart.any(axis=0) & seen.any(axis=(0, 1)), dtype=np.bool_)


def _positive(seeds: Floats) -> Bools:
    flat = seeds.reshape(-1, seeds.shape[-1])
    return np.asarray(np.all((flat >= 0) | ~np.isfinite(flat), axis=0), dtype=np.bool_)


def _windows(course: Floats, reach: int) -> Floats:
    """Each step with `reach` steps to both sides, shape (steps, 2 reach + 1, series).

    Near the ends the window shrinks to both sides alike, so that a trend does not pull its middle away.
    """
    steps, series = course.shape
    padded = np.full((steps + 2 * reach, series), np.nan)
    padded[reach : reach + steps] = course
    view = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1, axis=0).transpose(0, 2, 1)
    place = np.arange(steps)
    room = np.minimum(place, steps - 1 - place)[:, None]
    inside = np.abs(np.arange(-reach, reach + 1))[None, :] <= room
    return np.where(inside[:, :, None], view, np.nan)


def _centre(seeds: Floats) -> Floats:
    """Median of the seeds, smoothed; steps without data take the nearest earlier one."""
    lone = len(seeds) == 1
    middle = median(seeds, axis=0)
    smooth = np.nanmean(_windows(middle, LONE_SMOOTH if lone else SMOOTH), axis=1)
    return _filled(np.where(np.isfinite(smooth), smooth, middle))


def _filled(course: Floats) -> Floats:
    """NaN replaced by the last value before; leading ones stay."""
    out = course.copy()
    for place in range(1, len(out)):
        missing = ~np.isfinite(out[place])
        out[place, missing] = out[place - 1, missing]
    return out


def _scale(apart: Floats, centre: Floats, index: SeriesIndex, log: Bools) -> Floats:
    lone = len(apart) == 1
    # The median of few seeds sits on the data, and a new run scatters as one more seed does.
    wider = LONE_FACTOR if lone else float(np.sqrt(1.0 + 1.0 / len(apart)))
    power = np.nanmean(apart**2, axis=0)
    local, whole = np.sqrt(pooled(power, POOL)), np.sqrt(np.nanmean(power, axis=0))
    central = (np.abs(apart) < 1e-12).mean(axis=(0, 1)) > OFTEN_CENTRAL
    least = np.where(central | (index.free[0] == 0), whole, WHOLE * whole)
    magnitude = np.where(log, 1.0, np.maximum(np.abs(np.nan_to_num(centre)), 1e-2 * index.natural))
    floor = (LONE_REL if lone else FLOOR) * magnitude + index.floor
    young = 1.0 + YOUNG / (1.0 + np.arange(len(centre)))[:, None]
    scale = wider * young * np.fmax(np.nan_to_num(local), np.nan_to_num(least))
    return np.asarray(np.maximum(np.maximum(scale, floor), np.finfo(np.float64).tiny * 1e10), dtype=np.float64)


def _seen(size: Floats) -> Floats:
    """Largest lower median over short windows that a seed shows, shape (windows, series)."""
    clean = np.nan_to_num(size)
    out = np.zeros((len(FREE_WINDOWS), size.shape[-1]))
    for place, window in enumerate(FREE_WINDOWS[:SEEN_WINDOWS]):
        if clean.shape[1] >= window:
            view = np.lib.stride_tricks.sliding_window_view(clean, window, axis=1)
            out[place] = np.sort(view, axis=-1)[..., (window - 1) // 2].max(axis=(0, 1))
    return out
