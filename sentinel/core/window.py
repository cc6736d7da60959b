# SPDX-License-Identifier: Apache-2.0
"""The recent past of all series, and robust statistics over it that survive NaN.

A past is a tuple of frozen rows, one a step: adding a step shares all older rows, so that a state is cheap to make and never
written in place. Rows of older steps may be shorter, because series were added later.
"""

from __future__ import annotations

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
    """Median along an axis, NaN and infinities left out; NaN where nothing is left.

    (numpy's nanmedian walks large arrays slice by slice in Python.)
    """
    finite = np.isfinite(values)
    ordered = np.sort(np.where(finite, values, np.nan), axis=axis)
    count = np.expand_dims(finite.sum(axis=axis), axis)
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=axis)
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[axis] - 1), axis=axis)
    # Halves first: the sum of two large numbers may not be finite.
    middle = np.where(count > 0, 0.5 * low + 0.5 * high, np.nan)
    return np.asarray(np.squeeze(middle, axis=axis), dtype=np.float64)


def spread(values: Floats, centre: Floats, axis: int = 0) -> Floats:
    """Robust standard deviation around a centre: 1.4826 MAD."""
    return MAD_TO_SIGMA * median(np.abs(values - np.expand_dims(centre, axis)), axis=axis)
