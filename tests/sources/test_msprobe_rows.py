# SPDX-License-Identifier: Apache-2.0
"""Rows of dump entries: names, places in the arguments, numbers, and what is none of these."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.sources.msprobe_rows import Rows, split_name

TENSOR = {
    "type": "torch.Tensor",
    "dtype": "torch.bfloat16",
    "shape": [2, 3],
    "Max": 2,
    "Min": -1.5,
    "Mean": None,
    "Norm": 4.0,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "dtype", "shape", "value", "Norm", "md5", "data_name", "input_args", "x"]), inner
        )
    ),
    max_leaves=12,
)


def rows(entry, name="Module.model.norm.RMSNorm.forward.0"):
    return Rows("/dump").of(name, entry, 7, "Module.model.Model.forward.0")


@pytest.mark.parametrize(("name", "parts"), [
    ("Module.model.norm.Qwen2RMSNorm.parameters_grad.0", ("model.norm", "parameters_grad", 0)),
    ("Module.model.layers.0.mlp.Qwen2MLP.forward.12", ("model.layers.0.mlp", "forward", 12)),
    ("Distributed.all_reduce.3.forward", ("Distributed.all_reduce", "forward", 3)),
    ("Functional.forward.0.backward", ("Functional.forward", "backward", 0)),
    ("Tensor.__add__.1.forward", ("Tensor.__add__", "forward", 1)),
])  # fmt: skip
def test_a_name_is_split_into_module_kind_and_call(name, parts):
    assert split_name(name) == parts


@pytest.mark.parametrize(
    "name", ["", "something else", "forward.0", ".forward.0", "a.forward", "a.forward.x", "a.0.parameters_grad"]
)
def test_another_name_is_no_call(name):
    assert split_name(name) is None
    assert rows({"output": [TENSOR]}, name) == []


def test_every_statistic_keeps_its_place_and_absent_stays_absent():
    (row,) = rows({"output": [TENSOR]})

    assert (row.module, row.direction, row.position, row.order) == ("model.norm", "forward", "output.0", 7)
    assert (row.norm, row.mean, row.max, row.min) == (4.0, None, 2.0, -1.5)
    assert (row.dtype, row.shape, row.parent) == ("bfloat16", (2, 3), "Module.model.Model.forward.0")


def test_places_tell_arguments_keywords_and_parameters_apart():
    entry = {
        "input_args": [TENSOR, None, [TENSOR]],
        "input_kwargs": {"mask": TENSOR},
        "output": TENSOR,
        "parameters": {"weight": TENSOR},
    }

    assert [(row.direction, row.position) for row in rows(entry)] == [
        ("forward", "input.0"),
        ("forward", "input.2.0"),
        ("forward", "kwarg.mask"),
        ("forward", "output"),
        ("parameters", "parameters.weight"),
    ]


def test_a_gradient_of_a_parameter_stands_at_its_name():
    found = rows({"weight": [TENSOR], "bias": [None]}, "Module.model.norm.RMSNorm.parameters_grad.0")

    assert [(row.direction, row.position) for row in found] == [("parameters", "parameters_grad.weight")]


def test_a_plain_number_is_a_row_of_its_own():
    (row,) = rows({"input_args": [{"type": "float", "value": 0.5}, {"type": "str", "value": "x"}]})

    assert (row.position, row.dtype, row.shape, row.norm, row.max) == ("input.0", "number", (), 0.5, 0.5)


def test_checksums_and_files_of_tensors_are_kept():
    (row,) = rows({"output": [TENSOR | {"md5": "a1", "data_name": "x.pt"}]})

    assert (row.checksum, row.data) == ("a1", "/dump/x.pt")


def test_an_integer_beyond_all_floats_is_infinite():
    (row,) = rows({"output": [TENSOR | {"Max": 10**400, "Min": -(10**400)}]})

    assert (row.max, row.min) == (math.inf, -math.inf)


def test_not_a_number_stays_one():
    (row,) = rows({"output": [TENSOR | {"Norm": math.nan, "Max": math.inf}]})

    assert math.isnan(row.norm)
    assert row.max == math.inf


@given(st.dictionaries(st.sampled_from(["input_args", "output", "parameters", "weight"]), JSON), st.booleans())
def test_any_json_gives_rows_of_whole_shapes_and_numbers(entry, gradients):
    kind = "parameters_grad" if gradients else "forward"

    for row in rows(entry, f"Module.model.norm.RMSNorm.{kind}.0"):
        assert all(isinstance(size, int) for size in row.shape)
        assert all(number is None or isinstance(number, float) for number in (row.norm, row.mean, row.max, row.min))
