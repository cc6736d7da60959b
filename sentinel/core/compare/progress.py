# SPDX-License-Identifier: Apache-2.0
"""How far a free run has come in the seeds' course: a slow or a fast learner is no fault.

Metrics that trend over the baseline tell the progress together: the lag at which the last ten steps fit the seeds' course best. It counts
only where the run is off by step and fits by progress, all trending metrics together (a fault that touches some of them fits nowhere), and
where it still learns: a lag that grows nearly as fast as the steps go by is a run that stopped learning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.compare.windows import clamped
from sentinel.core.frames import Bools, Floats, Integers, SeriesFrame, frozen
from sentinel.core.window import Past, median, series

STEPS = 10
"""Steps that are laid along the seeds' course."""
TREND = 4.0
"""Standard deviations between the first and the last quarter of the seeds' course from which a metric tells of progress."""
LEAST_ROWS, MOST_ROWS = 3, 64
SLOWEST, FASTEST = 0.4, 0.3
"""Largest lag and lead, as shares of the steps so far."""
CANDIDATES = 64
"""Lags tried, at most."""
GAIN, FITS = 4.0, 1.5
"""By how much the mean square deviations of all metrics together must fall, and what their mean may be then."""
BETTER, WORSE, LEAST_BETTER = 0.5, 0.7, 2
"""Of single metrics: a fall that counts, a rise that speaks against it, and how many must fall. A fault in one metric is no pace."""
MOST = 9.0
"""A square deviation counts no more than this."""
STEADY = 3
"""Steps that a lag may grow within `STEPS`: slower learning than two thirds of the baseline's is none."""


@dataclass(frozen=True, slots=True)
class Course:
    """Where the seeds go, transformed as they are judged."""

    rows: Integers
    """Of `trending`."""
    centre: Floats
    """(steps, series)"""
    scale: Floats
    """(steps, series)"""
    log: Bools
    """(series of the step,): judged in logarithms."""


def trending(centre: Floats, scale: Floats, banded: Bools) -> Integers:
    """Rows of the series whose course in the baseline goes somewhere; those that go furthest, where there are many.

    Args:
        centre: course of the seeds, shape (steps, series).
        scale: one standard deviation, the same shape.
        banded: series that free runs are judged by.
    """
    quarter = len(centre) // 4
    if not quarter:
        return frozen(np.zeros(0, dtype=np.int64))
    way = np.abs(median(centre[-quarter:]) - median(centre[:quarter])) / median(scale)
    way = np.where(banded, np.nan_to_num(way), 0.0)
    furthest = np.argsort(-way, kind="stable")[:MOST_ROWS]
    return frozen(np.sort(furthest[way[furthest] >= TREND]))


def lag(frame: SeriesFrame, past: Past, place: int, course: Course, last: int = 0) -> int:
    """Steps by which the run is behind the seeds (ahead: negative); 0 where it fits by step, or nowhere.

    Args:
        frame: the step that is judged.
        past: steps judged before it.
        place: of the step on the baseline's axis.
        course: of the seeds.
        last: the lag at the step before. One that was told stays as long as it is the better fit, through bad steps, too.
    """
    rows = course.rows
    if len(rows) < LEAST_ROWS or place < 2 * STEPS or not _in_a_row(frame, past):
        return 0
    past = past[1 - 2 * STEPS :]
    values = np.concatenate([series(past, rows), frame.values[None, rows]])
    full = np.full((len(values), len(frame.values)), np.nan)
    full[:, rows] = values
    values = clamped(full, frame.index, course.log)[:, rows]
    centre, scale = course.centre[:, rows], course.scale[:, rows]
    if not last and _misfit(values[-STEPS:], np.arange(place - STEPS + 1, place + 1), centre, scale).sum() < GAIN:
        return 0
    now, by_step, by_progress = _best(values[-STEPS:], place, centre, scale)
    fall = by_step - by_progress
    held = last != 0 and now * last > 0
    if not held and (not now or fall.sum() < GAIN or by_progress.mean() > FITS):
        return 0
    if not held and ((fall >= BETTER).sum() < LEAST_BETTER or (fall <= -WORSE).any()):
        return 0
    before, _, _ = _best(values[-2 * STEPS : -STEPS], place - STEPS, centre, scale)
    return now if abs(now - before) <= STEADY else 0


def _in_a_row(frame: SeriesFrame, past: Past) -> bool:
    """Whether the last steps came one after the other, so that each lies one place further on the course."""
    first = len(past) - 2 * STEPS + 1
    return first >= 0 and past[first].step == frame.step - 2 * STEPS + 1 and past[-1].step == frame.step - 1


def _best(values: Floats, place: int, centre: Floats, scale: Floats) -> tuple[int, Floats, Floats]:
    """The lag at which the steps up to `place` fit best, and each metric's mean square deviation by step and at that lag."""
    places = np.arange(place - len(values) + 1, place + 1)
    lags = np.unique(np.linspace(-int(FASTEST * place), int(SLOWEST * place), CANDIDATES).astype(np.int64))
    lags = lags[(places[0] - lags >= 0) & (places[-1] - lags < len(centre))]
    misfits = {int(one): _misfit(values, places - one, centre, scale) for one in {0, *lags.tolist()}}
    best = min(misfits, key=lambda one: (float(misfits[one].sum()), abs(one)))
    return best, misfits[0], misfits[best]


def _misfit(values: Floats, places: Integers, centre: Floats, scale: Floats) -> Floats:
    square = np.minimum(((values - centre[places]) / scale[places]) ** 2, MOST)
    seen = np.isfinite(square)
    return np.asarray(np.where(seen, square, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1), dtype=np.float64)
