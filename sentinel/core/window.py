# SPDX-License-Identifier: Apache-2.0
"""The recent past of all series, and robust statistics over it that survive NaN.

A past is a tuple of frozen rows, one a step: adding a step shares all older rows, so that a state is cheap to make and never
written in place. Rows of older steps may be shorter, because series were added later.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from sentinel.core.frames import Bools, Floats, SeriesFrame

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation -> standard deviation of a normal variable."""


@dataclass(frozen=True)
class PastStep:
    """One step that was judged."""

    step: int
    values: Floats
    present: Bools


Past = tuple[PastStep, ...]


def remembered(past: Past, frame: SeriesFrame, length: int) -> Past:
    """The past with this step at its end, no longer than `length` steps."""
    return (*past[max(0, len(past) + 1 - length) :], PastStep(frame.step, frame.values, frame.present))


def series(past: Past, rows: np.ndarray) -> Floats:
    """Values of some rows over the past, shape (steps, rows); NaN where absent."""
    out = np.full((len(past), len(rows)), np.nan)
    for line, step in zip(out, past, strict=True):
        known = rows < len(step.values)
        line[known] = step.values[rows[known]]
    return out


def median(values: Floats, axis: int = 0) -> Floats:
    """Median along an axis, NaN and infinities left out; NaN where nothing is left."""
    clean = np.where(np.isfinite(values), values, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(clean, axis=axis), dtype=np.float64)


def spread(values: Floats, centre: Floats, axis: int = 0) -> Floats:
    """Robust standard deviation around a centre: 1.4826 MAD."""
    return MAD_TO_SIGMA * median(np.abs(values - np.expand_dims(centre, axis)), axis=axis)
