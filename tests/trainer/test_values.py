# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.trainer.values import plain_values


class DeviceTensor:
    """Like a tensor on a device: reading it would wait for the device, so it must not be read."""

    is_cuda = True
    is_cpu = False
    dtype = "bfloat16"

    def __float__(self):
        raise AssertionError("a device tensor was read")


def test_numbers_of_every_kind_become_floats():
    logged = {"a": 1, "b": 2.5, "c": True, "d": np.float64(0.1), "e": np.int64(7), "f": np.float32(0.5)}

    values, unreadable = plain_values(logged)

    assert values == {"a": 1.0, "b": 2.5, "c": 1.0, "d": 0.1, "e": 7.0, "f": 0.5}
    assert all(type(value) is float for value in values.values())
    assert unreadable == []


def test_nan_and_infinity_are_values():
    values, _ = plain_values({"nan": float("nan"), "inf": np.float64("inf")})

    assert math.isnan(values["nan"])
    assert values["inf"] == math.inf


@pytest.mark.parametrize(
    "value", ["0.5", b"1", None, [1.0], (1, 2), {"x": 1}, np.array([1.0, 2.0]), object(), DeviceTensor()]
)
def test_what_is_no_number_is_named_and_never_guessed(value):
    values, unreadable = plain_values({"good": 1.0, "odd": value})

    assert values == {"good": 1.0}
    assert unreadable == ["odd"]


@given(
    st.dictionaries(
        st.text(), st.one_of(st.floats(), st.integers(), st.none(), st.text(), st.binary(), st.lists(st.floats()))
    )
)
def test_every_key_ends_up_on_exactly_one_side(logged):
    values, unreadable = plain_values(logged)

    assert sorted([*values, *unreadable]) == sorted(logged)
