# SPDX-License-Identifier: Apache-2.0
"""Triage of dumps on disk, as the daemon and the command line ask for it."""

import shutil

import pytest

from sentinel.daemon.triaging import triage_paths
from sentinel.errors import UnreadableDump
from tests.support.dumps import edit, tensors, unpack

UP = "Module.model.layers.1.mlp.up_proj.Linear.forward.0"


def broken(found):
    for tensor in tensors(found["data"][UP]["output"]):
        for key in ("Max", "Min", "Mean", "Norm"):
            tensor[key] *= 1.05


@pytest.fixture
def capture(tmp_path):
    """Make a capture root of the given steps and stages, one of them with a fault."""

    def make(name, steps, stages, *, fault=None):
        for step in steps:
            for stage in stages:
                source = unpack("l0", tmp_path / "source" / f"{name}{step}{stage}")
                if (step, stage) == fault:
                    edit(source, broken)
                shutil.copytree(source / "step0", tmp_path / name / f"step_{step}" / stage / "step0")
        return str(tmp_path / name)

    return make


def test_the_answer_says_which_step_and_which_paths(capture):
    target = capture("target", [7], ["actor_update"], fault=(7, "actor_update"))
    golden = capture("golden", [7], ["actor_update"])

    answer = triage_paths(target, golden)

    assert (answer.verdict, answer.step, answer.target, answer.golden) == ("diverged", 7, target, golden)
    assert (answer.first.stage, answer.first.module) == ("actor_update", "model.layers.1.mlp.up_proj")


def test_of_several_steps_the_first_that_both_have_is_compared(capture):
    target = capture("target", [7, 8], ["actor_update"], fault=(8, "actor_update"))
    golden = capture("golden", [6, 7, 8], ["actor_update"])

    assert triage_paths(target, golden).verdict == "same"
    assert triage_paths(f"{target}/step_8", golden).verdict == "diverged"


def test_a_golden_run_that_never_dumped_that_step_is_an_error(capture):
    with pytest.raises(UnreadableDump, match="does not hold the target's step 7"):
        triage_paths(capture("target", [7], ["actor_update"]), capture("golden", [5, 6], ["actor_update"]))


def test_a_golden_dump_of_one_other_step_is_compared_and_said_to_be_of_another_step(capture):
    answer = triage_paths(capture("target", [7], ["actor_update"]), capture("golden", [6], ["actor_update"]))

    assert answer.comparable.step is False
    assert answer.verdict == "same"


def test_only_the_wanted_stages_are_looked_at(capture):
    stages = ["actor_update", "ref_compute_log_prob"]
    target = capture("target", [7], stages, fault=(7, "actor_update"))
    golden = capture("golden", [7], stages)

    assert triage_paths(target, golden, stages=["ref_compute_log_prob"]).verdict == "same"
    assert triage_paths(target, golden).first.stage == "actor_update"


def test_a_stage_that_only_one_side_dumped_is_noted(capture):
    target = capture("target", [7], ["actor_update", "ref_compute_log_prob"])

    answer = triage_paths(target, capture("golden", [7], ["actor_update"]))

    assert any("ref_compute_log_prob was dumped in the target only" in note for note in answer.notes)


def test_one_dump_alone_is_searched_for_nan(capture):
    answer = triage_paths(capture("target", [7], ["actor_update"]))

    assert (answer.verdict, answer.comparable, answer.step) == ("clean", None, 7)


def test_a_clean_pair_widens_what_is_tolerated(capture):
    target = capture("target", [7], ["actor_update"], fault=(7, "actor_update"))
    golden = capture("golden", [7], ["actor_update"])

    assert triage_paths(target, golden, clean=(target, golden)).verdict == "same"


def test_what_was_compared_in_part_is_remarked_and_never_called_the_same(tmp_path):
    golden = str(unpack("l0", tmp_path / "golden"))

    mixed = triage_paths(str(unpack("mix", tmp_path)), golden)
    tensor = triage_paths(str(unpack("tensor", tmp_path)), golden)

    assert any("levels differ (mix against L0)" in note for note in mixed.notes)
    assert any("tasks differ (tensor against statistics)" in note for note in tensor.notes)
    assert mixed.verdict == tensor.verdict == "not_comparable"
    assert mixed.notes[0].startswith("a partial comparison: nothing parts among")
    assert triage_paths(str(unpack("mix", tmp_path)), str(unpack("mix", tmp_path / "again"))).verdict == "same"


@pytest.mark.torch
@pytest.mark.timeout(120)
def test_a_tensor_that_cannot_be_loaded_leaves_a_part_unknown(tmp_path):
    pytest.importorskip("torch")
    golden = unpack("tensor", tmp_path / "golden")
    target = unpack("tensor", tmp_path / "target")
    assert triage_paths(str(target), str(golden)).verdict == "same"

    next(target.rglob("*.pt")).write_bytes(b"no tensor")

    answer = triage_paths(str(target), str(golden))
    assert answer.verdict == "not_comparable"
    assert "could not be loaded" in answer.notes[0]


def test_a_dump_that_is_still_growing_is_never_the_same(tmp_path):
    """JSON may be whole and the dump not: msprobe rewrites the file every thousand entries."""

    def cut(found):
        names = list(found["data"])
        for name in names[len(names) // 2 :]:
            del found["data"][name]

    answer = triage_paths(str(edit(unpack("l0", tmp_path / "target"), cut)), str(unpack("l0", tmp_path / "golden")))

    assert answer.verdict == "not_comparable"
    assert answer.first is None
    assert answer.only_in_golden
