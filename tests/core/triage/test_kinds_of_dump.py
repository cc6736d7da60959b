# SPDX-License-Identifier: Apache-2.0
"""Checksums, operations, and dumps of two kinds."""

import json

import pytest

from sentinel.core.triage import compare
from sentinel.sources.msprobe_dump import read_dump
from tests.support.dump_changes import faulty_up
from tests.support.dumps import unpack


def test_checksums_alone_tell_the_module(tmp_path):
    golden = read_dump(unpack("xor", tmp_path / "g")).stages
    target = read_dump(unpack("xor-scaled", tmp_path / "t")).stages

    assert compare(golden, golden).verdict == "same"
    assert compare(target, golden).first.module == "model.layers.1.mlp.up_proj"


def test_checksums_against_statistics_are_not_comparable(tmp_path, golden):
    answer = compare(read_dump(unpack("xor", tmp_path)).stages, golden)

    assert (answer.verdict, answer.first) == ("not_comparable", None)


def test_mix_against_modules_compares_the_modules(tmp_path, golden):
    target = read_dump(unpack("mix-scaled", tmp_path)).stages

    assert compare(target, golden).first.module == "model.layers.1.mlp.up_proj"


@pytest.mark.parametrize(("name", "module", "operation"), [
    ("mix-scaled", "model.layers.1.mlp.up_proj", ""),
    ("mix-scaling", "model.layers.0.self_attn", "Tensor.__mul__"),
])  # fmt: skip
def test_a_mix_dump_names_the_operation_and_its_module(tmp_path, name, module, operation):
    golden = read_dump(unpack("mix", tmp_path / "g")).stages

    answer = compare(read_dump(unpack(name, tmp_path / "t")).stages, golden)

    assert answer.first.module == module
    assert answer.first.name.startswith(operation)


def test_a_dump_of_operations_alone_names_the_operation(tmp_path):
    golden = read_dump(unpack("l1", tmp_path / "g")).stages

    answer = compare(read_dump(unpack("l1-scaled", tmp_path / "t")).stages, golden)

    assert compare(golden, golden).verdict == "same"
    assert answer.verdict == "diverged"
    assert answer.first.direction == "forward"


def test_operations_against_modules_have_nothing_in_common(tmp_path, golden):
    answer = compare(read_dump(unpack("l1", tmp_path)).stages, golden)

    assert (answer.verdict, answer.compared) == ("not_comparable", 0)


def test_the_answer_is_plain_json(golden, edited):
    answer = compare(edited(faulty_up()), golden)

    json.dumps([answer.first.target, answer.first.golden])
