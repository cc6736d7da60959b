# SPDX-License-Identifier: Apache-2.0
"""The daemon reads a run's rollouts while it goes: garbled text is an incident, and so is a replay that did not happen."""

import json
import os

import pytest

from tests.support.watching import World, codes, shown

SOUND = "We add the two numbers, so the answer is 42 and that is all."
BROKEN = 'лампа 隧道 kőris("&q ухабы ನೀಲಿ .getRow 烤箱 zaručený ##~ ถังไม้ unrollable пряжа 竹篮 =>% kıvılcım'


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.start()
    yield made
    made.stop()


def write(folder, step, *outputs):
    folder.mkdir(exist_ok=True)
    rows = (
        json.dumps({"input": f"q{n}", "output": text, "score": 1.0, "step": step}) for n, text in enumerate(outputs)
    )
    (folder / f"{step}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


def kinds(world):
    world.settle()
    return [(i.kind, i.stage, i.opened_at_step) for i in shown(world).incidents]


def run(world, folder, texts, **facts):
    """Steps 1, 2, ... with their rollouts; each is judged."""
    trainer = world.trainer(rollout_data_dir=str(folder), **facts)
    for step, outputs in enumerate(texts, 1):
        write(folder, step, *outputs)
        trainer.step(step)
        world.settle()
    return trainer


def test_sound_text_opens_nothing(world, tmp_path):
    trainer = run(world, tmp_path / "text", [[SOUND] * 8] * 3)
    trainer.end()
    assert kinds(world) == []


def test_text_that_breaks_after_an_update_points_at_the_weight_sync(world, tmp_path):
    run(world, tmp_path / "text", [[SOUND] * 8, [SOUND] * 8, [BROKEN] * 7 + [SOUND], [SOUND] * 8])
    assert kinds(world) == [("collapse", "rollout", 3)]
    incident = shown(world).incidents[0]
    assert "7 of 8 rollouts of step 3 are garbled" in incident.because
    assert "weight sync" in incident.because
    assert any(note.startswith("What to compare: the weights") for note in incident.notes)


def test_the_last_file_of_a_run_is_judged_when_the_run_ends(world, tmp_path):
    trainer = run(world, tmp_path / "text", [[SOUND] * 8, [BROKEN] * 8])
    assert kinds(world) == []
    trainer.end()
    assert kinds(world) == [("collapse", "rollout", 2)]


def test_a_file_that_still_grows_is_not_judged_until_it_has_stopped(world, tmp_path):
    folder = tmp_path / "text"
    trainer = run(world, folder, [[SOUND] * 8])
    write(folder, 2, *[BROKEN] * 6)
    trainer.step(2)
    world.settle()
    write(folder, 2, *[BROKEN] * 6, *[SOUND] * 90)
    world.watchdog.tick()
    assert kinds(world) == []
    world.watchdog.tick()
    assert kinds(world) == []
    assert shown(world).last_step == 2


def test_broken_from_the_first_rollout_on_says_what_load_format_means(world, tmp_path):
    effective = {"actor_rollout_ref": {"rollout": {"load_format": "dummy"}}}
    folder = tmp_path / "text"
    trainer = world.trainer(rollout_data_dir=str(folder))
    trainer.send({"t": "facts", "at": 1.0, "facts": {"config": {"effective": effective}}})
    write(folder, 1, *[BROKEN] * 8)
    trainer.step(1)
    trainer.step(2)
    assert kinds(world) == [("collapse", "rollout", 1)]
    incident = shown(world).incidents[0]
    assert "load_format=dummy: resharding or weight load" in incident.because
    assert any("stays suspicious" in note for note in incident.notes)


def test_broken_after_nan_points_at_the_update_before(world, tmp_path):
    folder = tmp_path / "text"
    trainer = run(world, folder, [[SOUND] * 8])
    write(folder, 2, *[SOUND] * 8)
    trainer.step(2, **{"actor/grad_norm": float("nan")})
    world.settle()
    write(folder, 3, *["!" * 200] * 8)
    trainer.step(3)
    world.settle()
    trainer.step(4)
    world.settle()
    found = [f for i in shown(world).incidents for f in i.findings if f.detector == "rollout_text"]
    assert [(f.step, f.stage) for f in found] == [(3, "actor_update")]


def test_a_baseline_without_language_makes_the_verdict_unknown(tmp_path):
    from sentinel.daemon.references import load_reference
    from sentinel.storage.bundle import write_bundle

    world = World(tmp_path)
    for step in (1, 2):
        write(tmp_path / "golden", step, *[BROKEN] * 8)
    bundle = tmp_path / "b.sentinel"
    write_bundle(bundle, name="b", runs=load_reference(world.baseline).runs, rollouts=tmp_path / "golden")
    world.config = json.dumps({"home": "home", "baseline": str(bundle)})
    world.start()
    trainer = run(world, tmp_path / "text", [[BROKEN] * 8] * 2)
    trainer.end()
    assert kinds(world) == []
    assert "rollout_text_unknown" in codes(world)
    world.stop()


def test_a_folder_of_another_machine_is_no_fault_and_it_is_said_that_text_is_not_judged(world):
    trainer = world.trainer(rollout_data_dir="/nowhere/of/this/machine")
    trainer.step(1)
    world.settle()
    assert "rollout_text_unseen" not in codes(world), "verl makes the folder with the first step's file"
    trainer.steps(2, 3)
    assert kinds(world) == []
    assert "rollout_text_unseen" in codes(world)


# --------------------------------------------------------------------------- replay


def asked(section="rollout_tq", steps=(1, 2, 3, 4), folder="/rollouts", **more):
    skip = {section: {"enable": True, "steps": list(steps), "dump_dir": str(folder), "action": "cache"}}
    return {"config": {"effective": {"skip": skip, **more}}}


def replaying(world, facts, seconds, **config):
    trainer = world.trainer(**config)
    trainer.send({"t": "facts", "at": 1.0, "facts": facts})
    for step, gen in enumerate(seconds, 1):
        trainer.step(step, **{"timing_s/gen": gen, "timing_s/step": 10.0})
        world.settle()
    return trainer


def test_a_replay_that_happens_is_silent(world):
    replaying(world, asked(), [0.02, 0.02, 0.03, 0.02])
    assert kinds(world) == []


def test_a_replay_that_happened_and_agrees_ends_in_the_decision(world):
    trainer = replaying(world, asked(), [0.02, 0.02, 0.03, 0.02])
    assert not any(code.startswith("decision") for code in codes(world))
    trainer.end()
    world.settle()
    assert "decision_inference" in codes(world)
    said = next(w for w in shown(world).warnings if w.startswith("decision_inference"))
    assert "training is sound" in said


def test_a_replay_that_was_asked_for_and_did_not_happen_is_an_incident_of_the_configuration(world):
    replaying(world, asked(), [0.02, 6.0, 7.0, 6.5])
    assert kinds(world) == [("mismatch", "config", 2)]
    incident = shown(world).incidents[0]
    assert "A replay was asked for (skip.rollout_tq.enable=True) and did not happen at step 2" in incident.because
    assert any("sentinel stub replay" in note for note in incident.notes)


SIZES = {
    "trainer": {"experiment_name": "new", "project_name": "project"},
    "data": {"train_batch_size": 8, "max_prompt_length": 48, "max_response_length": 16},
    "actor_rollout_ref": {"rollout": {"n": 4}},
}


def write_recorded(root, step, at):
    """A step's recording under the names of the run, written at a time."""
    meta = root / "new_project" / "GBS8_N4_in48_out16" / str(step) / "0" / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text('{"global_steps": 1}')
    os.utime(meta, (at, at))


def test_a_recording_that_the_run_wrote_itself_proves_at_the_first_step_that_nothing_was_replayed(world, tmp_path):
    trainer = world.trainer()
    trainer.send({"t": "facts", "at": 1.0, "facts": asked(folder=tmp_path / "dumps", **SIZES)})
    write_recorded(tmp_path / "dumps", 1, world.clock.now + 5)
    trainer.step(1, **{"timing_s/gen": 1.0, "timing_s/step": 10.0})
    assert kinds(world) == [("mismatch", "config", 1)]
    assert "the run wrote one itself" in shown(world).incidents[0].because


def test_a_recording_that_was_there_before_the_run_proves_nothing_against_it(world, tmp_path):
    write_recorded(tmp_path / "dumps", 1, world.clock.now - 5)
    replaying(world, asked(folder=tmp_path / "dumps", **SIZES), [0.02])
    assert kinds(world) == []


def test_one_slow_step_of_a_replay_is_no_proof(world):
    replaying(world, asked(), [0.02, 6.0, 6.0, 0.02])
    assert kinds(world) == []


def test_the_incident_says_where_the_run_looks_and_what_lies_there(world, tmp_path):
    there = tmp_path / "dumps" / "old_project" / "GBS8_N4_in48_out16" / "1" / "0"
    there.mkdir(parents=True)
    (there / "tq_batch.pt").write_bytes(b"x")
    (there / "meta.json").write_text('{"global_steps": 1}')
    sizes = {
        "trainer": {"experiment_name": "new", "project_name": "project"},
        "data": {"train_batch_size": 8, "max_prompt_length": 48, "max_response_length": 16},
        "actor_rollout_ref": {"rollout": {"n": 4}},
    }
    replaying(world, asked(folder=tmp_path / "dumps", **sizes), [6.0] * 3)
    notes = " ".join(shown(world).incidents[0].notes)
    assert "new_project/GBS8_N4_in48_out16" in notes
    assert "What lies there is old_project/GBS8_N4_in48_out16" in notes


def test_an_empty_list_of_steps_and_the_section_of_another_trainer_are_told_at_once(world):
    replaying(world, asked(steps=()), [6.0, 6.0])
    assert "steps is empty" in shown(world).incidents[0].because


def test_the_section_of_another_trainer_is_told(world):
    replaying(world, asked(section="rollout"), [6.0, 6.0])
    assert "this trainer obeys skip.rollout_tq only" in shown(world).incidents[0].because


def test_a_run_without_baseline_or_in_free_comparison_may_record(tmp_path):
    for number, settings in enumerate(({"baseline": None}, {"regime": "free"})):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder, **settings)
        if "baseline" in settings:
            world.config = json.dumps({"home": "home"})
        world.start()
        replaying(world, asked(), [6.0, 6.0])
        assert kinds(world) == []
        world.stop()


def test_a_step_that_was_not_asked_for_may_generate(world):
    replaying(world, asked(steps=(1, 2)), [0.02, 0.02, 6.0])
    assert kinds(world) == []
