# SPDX-License-Identifier: Apache-2.0
"""Robust statistics that survive NaN, and a past that is shared."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sentinel.core.catalogue import Catalogue
from sentinel.core.frames import framed, index_of
from sentinel.core.window import median, remembered, series, spread

CATALOGUE = Catalogue.from_mapping({"metric": [{"match": ["a", "b", "c"], "class": "close"}]})


@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=3, max_side=6),
        elements=st.floats(-1e3, 1e3) | st.just(np.nan),
    ),
    st.integers(0, 1),
)
def test_the_median_is_numpys_where_there_is_anything(values, axis):
    some = np.isfinite(values).any(axis=axis)

    ours = median(values, axis=axis)

    assert np.isnan(ours[~some]).all()
    if some.any():
        kept = np.moveaxis(values, axis, -1)[some]
        assert ours[some] == pytest.approx(np.nanmedian(kept, axis=-1))


def test_infinities_are_left_out():
    assert median(np.array([[1.0], [np.inf], [3.0]])) == pytest.approx([2.0])


def test_the_spread_of_normal_numbers_is_their_standard_deviation():
    values = np.random.default_rng(1).normal(5.0, 2.0, size=(20_000, 1))

    assert spread(values, median(values)) == pytest.approx([2.0], rel=0.05)


def test_a_past_keeps_the_newest_steps_and_shares_the_older_rows():
    index, past = index_of((), CATALOGUE), ()
    for step in range(1, 6):
        frame = framed(step, {"a": float(step), **({"b": 1.0} if step > 3 else {})}, index, CATALOGUE)
        index = frame.index
        longer = remembered(past, frame, 3)
        if len(past) == 3:
            assert longer[0] is past[1]
        past = longer

    assert [row.step for row in past] == [3, 4, 5]
    np.testing.assert_equal(series(past, np.array([0, 1])), [[3.0, np.nan], [4.0, 1.0], [5.0, 1.0]])


def test_rows_are_read_only():
    frame = framed(1, {"a": 1.0}, index_of((), CATALOGUE), CATALOGUE)

    with pytest.raises(ValueError, match="read-only"):
        frame.values[0] = 2.0


def test_absent_is_neither_zero_nor_nan():
    index = index_of(("a", "b", "c"), CATALOGUE)

    frame = framed(1, {"a": 0.0, "b": float("nan")}, index, CATALOGUE)

    assert frame.present.tolist() == [True, True, False]
    assert frame.finite.tolist() == [True, False, False]


def test_new_keys_get_rows_at_the_end():
    index = index_of(("a",), CATALOGUE)

    frame = framed(1, {"c": 1.0, "a": 2.0}, index, CATALOGUE)

    assert frame.index.keys == ("a", "c")
    assert frame.values.tolist() == [2.0, 1.0]
