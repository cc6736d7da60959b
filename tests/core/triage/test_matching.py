# SPDX-License-Identifier: Apache-2.0
"""Two dumps whose names, layers, calls and ranks do not match one to one."""

from sentinel.core.triage import compare
from sentinel.core.triage.outline import clean_path, outline
from sentinel.sources.msprobe_dump import read_dump
from tests.support.dump_changes import UP, both, faulty_up, renamed, scaled
from tests.support.dumps import edit, unpack


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


def test_wrappers_are_taken_off_paths():
    assert clean_path("_fsdp_wrapped_module.model._checkpoint_wrapped_module.layers.0._orig_mod") == "model.layers.0"
