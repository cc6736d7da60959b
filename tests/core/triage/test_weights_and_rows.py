# SPDX-License-Identifier: Apache-2.0
"""Weights that differ, and rows that are not the same: said before any module is blamed."""

import math

import pytest

from sentinel.core.triage import compare
from tests.support.dump_changes import UP, both, faulty_up, moved, scale, scaled
from tests.support.dumps import tensors


def test_one_weight_that_differs_is_blamed_before_any_operation(golden, edited):
    weight = scaled([f"{UP}.forward"], 1.01, ["parameters"])

    answer = compare(edited(both(weight, faulty_up())), golden)

    assert (answer.first.module, answer.first.direction, answer.first.position) == (
        "model.layers.1.mlp.up_proj", "parameters", "parameters.weight",
    )  # fmt: skip
    assert answer.comparable.weights is False


def test_weights_that_all_moved_are_not_blamed(golden, edited):
    answer = compare(edited(moved), golden)

    assert (answer.verdict, answer.first) == ("same", None)
    assert answer.comparable.weights is False
    assert any("moved by updates" in note for note in answer.notes)


def test_what_moved_weights_hide_in_their_statistics_is_not_blamed_on_the_module(golden, edited):
    """An embedding looks the same weights up many times over: its output's mean shows what the weight's own hardly does."""

    def change(data):
        moved(data)
        tensor = tensors(data["Module.model.embed_tokens.Embedding.forward.0"]["output"])[0]
        tensor["Mean"] += 1.5e-3 * tensor["Norm"] / math.prod(tensor["shape"])

    assert compare(edited(change), golden).verdict == "same"


def test_a_fault_stands_out_of_weights_that_moved(golden, edited):
    answer = compare(edited(both(moved, faulty_up())), golden)

    assert (answer.verdict, answer.first.module) == ("diverged", "model.layers.1.mlp.up_proj")


def test_a_weight_that_moved_far_more_than_the_others_is_blamed(golden, edited):
    answer = compare(edited(both(moved, scaled([f"{UP}.forward"], 1.05, ["parameters"]))), golden)

    assert (answer.first.module, answer.first.direction) == ("model.layers.1.mlp.up_proj", "parameters")


def test_weights_of_another_model_make_the_pair_not_comparable(golden, edited):
    def change(data):
        for place, (name, entry) in enumerate(data.items()):
            scaled([name], 1.3 + 0.1 * (place % 5), [*entry])({name: entry})

    answer = compare(edited(change), golden)

    assert (answer.verdict, answer.comparable.weights) == ("not_comparable", False)


def test_other_token_ids_are_other_rows(golden, edited):
    def change(data):
        tensors(data["Module.model.embed_tokens.Embedding.forward.0"]["input_args"])[0]["Max"] -= 1

    answer = compare(edited(change), golden)

    assert (answer.verdict, answer.first) == ("not_comparable", None)
    assert answer.comparable.rows is False


def test_another_batch_shape_is_other_rows(golden, edited):
    def change(data):
        for entry in data.values():
            for role in ("input_args", "input_kwargs", "output", "input"):
                for tensor in tensors(entry.get(role, [])):
                    tensor["shape"] = [3, *tensor["shape"][1:]]

    answer = compare(edited(change), golden)

    assert (answer.verdict, answer.comparable.rows) == ("not_comparable", False)
    assert any("shape" in note for note in answer.notes)


def test_ids_of_the_same_range_but_other_rows_show_in_what_is_looked_up(golden, edited):
    def change(data):
        tensor = tensors(data["Module.model.embed_tokens.Embedding.forward.0"]["output"])[0]
        tensor["Mean"] += 0.3 * tensor["Norm"] / math.prod(tensor["shape"])
        tensor["Norm"] *= 1.001

    assert compare(edited(change), golden).comparable.rows is False


@pytest.mark.parametrize("fault", ["scale", "bias"])
def test_an_embedding_with_a_fault_is_not_taken_for_other_rows(golden, edited, fault):
    def change(data):
        tensor = tensors(data["Module.model.embed_tokens.Embedding.forward.0"]["output"])[0]
        if fault == "scale":
            scale(tensor, 1.05)
        else:
            for key in ("Max", "Min", "Mean"):
                tensor[key] += 0.02

    answer = compare(edited(change), golden)

    assert (answer.first.module, answer.comparable.rows) == ("model.embed_tokens", True)


def test_dumps_of_other_steps_compare_only_where_rows_and_weights_agree(golden, edited):
    assert compare(edited(faulty_up()), golden, target_step=3, golden_step=4).verdict == "diverged"
    assert compare(edited(moved), golden, target_step=3, golden_step=4).verdict == "not_comparable"
