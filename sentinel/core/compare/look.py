# SPDX-License-Identifier: Apache-2.0
"""One step beside what the baseline expects of it: what detectors look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sentinel.core.compare.betting import Bets
from sentinel.core.compare.free import FreeBands
from sentinel.core.compare.learn import EQUAL, Baseline
from sentinel.core.compare.progress import Course, lag
from sentinel.core.compare.replayed import Pairing, deviation
from sentinel.core.compare.windows import clamped, shown
from sentinel.core.frames import Bools, Floats, SeriesFrame
from sentinel.core.window import Past

BEYOND = 1e-3
"""Share by which a score must exceed the rule's bound."""
PAST_BOUND = 2.0
"""Ratio of a score beyond the rule's bound."""
MOVED = 5.0
"""Standard deviations from which localisation says that a metric moved."""


@dataclass(frozen=True)
class Look:
    """Arrays have one row a series of the frame's index; NaN where the baseline says nothing."""

    frame: SeriesFrame
    past: Past
    """Steps judged before this one."""
    regime: str
    """replayed, free, alone, unknown."""
    baseline: Baseline | None
    expected: Floats
    """The replayed run's value, or the centre of the seeds."""
    low: Floats
    high: Floats
    """Edges of what is expected; infinite where open."""
    ratio: Floats
    """Deviation of this step in its tolerances; 1 is the border. NaN where nothing is expected."""
    measured: Floats
    """How far the metric moved, 1 at `MOVED` standard deviations, also where it is no evidence for a finding (`without`)."""
    standard: Floats
    """Deviation in standard deviations of healthy runs, signed; what windows are taken over."""
    limits: Floats
    """(windows, series): what the median of `standard` may be over the windows of the regime; 0: no evidence."""
    bands: FreeBands | None
    stake: Floats
    """What is bet on: `standard` before any stricter measure was put in its place."""
    bets: Bets | None
    """What bets pay in healthy runs; None where too few of them are known."""
    deviation: Floats
    """Replayed regime: signed distance from the replayed run, in logarithms where the pairing says so."""
    strict: Floats
    """Replayed regime: what `deviation` may be in a run that was bit-identical to the replayed one so far."""
    different: Bools
    """Rows that must be equal and are not: class exact under replay, fixed prompts in a free run."""
    calibrated: bool = False
    """Replayed regime: tolerances come from twins."""
    lag: int = 0
    """Free regime: steps by which the run is behind the seeds in all that trends (ahead: negative); it is judged by both then."""


def blank(frame: SeriesFrame, past: Past, regime: str, baseline: Baseline | None) -> Look:
    """A look at a step of which the baseline says nothing."""
    rows = len(frame.values)
    nothing = np.full(rows, np.nan)
    return Look(
        frame=frame,
        past=past,
        regime=regime,
        baseline=baseline,
        expected=nothing,
        low=np.full(rows, -np.inf),
        high=np.full(rows, np.inf),
        ratio=nothing,
        measured=nothing,
        standard=nothing,
        limits=np.zeros((0, rows)),
        bands=None,
        stake=nothing,
        bets=None,
        deviation=nothing,
        strict=nothing,
        different=np.zeros(rows, dtype=np.bool_),
    )


def replayed_look(frame: SeriesFrame, past: Past, baseline: Baseline, pairing: Pairing) -> Look:
    """Pair the step with the same step of the run that is replayed."""
    bare = blank(frame, past, "replayed", baseline)
    place = baseline.line.get(frame.step)
    if place is None:
        return bare
    rows = len(frame.values)
    index = frame.index
    expected, unit = _wide(pairing.expected[place], rows), _wide(pairing.unit[place], rows)
    limits, log = _lines(pairing.limits, rows), _flags(pairing.log, rows)
    equal = EQUAL * np.maximum(np.abs(expected), EQUAL) + baseline.resolution
    strict = index.exact & ~_flags(pairing.inexact, rows)
    log &= ~strict
    apart = deviation(frame.values, expected, index, log)
    limit = np.where(strict, equal, unit * shown(limits))
    judged = (index.paired | index.exact) & np.isfinite(apart)
    ratio = np.where(judged, np.abs(apart) / limit, np.nan)
    standard = np.where(judged & ~strict, apart / unit, np.nan)
    return replace(
        bare,
        expected=expected,
        low=np.where(judged, np.where(log, expected * np.exp(-limit), expected - limit), -np.inf),
        high=np.where(judged, np.where(log, expected * np.exp(np.minimum(limit, 600.0)), expected + limit), np.inf),
        ratio=ratio,
        measured=np.where(strict, ratio, _moved(pairing.widened * standard, limits)),
        standard=standard,
        limits=limits,
        stake=standard,
        bets=pairing.bets,
        deviation=np.where(judged, apart, np.nan),
        strict=_wide(pairing.strict[place], rows),
        different=index.exact & judged & (ratio > 1.0),
        calibrated=pairing.calibrated,
    )


def _moved(standard: Floats, limits: Floats) -> Floats:
    """How far metrics moved, 1 at `MOVED` standard deviations; a stated tolerance (limit 1) is such a measure already."""
    return np.abs(standard) / np.where(limits[0] == 1.0, 1.0, MOVED)


def _flags(column: Bools, rows: int) -> Bools:
    """Flags of the baseline's series, false for series that it does not have."""
    out = np.zeros(rows, dtype=np.bool_)
    out[: len(column)] = column
    return out


def free_look(frame: SeriesFrame, past: Past, baseline: Baseline, bands: FreeBands, lagged: int = 0) -> Look:
    """Compare the step with the band of the seeds; `lagged`: the lag at the step before."""
    bare = blank(frame, past, "free", baseline)
    place = baseline.line.get(frame.step)
    if place is None:
        return bare
    rows = len(frame.values)
    log = _flags(bands.log, rows)
    centre, scale = _wide(bands.centre[place], rows), _wide(bands.scale[place], rows)
    limits = _lines(bands.limits, rows)
    limits = np.where(limits > 0, np.fmax(limits, _lines(bands.seen, rows) / scale), limits)
    reach = shown(limits) * scale
    judged = frame.index.banded & np.isfinite(centre)
    here = clamped(frame.values, frame.index, log)
    standard = np.where(judged, (here - centre) / scale, np.nan)
    low, high = centre - reach, centre + reach
    behind = lag(frame, past, place, Course(bands.trending, bands.centre, bands.scale, log), lagged)
    if behind:
        then, wide = _wide(bands.centre[place - behind], rows), _wide(bands.scale[place - behind], rows)
        standard = _nearer(standard, np.where(judged, (here - then) / wide, np.nan))
        low, high = np.fmin(low, then - shown(limits) * wide), np.fmax(high, then + shown(limits) * wide)
    ratio = np.abs(standard) / shown(limits)
    bound = _wide(bands.bound, rows)
    beyond = np.isfinite(bound) & (frame.values > bound + BEYOND * np.maximum(np.abs(bound), 1.0))
    return replace(
        bare,
        expected=_back(centre, log),
        low=np.where(judged & frame.index.down, _back(low, log), -np.inf),
        high=np.where(judged & frame.index.up, _back(high, log), np.inf),
        ratio=np.where(beyond, np.fmax(ratio, PAST_BOUND), ratio),
        measured=np.where(beyond, PAST_BOUND, _moved(standard, limits)),
        standard=standard,
        limits=limits,
        bands=bands,
        stake=standard,
        bets=bands.bets,
        different=_other_prompts(frame, baseline, bands, place),
        lag=behind,
    )


def _nearer(by_step: Floats, by_progress: Floats) -> Floats:
    """The smaller of two signed deviations; 0 for what lies between the two courses."""
    smaller = np.where(np.abs(by_progress) < np.abs(by_step), by_progress, by_step)
    return np.asarray(np.where(by_step * by_progress < 0, 0.0, smaller), dtype=np.float64)


def _other_prompts(frame: SeriesFrame, baseline: Baseline, bands: FreeBands, place: int) -> Bools:
    """Prompts that are not the recipe's at a step where all seeds have the same ones."""
    rows = len(frame.values)
    expected = _wide(baseline.seeds[0, place], rows)
    margin = EQUAL * np.maximum(np.abs(expected), EQUAL) + baseline.resolution
    return _flags(bands.fixed, rows) & (np.abs(frame.values - expected) > margin)


def _lines(limits: Floats, rows: int) -> Floats:
    """Limits of the baseline's series, 0 for series that it does not have."""
    if limits.shape[1] == rows:
        return limits
    out = np.zeros((len(limits), rows))
    out[:, : limits.shape[1]] = limits
    return out


def _wide(column: Floats, rows: int) -> Floats:
    """A column of the baseline with NaN for series that the baseline does not have."""
    if len(column) == rows:
        return column
    out = np.full(rows, np.nan)
    out[: len(column)] = column
    return out


def _back(values: Floats, log: Bools) -> Floats:
    return np.asarray(np.where(log, np.exp(np.clip(values, -700.0, 700.0)), values), dtype=np.float64)


def without(look: Look, rows: Bools) -> Look:
    """The look with nothing to say about some rows: their comparison is no evidence at this step."""
    return replace(
        look,
        ratio=np.where(rows, np.nan, look.ratio),
        standard=np.where(rows, np.nan, look.standard),
        stake=np.where(rows, np.nan, look.stake),
        deviation=np.where(rows, np.nan, look.deviation),
    )


def unbet(look: Look, keys: Sequence[str]) -> Look:
    """The look without bets on some series: this run is known to compute them otherwise."""
    rows = [look.frame.index.rows[key] for key in keys if key in look.frame.index.rows]
    stake = look.stake.copy()
    stake[rows] = np.nan
    return replace(look, stake=stake)
