# SPDX-License-Identifier: Apache-2.0
"""The overrides of recording and replaying, and everything that verl would pass over in silence."""

import dataclasses

import pytest

from sentinel.core.rollout import stub
from sentinel.core.rollout.place import Place, place_of
from sentinel.records import RolloutRecording

PLACE = Place(experiment="tiny", project="demo", batch=8, n=4, prompt_length=48, response_length=16)
SECTIONS = ("rollout", "rollout_tq", "async_rollout")
SETTING = stub.Setting(verl="0.9.1", sections=SECTIONS, trainer="v0", place=PLACE)
FOUND = RolloutRecording(
    path="/r/tiny_demo/GBS8_N4_in48_out16", names="tiny_demo", shape="GBS8_N4_in48_out16", layout="v0", steps=(1, 2, 3)
)


def setting(**changed):
    return dataclasses.replace(SETTING, **changed)


def recorded(**changed):
    return dataclasses.replace(FOUND, **changed)


@pytest.mark.parametrize(("trainer", "section"), [("v0", "rollout"), ("v1", "rollout_tq"), ("async", "async_rollout")])
def test_each_trainer_has_its_section_and_steps_are_always_listed(trainer, section):
    plan = stub.record(setting(trainer=trainer), "/r", (1, 2, 3), [])
    assert plan.ready
    assert plan.overrides[:3] == (
        f"skip.{section}.enable=True",
        f"skip.{section}.dump_dir=/r",
        f"skip.{section}.steps=[1,2,3]",
    )


def test_a_recording_that_the_run_will_find_is_ready_and_gives_the_steps():
    plan = stub.replay(SETTING, "/r", (), [FOUND])
    assert plan.ready
    assert "skip.rollout.steps=[1,2,3]" in plan.overrides


@pytest.mark.parametrize(
    ("changed", "steps", "there", "said"),
    [
        ({}, (1, 2, 3, 4), [FOUND], "steps 4 are not in the recording"),
        ({}, (1, 2), [recorded(steps=(1,), broken={2: "no meta.json"})], "step 2: no meta.json"),
        ({}, (), [recorded(names="other_demo")], "the run looks for tiny_demo, the recording is other_demo"),
        ({}, (), [recorded(shape="GBS16_N4_in48_out16")], "batch, n and lengths must be the recorded ones"),
        ({}, (), [recorded(layout="v1")], "record and replay with the same trainer"),
        ({"trainer": "v1"}, (), [recorded(layout="v1", inner=2)], "2 mini-batches a step, the run samples 1"),
        ({}, (), [], "holds no recording"),
        ({}, (), [recorded(steps=())], "holds no complete step"),
        ({"place": None}, (), [FOUND], "was not checked"),
        ({"verl": None}, (), [FOUND], "verl is not installed here"),
        ({"sections": ()}, (), [FOUND], "has no skip.rollout"),
        ({"shuffled": True}, (), [FOUND], "data.shuffle is True"),
        ({"skip": {"rollout": {"enable": True, "action": "repeat"}}}, (), [FOUND], "action=repeat"),
        ({"skip": {"rollout_tq": {"enable": True}}}, (), [FOUND], "the v0 trainer ignores"),
    ],
)
def test_what_stands_in_the_way_of_a_replay_is_said(changed, steps, there, said):
    plan = stub.replay(setting(**changed), "/r", steps, there)
    assert not plan.ready
    assert any(said in problem for problem in plan.problems), plan.problems


def test_a_run_that_would_load_instead_of_recording_is_not_ready():
    plan = stub.record(SETTING, "/r", (2, 3, 4), [FOUND])
    assert "steps 2-3 already" in plan.problems[0]


def test_recording_without_known_steps_asks_for_them():
    assert "--steps" in stub.record(SETTING, "/r", (), []).problems[0]


def test_steps_are_listed_as_ranges():
    assert stub.listed([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert stub.listed([]) == ""


def test_the_place_of_a_run_is_what_verl_puts_into_the_path():
    config = {
        "trainer": {
            "experiment_name": "e", "project_name": "p",
            "v1": {"trainer_mode": "separate_async", "separate_async": {"parameter_sync_step": 4}},
        },
        "data": {"train_batch_size": 32, "gen_batch_size": 64, "max_prompt_length": 5, "max_response_length": 6},
        "actor_rollout_ref": {"rollout": {"n": 2}},
    }  # fmt: skip
    place = place_of(config)
    assert place.folder == "e_p/GBS64_N2_in5_out6"
    assert place.inner == 4
    assert place_of({"trainer": config["trainer"]}) is None
