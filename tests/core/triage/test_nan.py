# SPDX-License-Identifier: Apache-2.0
"""The first NaN or Inf of one dump, and what made it."""

import copy
import math

import pytest

from sentinel.core.triage import compare, first_non_finite
from sentinel.sources.msprobe_dump import read_dump
from tests.support.dump_changes import UP, from_up, with_nan
from tests.support.dumps import edit, unpack


def test_a_healthy_dump_holds_no_nan_though_masks_are_infinite(tmp_path, golden):
    assert first_non_finite(golden).verdict == "clean"
    assert first_non_finite(read_dump(unpack("mix", tmp_path / "a")).stages).verdict == "clean"
    assert first_non_finite(read_dump(unpack("l1", tmp_path / "b")).stages).verdict == "clean"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_operation_that_made_the_first_nan_is_named(edited, value):
    def spoil(names, roles):
        return with_nan(names, roles, value)

    answer = first_non_finite(edited(from_up(spoil, spoil)), target_step=9)

    assert (answer.verdict, answer.step) == ("non_finite", 9)
    assert (answer.first.module, answer.first.direction) == ("model.layers.1.mlp.up_proj", "forward")
    assert "operation to blame" in answer.first.why
    assert answer.first.golden is None


def test_a_weight_that_holds_nan_is_named_as_a_weight(edited):
    answer = first_non_finite(edited(with_nan([f"{UP}.forward"], ["parameters", "output"])))

    assert (answer.first.module, answer.first.direction) == ("model.layers.1.mlp.up_proj", "parameters")
    assert "weight to blame" in answer.first.why


def test_a_gradient_that_is_nan_where_it_enters_points_at_the_loss(edited):
    answer = first_non_finite(edited(with_nan([".backward."], ["input", "output"])))

    assert (answer.first.module, answer.first.direction) == ("lm_head", "backward")
    assert "the loss" in answer.first.why


def test_a_container_whose_inputs_came_by_keyword_is_named_for_its_backward(edited):
    """Attention's backward entry has no output rows: what it hands on shows at the norm before it."""
    after = ["layers.1.input_layernorm.Qwen2RMSNorm.backward", "layers.0.", "embed_tokens"]

    def change(data):
        for name, entry in data.items():
            if ".backward." in name:
                with_nan(after, ["input", "output"])({name: entry})
                with_nan(["layers.1.Qwen2DecoderLayer"], ["output"])({name: entry})

    answer = first_non_finite(edited(change))

    assert (answer.first.module, answer.first.direction) == ("model.layers.1.self_attn", "backward")


def test_minus_infinity_that_no_mask_explains_is_found(tmp_path):
    answer = first_non_finite(read_dump(unpack("mix-inf", tmp_path)).stages)

    assert answer.first.module == "model.layers.0.self_attn.v_proj"


def test_memory_that_was_never_written_is_no_nan(tmp_path):
    def change(found):
        entry = copy.deepcopy(found["data"]["Tensor.cos.0.forward"])
        with_nan([""], ["output"])({"": entry})
        found["data"]["Torch.empty.0.forward"] = entry

    assert first_non_finite(read_dump(edit(unpack("mix", tmp_path), change)).stages).verdict == "clean"


def test_every_rank_with_a_nan_is_noted(golden, edited):
    sick = edited(with_nan([f"{UP}.forward"], ["output"]))["unknown"][0]

    answer = first_non_finite({"actor_update": {0: golden["unknown"][0], 1: sick, 2: sick}})

    assert answer.first.stage == "actor_update"
    assert len(answer.notes) == 2


def test_a_nan_on_one_side_only_is_a_divergence(golden, edited):
    answer = compare(edited(with_nan([f"{UP}.forward"], ["output"])), golden)

    assert (answer.verdict, answer.first.module) == ("diverged", "model.layers.1.mlp.up_proj")
