# SPDX-License-Identifier: Apache-2.0
"""Bands for free runs: where the seeds of a recipe go, how far they scatter, and how high quiet seeds score themselves.

Positive metrics of class close and scale are judged in logarithms. Per step: the centre is the seeds' median, smoothed over 5 steps;
the scale is a robust deviation pooled over seeds and +-10 steps, with floors. Residuals are whitened with one AR(1) coefficient a
series. Thresholds are what each seed scores against the others (leave one out), widened, and never below a nominal value.
One seed alone cannot show how seeds differ: its scale is widened by `LONE_FACTOR`, and findings say so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.compare.learn import Baseline
from sentinel.core.frames import Bools, Floats, SeriesIndex, frozen
from sentinel.core.window import MAD_TO_SIGMA, median

SMOOTH = 2
"""Steps to each side over which the centre is smoothed (5 in all); `LONE_SMOOTH` for a single seed."""
LONE_SMOOTH = 5
POOL = 10
POOL_STEP = 3
"""Steps to each side over which the scale is pooled."""
LONE_FACTOR = 2.5
"""Widening with one seed: two identical runs differ by 4 % in reward (verl issue 626), more than one run's own scatter tells."""
LONE_REL = 0.05
SPIKE = 6.0
"""Standard deviations of a spike, at least."""
CUSUM_SLACK = 0.5
"""Slack of the CUSUM in standard deviations."""
CUSUM_LIMIT = 13.0
"""Height of the CUSUM's limit, at least: for normal residuals one alarm in about a million series-steps."""
CUSUM_CLIP = 4.0
"""A single residual adds at most this much, so that one outlier is a spike and no drift."""
WIDER = 2.2
"""Thresholds stand this factor above the highest score of a seed against the others."""
BURSTY = 1.75
"""Widening for metrics that burst in healthy runs: 400 quiet steps do not show the largest burst."""
SCORE = "score"
BOUND_CELLS = 20
"""Numbers that must agree before a bound is believed."""
REL_FLOOR = 0.01
"""Scale, at least, as a share of the centre (in logarithms: absolute)."""


@dataclass(frozen=True)
class FreeBands:
    """What a free run of the recipe looks like; rows are the baseline's series."""

    log: Bools
    """Judged in logarithms."""
    centre: Floats
    """(steps, series), transformed."""
    scale: Floats
    """(steps, series), transformed; positive."""
    phi: Floats
    """(series,): AR(1) coefficient of the residuals."""
    spike: Floats
    """(series,): threshold of |residual / scale|."""
    cusum: Floats
    """(series,): threshold of the CUSUM."""
    bound: Floats
    """(series,): best score that every seed shows at every step, which no healthy run exceeds; NaN: none."""
    seeds: int


def learn_bands(baseline: Baseline) -> FreeBands:
    """Bands from the seeds (twins are the seed they repeat, and add nothing here)."""
    index = baseline.index
    with np.errstate(all="ignore"):
        log = _positive(baseline.seeds) & index.relative
        seeds = transformed(baseline.seeds, log)
        centre = _centre(seeds)
        scale = _scale(seeds, centre, index, log)
        phi = _phi(seeds - centre)
        spikes, sums = _quiet_scores(seeds, scale, phi)
    return FreeBands(
        log=frozen(log),
        centre=frozen(centre),
        scale=frozen(scale),
        phi=frozen(phi),
        spike=frozen(np.maximum(SPIKE, WIDER * spikes) * np.where(index.bursty, BURSTY, 1.0)),
        cusum=frozen(np.maximum(CUSUM_LIMIT, WIDER * sums) * np.where(index.bursty, BURSTY, 1.0)),
        bound=frozen(_bound(baseline)),
        seeds=len(seeds),
    )


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


def transformed(values: Floats, log: Bools) -> Floats:
    """Logarithms where the band is logarithmic; NaN for what is not positive there."""
    safe = np.where(log & (values > 0), values, 1.0)
    out = np.where(log, np.where(values > 0, np.log(safe), np.nan), values)
    return np.asarray(np.where(np.isfinite(values), out, np.nan), dtype=np.float64)


def _positive(seeds: Floats) -> Bools:
    flat = seeds.reshape(-1, seeds.shape[-1])
    return np.asarray(np.all((flat > 0) | ~np.isfinite(flat), axis=0), dtype=np.bool_)


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
    smooth = median(_windows(middle, LONE_SMOOTH if lone else SMOOTH), axis=1)
    return _filled(np.where(np.isfinite(smooth), smooth, middle))


def _filled(course: Floats) -> Floats:
    """NaN replaced by the last value before; leading ones stay."""
    out = course.copy()
    for place in range(1, len(out)):
        missing = ~np.isfinite(out[place])
        out[place, missing] = out[place - 1, missing]
    return out


def _scale(seeds: Floats, centre: Floats, index: SeriesIndex, log: Bools) -> Floats:
    lone = len(seeds) == 1
    residuals = np.abs(seeds - centre)
    local = MAD_TO_SIGMA * _pooled(residuals)
    whole = MAD_TO_SIGMA * median(residuals.reshape(-1, residuals.shape[-1]), axis=0)
    # The median of few seeds sits on the data: residuals around it are too small.
    few = LONE_FACTOR if lone else float(np.sqrt(len(seeds) / max(len(seeds) - 1, 1)))
    magnitude = np.where(log, 1.0, np.abs(np.nan_to_num(centre)))
    floor = np.where(log, REL_FLOOR, REL_FLOOR * magnitude + 0.25 * index.abs)
    if lone:
        floor = np.maximum(floor, LONE_REL * magnitude)
    scale = few * np.fmax(np.nan_to_num(local), 0.5 * np.nan_to_num(whole))
    return np.asarray(np.maximum(np.maximum(scale, floor), np.finfo(np.float64).tiny * 1e10), dtype=np.float64)


def _pooled(residuals: Floats) -> Floats:
    """Median over seeds and +-POOL steps, looked up at every POOL_STEP-th step and held in between."""
    places = np.arange(0, residuals.shape[1], POOL_STEP)
    windows = [residuals[:, max(0, place - POOL) : place + POOL + 1] for place in places]
    values = np.stack([median(window.reshape(-1, window.shape[-1]), axis=0) for window in windows])
    return np.asarray(np.repeat(values, POOL_STEP, axis=0)[: residuals.shape[1]], dtype=np.float64)


def _phi(residuals: Floats) -> Floats:
    clean = np.nan_to_num(residuals)
    now, before = clean[:, 1:], clean[:, :-1]
    power = (before**2).sum(axis=(0, 1))
    raw = np.nan_to_num((now * before).sum(axis=(0, 1)) / np.where(power > 0, power, 1.0))
    return np.asarray(np.clip(raw, 0.0, 0.9), dtype=np.float64)


def _quiet_scores(seeds: Floats, scale: Floats, phi: Floats) -> tuple[Floats, Floats]:
    """Highest spike score and CUSUM that a seed reaches against the others."""
    count, steps, series = seeds.shape
    spikes, sums = np.zeros(series), np.zeros(series)
    for out in range(count):
        # With one or two seeds a seed can only be held against the centre that it made itself.
        centre = _centre(np.delete(seeds, out, axis=0) if count > 2 else seeds)
        residuals = (seeds[out] - centre) / scale
        spikes = np.fmax(
            spikes, np.nan_to_num(np.nanmax(np.where(np.isfinite(residuals), np.abs(residuals), 0.0), axis=0))
        )
        high, low, before = np.zeros(series), np.zeros(series), np.full(series, np.nan)
        for place in range(steps):
            white = whitened(residuals[place], before, phi)
            high, low = cusum_step(high, low, white)
            sums = np.fmax(sums, np.fmax(high, low))
            before = residuals[place]
    return spikes, sums


def whitened(residual: Floats, before: Floats, phi: Floats) -> Floats:
    """Residual with its predictable part taken out, in its own standard deviations; the residual itself where there is no past."""
    known = np.isfinite(before)
    return np.asarray(
        np.where(known, (residual - phi * np.where(known, before, 0.0)) / np.sqrt(1.0 - phi**2), residual),
        dtype=np.float64,
    )


def cusum_step(high: Floats, low: Floats, white: Floats) -> tuple[Floats, Floats]:
    """One step of the two-sided CUSUM; an absent value leaves it as it is."""
    clipped = np.clip(np.where(np.isfinite(white), white, 0.0), -CUSUM_CLIP, CUSUM_CLIP)
    seen = np.isfinite(white)
    return (
        np.where(seen, np.maximum(0.0, high + clipped - CUSUM_SLACK), high),
        np.where(seen, np.maximum(0.0, low - clipped - CUSUM_SLACK), low),
    )
