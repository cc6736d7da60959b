# SPDX-License-Identifier: Apache-2.0
"""Triage on real dumps with changes made by hand, so that what is right is known exactly."""

import copy
import json
import math
import re
import shutil

import pytest

from sentinel.core.triage import compare, first_non_finite
from sentinel.core.triage.outline import clean_path, outline
from sentinel.sources.msprobe_dump import read_dump
from tests.support.dumps import edit, tensors, unpack

UP = "Module.model.layers.1.mlp.up_proj.Linear"
# Modules that were already running when up_proj was called: only their outputs come after it.
AROUND_UP = ("layers.1.mlp.Qwen2MLP.forward", "layers.1.Qwen2DecoderLayer.forward", "Qwen2Model.forward")


@pytest.fixture
def golden(tmp_path):
    return read_dump(unpack("l0", tmp_path / "golden")).stages


@pytest.fixture
def edited(tmp_path):
    """The same dump with its entries changed by a function."""

    def make(change, name="l0"):
        folder = tmp_path / "edited"
        shutil.rmtree(folder, ignore_errors=True)
        return read_dump(edit(unpack(name, folder), lambda found: change(found["data"]))).stages

    return make


def scale(tensor, factor):
    if tensor.get("Norm") is None:
        return  # token ids and masks stay what they are
    for key in ("Max", "Min", "Mean", "Norm"):
        if tensor.get(key) is not None:
            tensor[key] *= factor


def scaled(names, factor, roles=("input_args", "input_kwargs", "input", "output")):
    """A change: all tensors of these roles of the entries whose name contains one of `names`."""

    def change(data):
        for name, entry in data.items():
            if any(part in name for part in names):
                for role in roles:
                    for tensor in tensors(entry.get(role, [])):
                        scale(tensor, factor)

    return change


def both(*changes):
    def change(data):
        for one in changes:
            one(data)

    return change


def from_up(at, after):
    """Change the output of up_proj's forward by `at`, and everything that comes after it by `after`."""

    def change(data):
        names = list(data)
        start = next(place for place, name in enumerate(names) if name.startswith(f"{UP}.forward"))
        at([names[start]], ["output"])(data)
        for name in names[start + 1 :]:
            outputs_alone = any(part in name for part in AROUND_UP)
            after([name], ["output"] if outputs_alone else ["input_args", "input_kwargs", "input", "output"])(
                {name: data[name]}
            )

    return change


def faulty_up(factor=1.02, after=1.01):
    """up_proj's output is off, and so is everything after it."""
    return from_up(lambda names, roles: scaled(names, factor, roles), lambda names, roles: scaled(names, after, roles))


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


def test_one_weight_that_differs_is_blamed_before_any_operation(golden, edited):
    weight = scaled([f"{UP}.forward"], 1.01, ["parameters"])

    answer = compare(edited(both(weight, faulty_up())), golden)

    assert (answer.first.module, answer.first.direction, answer.first.position) == (
        "model.layers.1.mlp.up_proj", "parameters", "parameters.weight",
    )  # fmt: skip
    assert answer.comparable.weights is False


def moved(data):
    """Every weight by a learning rate of 1e-5, as a few updates do; what it does to the activations is a little more."""
    for place, (name, entry) in enumerate(data.items()):
        if ".forward." in name:
            for tensor in tensors(entry["parameters"]):
                for key in ("Max", "Min", "Mean"):
                    tensor[key] += 1e-5 * (-1) ** place
                tensor["Norm"] *= 1 + 2e-6 * (-1) ** place
        scaled([name], 1 + 1e-4 * (1 + place % 3))({name: entry})


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


def renamed(data):
    for name in list(data):
        new = re.sub(r"^Module\.model", "Module._fsdp_wrapped_module.model", name)
        data[re.sub(r"\.(\w+)\.(forward|backward|parameters_grad)\.", r".FSDP\1.\2.", new)] = data.pop(name)


def test_wrapped_and_renamed_classes_are_the_same_modules(golden, edited):
    answer = compare(edited(both(faulty_up(), renamed)), golden)

    assert answer.first.module == "model.layers.1.mlp.up_proj"
    assert not answer.only_in_target


def test_the_first_and_last_module_may_be_missing_on_one_side(golden, edited):
    def change(data):
        for name in list(data):
            if name.startswith(("Module.model.Qwen2Model", "Module.lm_head")):
                del data[name]

    assert compare(edited(change), golden).verdict == "same"
    answer = compare(edited(both(faulty_up(), change)), golden)
    assert answer.first.module == "model.layers.1.mlp.up_proj"
    assert any("lm_head" in name for name in answer.only_in_golden)


def test_a_layer_that_only_one_side_has_is_never_the_same(golden, edited):
    def change(data):
        for name in list(data):
            if ".layers.1." in name:
                del data[name]

    answer = compare(edited(change), golden)

    assert answer.verdict != "same"
    assert any("ran in the golden dump only" in note for note in answer.notes)


def test_recomputed_forwards_are_told_from_second_calls(tmp_path, golden):
    recomputed = read_dump(unpack("recomputed", tmp_path)).stages

    answer = compare(recomputed, golden)

    assert answer.verdict == "same"
    assert any(".forward.1" in name for name in answer.only_in_target)
    kinds = {entry.kind for entry in outline(recomputed["unknown"][0])}
    assert kinds == {"forward", "backward", "recompute", "parameters_grad"}


def test_micro_batches_are_calls_of_their_own(tmp_path):
    repeated = read_dump(unpack("repeated", tmp_path / "a")).stages

    def change(data):
        scaled([f"{UP}.forward.1"], 1.05, ["output"])(data)

    second = read_dump(edit(unpack("repeated", tmp_path / "b"), lambda found: change(found["data"]))).stages
    answer = compare(second, repeated)

    assert compare(repeated, repeated).verdict == "same"
    assert answer.first.name == f"{UP}.forward.1"


def test_a_mapping_joins_two_ways_of_naming(golden, edited):
    def change(data):
        for name in list(data):
            data[name.replace("Module.model.layers.", "Module.decoder.blocks.").replace("self_attn", "attention")] = (
                data.pop(name)
            )

    target = edited(both(faulty_up(), change))
    answer = compare(
        target,
        golden,
        mapping={"decoder.blocks.*.attention": "model.layers.*.self_attn", "decoder.blocks": "model.layers"},
    )

    assert answer.first.module == "model.layers.1.mlp.up_proj"
    assert not answer.only_in_target


def test_another_head_of_all_names_is_found_without_a_mapping(golden, edited):
    def change(data):
        for name in list(data):
            data[name.replace("Module.", "Module.policy.actor.")] = data.pop(name)

    answer = compare(edited(both(faulty_up(), change)), golden)

    assert answer.first.module == "model.layers.1.mlp.up_proj"
    assert any("names of the target" in note for note in answer.notes)


def test_ranks_without_a_partner_are_named_and_the_sick_rank_is_found(golden, edited):
    rows, sick = golden["unknown"][0], edited(faulty_up())["unknown"][0]

    answer = compare({"actor_update": {0: rows, 1: sick, 2: rows}}, {"actor_update": {0: rows, 1: rows}})

    assert (answer.verdict, answer.ranks) == ("diverged", (0, 1))
    assert any("0, 1, 2 against 0, 1" in note for note in answer.notes)
    assert any("rank 1" in note for note in answer.notes)


def test_the_first_stage_of_the_data_flow_is_blamed_however_the_stages_come(golden, edited):
    rows, sick = golden["unknown"][0], edited(faulty_up())["unknown"][0]

    target = {"actor_update": {0: sick}, "actor_compute_log_prob": {0: sick}}
    answer = compare(target, {"actor_update": {0: rows}, "actor_compute_log_prob": {0: rows}})

    assert answer.first.stage == "actor_compute_log_prob"


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


def with_nan(names, roles, value=math.nan):
    def change(data):
        for name, entry in data.items():
            if any(part in name for part in names):
                for role in roles:
                    for tensor in tensors(entry.get(role, [])):
                        if tensor.get("Norm") is not None:
                            tensor.update(Max=value, Mean=value, Norm=abs(value))
                            tensor["Min"] = value if math.isnan(value) else tensor["Min"]

    return change


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


def test_wrappers_are_taken_off_paths():
    assert clean_path("_fsdp_wrapped_module.model._checkpoint_wrapped_module.layers.0._orig_mod") == "model.layers.0"


def test_a_nan_on_one_side_only_is_a_divergence(golden, edited):
    answer = compare(edited(with_nan([f"{UP}.forward"], ["output"])), golden)

    assert (answer.verdict, answer.first.module) == ("diverged", "model.layers.1.mlp.up_proj")


def test_the_answer_is_plain_json(golden, edited):
    answer = compare(edited(faulty_up()), golden)

    json.dumps([answer.first.target, answer.first.golden])
