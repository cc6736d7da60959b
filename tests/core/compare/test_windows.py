# SPDX-License-Identifier: Apache-2.0
"""The median over the last steps, and which window speaks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.compare.windows import FREE_MEMORY, jumped, lasting, lower_median, pushed, shown

WINDOWS = (1, 3, 5)


def steps(*values):
    """One series: nothing before, then these."""
    return np.array([[0.0] * FREE_MEMORY + list(values)])


def limits(*values):
    return np.array([[value] for value in values], dtype=np.float64)


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=20), st.integers(1, 20))
def test_it_is_the_lower_median_of_the_last_steps(values, window):
    recent = np.array([[0.0] * 20 + values])

    assert lower_median(recent, window)[0] == sorted(recent[0][-window:])[(window - 1) // 2]


def test_a_jump_speaks_at_once_and_a_shift_that_stays_in_a_longer_window():
    jump, window = lasting(steps(20.0), limits(10, 5, 3), WINDOWS)
    first, _ = lasting(steps(4.0), limits(10, 5, 3), WINDOWS)
    stays, longest = lasting(steps(4.0, 4.0, 4.0), limits(10, 5, 3), WINDOWS)

    assert (jump[0], window[0]) == (2.0, 0)
    assert first[0] < 1.0
    assert (stays[0], longest[0]) == (4 / 3, 2)


def test_one_outlier_moves_no_window_but_the_shortest():
    score, _ = lasting(steps(1e300, 0.0, 0.0), limits(10, 5, 3), WINDOWS)

    assert score[0] == 0.0


def test_a_window_without_a_limit_is_no_evidence_but_is_drawn():
    score, _ = lasting(steps(1e9), limits(0, 0, 3), WINDOWS)

    assert score[0] == 0.0
    assert shown(limits(0, 0, 3))[0] > 3.0


def test_the_memory_keeps_its_length():
    recent = np.zeros((2, FREE_MEMORY))

    after = pushed(recent, np.array([1.0, 2.0]))

    assert after.shape == recent.shape
    assert after[:, -1].tolist() == [1.0, 2.0]


@given(st.floats(1e-300, 1e300), st.integers(1, 8), st.integers(1, 8))
def test_a_jump_that_stays_is_told_from_a_slope_whatever_the_scale(level, before, after):
    jump = np.array([0.0] * before + [level] * after)
    slope = np.linspace(0.0, level, before + after + 2)

    assert jumped(jump)
    assert not jumped(slope)


def test_what_went_in_between_or_was_there_before_or_never_moved_is_no_jump():
    assert not jumped(np.array([0.0, 3.0, 0.5, 3.0]))
    assert not jumped(np.array([0.0, 2.0, 0.0, 3.0]))
    assert not jumped(np.zeros(4))
