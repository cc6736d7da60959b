# SPDX-License-Identifier: Apache-2.0
"""The statistic of both regimes: the lower median of |deviation| over the last few steps, in standard deviations of healthy runs.

A shift that stays shows in a long window where single steps are noise, a jump in a short one at once, and one outlier in none but
the shortest. No sign, no memory beyond the window and no model of autocorrelation is needed: what a healthy run's median reaches
was measured for each metric and window (`replay` and `free` in the metric catalogue; `python -m bench.corpus limits` measures it).
A limit of 0 means: over so few steps this metric is no evidence, because single tokens or rows decide it.
"""

from __future__ import annotations

import numpy as np

from sentinel.core.catalogue import FREE_WINDOWS, REPLAY_WINDOWS
from sentinel.core.frames import Bools, Floats, Integers, SeriesIndex

FREE_MEMORY, REPLAY_MEMORY = max(FREE_WINDOWS) - 1, max(REPLAY_WINDOWS) - 1
"""Steps before the present one that the longest window reaches back to."""
JUMP, STAYED, BEFORE = 0.7, 0.5, 0.35
"""Shares of where a deviation is now: what its largest step makes of a jump, what it keeps after it, what it had before."""
UNSHOWN = 5.0
"""Where single steps are no evidence, a band is drawn at so many times the longest window's limit."""


def lower_median(recent: Floats, window: int) -> Floats:
    """Lower median over the last `window` columns of `recent`, shape (series, steps); absent values count as no deviation."""
    last = recent[:, recent.shape[1] - window :]
    middle = (window - 1) // 2
    return np.asarray(np.partition(last, middle, axis=1)[:, middle], dtype=np.float64)


def lasting(recent: Floats, limits: Floats, windows: tuple[int, ...]) -> tuple[Floats, Integers]:
    """Largest ratio of a window's median to its limit, and that window's place; 0 where no window has a limit.

    Args:
        recent: |deviation| in standard deviations, shape (series, steps), newest last.
        limits: shape (windows, series).
        windows: lengths in steps.
    """
    ratios = np.zeros((len(windows), len(recent)))
    for place, window in enumerate(windows):
        judged = limits[place] > 0
        ratios[place, judged] = lower_median(recent[judged], window) / limits[place, judged]
    best = np.argmax(ratios, axis=0)
    return ratios[best, np.arange(len(recent))], best


def jumped(course: Floats) -> bool:
    """Whether a deviation came to where it is within one step and stayed, rather than growing there.

    Args:
        course: |deviation| of one series, shape (steps,), newest last, at least two.
    """
    place = int(np.argmax(np.diff(course))) + 1
    now, before, after = course[-1], course[:place], course[place:]
    rise = course[place] - course[place - 1]
    return bool(rise > 0 and rise >= JUMP * now and after.min() >= STAYED * now and before.max() <= BEFORE * now)


def shown(limits: Floats) -> Floats:
    """The limit of a single step, shape (series,); a substitute to draw where single steps are no evidence."""
    return np.asarray(np.where(limits[0] > 0, limits[0], UNSHOWN * limits[-1]), dtype=np.float64)


def pushed(recent: Floats, now: Floats) -> Floats:
    """The memory of |deviation| with this step's at its end, as many steps as before."""
    return np.concatenate([recent[:, 1:], now[:, None]], axis=1)


def clamped(values: Floats, index: SeriesIndex, log: Bools) -> Floats:
    """What deviations are taken of: logarithms where `log` says so, never of less than a ten-thousandth of the natural size."""
    least = 1e-4 * index.natural
    safe = np.where(np.isfinite(values), values, np.nan)
    return np.asarray(np.where(log, np.log(np.maximum(safe, least)), safe), dtype=np.float64)
