# SPDX-License-Identifier: Apache-2.0
"""The module that parts first, forward and backward: on real dumps with changes made by hand, so that what is right is known exactly."""

import pytest

from sentinel.core.triage import compare
from tests.support.dump_changes import UP, both, faulty_up, scale, scaled
from tests.support.dumps import tensors


def test_a_dump_is_the_same_as_itself(golden):
    answer = compare(golden, golden, target_step=3, golden_step=3)

    assert (answer.verdict, answer.first) == ("same", None)
    assert (answer.comparable.step, answer.comparable.rows, answer.comparable.weights) == (True, True, True)
    assert answer.compared > 150


def test_the_module_whose_inputs_agree_and_whose_output_does_not_is_named(golden, edited):
    answer = compare(edited(faulty_up()), golden)

    assert answer.verdict == "diverged"
    assert (answer.first.module, answer.first.direction, answer.first.position) == (
        "model.layers.1.mlp.up_proj",
        "forward",
        "output.0",
    )
    assert answer.first.target["norm"] == pytest.approx(answer.first.golden["norm"] * 1.02)
    assert answer.first.name == f"{UP}.forward.0"
    assert "inputs agree" in answer.first.why


def test_amplification_of_what_comes_in_is_not_blamed(golden, edited):
    answer = compare(edited(faulty_up(1.02, 1.06)), golden)

    assert answer.first.module == "model.layers.1.mlp.up_proj"
    assert all(found.module != "lm_head" for found in answer.suspects)


def test_code_of_a_container_is_told_from_its_children(golden, edited):
    """What attention hands to its last projection differs, although query, key and value agree."""

    def change(data):
        scaled(
            ["layers.0.self_attn.o_proj.Linear.forward", "layers.0.self_attn.Qwen2Attention.forward"], 1.05, ["output"]
        )(data)
        scaled(["layers.0.self_attn.o_proj.Linear.forward"], 1.05, ["input_args"])(data)

    answer = compare(edited(change), golden)

    assert (answer.first.module, answer.first.direction) == ("model.layers.0.self_attn", "forward")
    assert "its own code" in answer.first.why


def test_a_fault_of_the_backward_pass_alone_is_found_there(golden, edited):
    def change(data):
        scaled([f"{UP}.backward"], 1.05, ["output"])(data)
        scaled(["layers.1.mlp.Qwen2MLP.backward", "post_attention_layernorm.Qwen2RMSNorm.backward"], 1.02, ["output"])(
            data
        )

    answer = compare(edited(change), golden)

    assert (answer.first.module, answer.first.direction) == ("model.layers.1.mlp.up_proj", "backward")


def test_a_gradient_of_a_weight_alone_is_found(golden, edited):
    def change(data):
        for tensor in tensors(data[f"{UP}.parameters_grad.0"]):
            scale(tensor, 1.1)

    answer = compare(edited(change), golden)

    assert answer.first.module == "model.layers.1.mlp.up_proj"
    assert (answer.first.direction, answer.first.position) == ("backward", "parameters_grad.weight")


def test_a_loss_that_differs_shows_where_the_gradient_enters(golden, edited):
    answer = compare(edited(scaled([".backward."], 1.3)), golden)

    assert (answer.first.module, answer.first.direction, answer.first.position) == ("lm_head", "backward", "input.0")
    assert "loss" in answer.first.why


def test_forward_is_blamed_before_backward(golden, edited):
    answer = compare(edited(both(scaled([f"{UP}.backward"], 2.0, ["output"]), faulty_up())), golden)

    assert answer.first.direction == "forward"


def test_clean_pairs_widen_what_is_tolerated(golden, edited):
    slightly = edited(scaled([f"{UP}.forward"], 1.003, ["output"]))

    assert compare(slightly, golden).verdict == "diverged"
    assert compare(slightly, golden, clean=[(slightly, golden)]).verdict == "same"
    assert (
        compare(edited(scaled([f"{UP}.forward"], 1.02, ["output"])), golden, clean=[(slightly, golden)]).verdict
        == "diverged"
    )


def test_arithmetic_that_differs_throughout_is_no_module_of_its_own(golden, edited):
    """TF32 adds a little to every matrix product; three projections of agreeing inputs show it at once."""

    def change(data):
        for name, entry in data.items():
            if ".Linear.forward" in name:
                for tensor in tensors(entry["output"]):
                    tensor["Max"] *= 1.0002
                    tensor["Min"] *= 0.9998

    answer = compare(edited(change), golden)

    assert answer.verdict == "same"
    assert any("another arithmetic" in note for note in answer.notes)
