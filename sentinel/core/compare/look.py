# SPDX-License-Identifier: Apache-2.0
"""One step beside what the baseline expects of it: what detectors look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sentinel.core.compare.free import FreeBands, transformed
from sentinel.core.compare.learn import EQUAL, Baseline
from sentinel.core.compare.replayed import Pairing, deviation
from sentinel.core.frames import Bools, Floats, SeriesFrame
from sentinel.core.window import Past

BEYOND = 1e-3
"""Share by which a score must exceed the rule's bound."""
PAST_BOUND = 2.0
"""Ratio of a score beyond the rule's bound."""


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
    """Deviation in tolerances; 1 is the border. NaN where nothing is expected."""
    measured: Floats
    """The same, also where it is no evidence for a finding (`without`): localisation wants to know what moved."""
    residual: Floats
    """Free regime: deviation in standard deviations, signed."""
    bands: FreeBands | None
    deviation: Floats
    """Replayed regime: signed distance from the replayed run, in logarithms where the pairing says so."""
    tolerance: Floats
    """Replayed regime: what `deviation` may be."""
    strict: Floats
    """Replayed regime: what `deviation` may be in a run that was bit-identical to the replayed one so far."""
    sustained: Mapping[int, Floats]
    """Replayed regime: window -> what the median of that many deviations may be."""
    different: Bools
    """Replayed regime: rows of class exact that are not equal."""
    calibrated: bool = False
    """Replayed regime: tolerances come from twins."""


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
        residual=nothing,
        bands=None,
        deviation=nothing,
        tolerance=nothing,
        strict=nothing,
        sustained={},
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
    expected, tolerance = _wide(pairing.expected[place], rows), _wide(pairing.tolerance[place], rows)
    log, inexact = _flags(pairing.log, rows), _flags(pairing.inexact, rows)
    equal = EQUAL * np.maximum(np.abs(expected), EQUAL) + baseline.resolution
    strict = index.exact & ~inexact
    log &= ~strict
    apart = deviation(frame.values, expected, log)
    limit = np.where(strict, equal, tolerance)
    judged = (index.paired | index.exact) & np.isfinite(apart)
    ratio = np.where(judged, np.abs(apart) / limit, np.nan)
    return replace(
        bare,
        expected=expected,
        low=np.where(judged, np.where(log, expected * np.exp(-limit), expected - limit), -np.inf),
        high=np.where(judged, np.where(log, expected * np.exp(limit), expected + limit), np.inf),
        ratio=ratio,
        measured=ratio,
        deviation=np.where(judged, apart, np.nan),
        tolerance=limit,
        strict=_wide(pairing.strict[place], rows),
        sustained={window: _wide(course[place], rows) for window, course in pairing.sustained.items()},
        different=index.exact & judged & (ratio > 1.0),
        calibrated=pairing.calibrated,
    )


def _flags(column: Bools, rows: int) -> Bools:
    """Flags of the baseline's series, false for series that it does not have."""
    out = np.zeros(rows, dtype=np.bool_)
    out[: len(column)] = column
    return out


def free_look(frame: SeriesFrame, past: Past, baseline: Baseline, bands: FreeBands) -> Look:
    """Compare the step with the band of the seeds."""
    bare = blank(frame, past, "free", baseline)
    place = baseline.line.get(frame.step)
    if place is None:
        return bare
    rows = len(frame.values)
    log = _flags(bands.log, rows)
    centre, scale = _wide(bands.centre[place], rows), _wide(bands.scale[place], rows)
    limit = _wide(bands.spike, rows) * scale
    judged = frame.index.banded & np.isfinite(centre)
    residual = np.where(judged, (transformed(frame.values, log) - centre) / scale, np.nan)
    low, high = centre - limit, centre + limit
    ratio = np.abs(residual) / _wide(bands.spike, rows)
    bound = _wide(bands.bound, rows)
    beyond = np.isfinite(bound) & (frame.values > bound + BEYOND * np.maximum(np.abs(bound), 1.0))
    ratio = np.where(beyond, np.fmax(ratio, PAST_BOUND), ratio)
    return replace(
        bare,
        expected=_back(centre, log),
        low=np.where(judged & frame.index.down, _back(low, log), -np.inf),
        high=np.where(judged & frame.index.up, _back(high, log), np.inf),
        ratio=ratio,
        measured=ratio,
        residual=residual,
        bands=bands,
    )


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
        residual=np.where(rows, np.nan, look.residual),
        deviation=np.where(rows, np.nan, look.deviation),
    )
