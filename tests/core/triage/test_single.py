# SPDX-License-Identifier: Apache-2.0
"""Where the module that is named is one operation, nothing is left to find inside it."""

import copy
import json
import math

import pytest

from sentinel.core.report.plain import triage_to_plain
from sentinel.core.report.revive import triage_from_plain
from sentinel.core.triage import compare, first_non_finite
from tests.support.dump_changes import UP, both, faulty_up, from_up, moved, renamed, scaled, with_nan


def sharded(data):
    """As FSDP2 names the class of a module that it shards."""
    for name in list(data):
        data[name.replace(".up_proj.Linear.", ".up_proj.FSDPLinear.")] = data.pop(name)


def test_a_linear_whose_inputs_and_weights_agree_is_its_operation(golden, edited):
    first = compare(edited(faulty_up(1.05)), golden).first

    assert (first.module, first.operation) == ("model.layers.1.mlp.up_proj", "linear")
    assert first.why.endswith("; it is one operation, linear")


@pytest.mark.parametrize("wrapped", [sharded, renamed])
def test_so_is_one_that_fsdp_renamed(golden, edited, wrapped):
    assert compare(edited(both(faulty_up(1.05), wrapped)), golden).first.operation == "linear"


def test_so_is_one_whose_weights_were_moved_by_a_few_updates(golden, edited):
    first = compare(edited(both(moved, faulty_up(1.5, 1.3))), golden).first

    assert (first.module, first.operation) == ("model.layers.1.mlp.up_proj", "linear")


def test_so_is_its_backward(golden, edited):
    def change(data):
        scaled([f"{UP}.backward"], 1.5, ["output"])(data)
        scaled(["layers.1.mlp.Qwen2MLP.backward", "post_attention_layernorm.Qwen2RMSNorm.backward"], 1.2, ["output"])(
            data
        )

    first = compare(edited(change), golden).first

    assert (first.module, first.direction, first.operation) == ("model.layers.1.mlp.up_proj", "backward", "linear")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_so_is_one_that_makes_the_first_nan(edited, value):
    def spoil(names, roles):
        return with_nan(names, roles, value)

    assert first_non_finite(edited(from_up(spoil, spoil))).first.operation == "linear"


def test_a_weight_is_no_operation(golden, edited):
    spoilt = edited(with_nan([f"{UP}.forward"], ["parameters", "output"]))

    assert first_non_finite(spoilt).first.operation == ""
    assert compare(spoilt, golden).first.operation == ""


def test_a_module_whose_weights_nobody_saw_may_have_a_wrong_weight(golden, edited):
    def unseen(data):
        for name, entry in data.items():
            if name.startswith(UP):
                entry.pop("parameters", None)

    answer = compare(edited(both(unseen, faulty_up(1.05))), golden)

    assert (answer.first.module, answer.first.operation) == ("model.layers.1.mlp.up_proj", "")


def test_a_module_that_holds_others_may_be_wrong_in_code_of_its_own(edited):
    """As LoRA's Linear, which holds the Linear that it adapts."""

    def holding(data):
        entries = list(data.items())
        data.clear()
        for name, entry in entries:
            if name.startswith(f"{UP}.forward"):
                data[name.replace("up_proj.", "up_proj.base_layer.")] = copy.deepcopy(entry)
            data[name] = entry

    golden = edited(holding)

    first = compare(edited(both(holding, faulty_up(1.05))), golden).first

    assert (first.module, first.operation) == ("model.layers.1.mlp.up_proj", "")


def test_several_operations_under_one_name_are_not_told_apart(golden, edited):
    def norm(data):
        scaled(["layers.1.post_attention_layernorm.Qwen2RMSNorm.forward"], 1.5, ["output"])(data)

    first = compare(edited(norm), golden).first

    assert (first.module, first.operation) == ("model.layers.1.post_attention_layernorm", "")


def test_weak_evidence_leaves_the_question_open(golden, edited):
    """Out of what is allowed, but not by far: a deeper dump may say otherwise."""
    near, far = (compare(edited(faulty_up(factor, 1.0)), golden).first for factor in (1.00002, 1.05))

    assert (near.module, near.operation) == (far.module, "")
    assert far.operation == "linear"


def test_a_stored_answer_still_says_so(golden, edited):
    answer = compare(edited(faulty_up(1.05)), golden)

    assert triage_from_plain(json.loads(json.dumps(triage_to_plain(answer)))).first == answer.first
