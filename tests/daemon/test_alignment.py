# SPDX-License-Identifier: Apache-2.0
"""The checklist while a run goes: workers that differ open an incident, other sides are warned of, equal ones are not."""

import json
import threading

import pytest

from sentinel.core.checklist import Side, parted_workers
from sentinel.daemon.alignment import MISMATCH, load_rules, remarks
from sentinel.daemon.chores import THREADS
from tests.support.sides import changed, golden, target
from tests.support.watching import World


def facts(plain):
    """A fingerprint as a live run tells it."""
    return {name: plain[name] for name in ("process", "workers", "config")}


def codes(here, there=None):
    return [said.code for said in remarks(facts(here), {"facts": facts(there or golden())}, 1.0)]


def test_sides_that_agree_are_not_spoken_of():
    assert codes(target()) == []


def test_a_difference_between_the_sides_is_a_remark_of_its_check():
    assert codes(changed(target(), "process/packages/transformers", {"version": "4.40.0"})) == [
        "checklist.versions.strict"
    ]
    assert codes(changed(target(), "config/effective/actor_rollout_ref.actor.clip_ratio", 0.3)) == [
        "checklist.config.effective"
    ]


def test_a_variable_that_one_worker_lacks_is_a_mismatch_that_names_the_rank():
    here = changed(target(), "workers/3/variables/HCCL_DETERMINISTIC", ...)

    said = remarks(facts(here), None, 1.0)

    assert [one.code for one in said] == [MISMATCH]
    assert "HCCL_DETERMINISTIC differs between the workers" in said[0].text
    assert "not set on rank 3" in said[0].text


def test_a_package_that_differs_between_nodes_is_a_mismatch():
    here = target()
    for worker in here["workers"]:
        worker["packages"] = {"vllm-ascend": {"version": "0.10.1"}}
    assert parted_workers(Side.from_plain(here), load_rules()) == ()
    here["workers"][5]["packages"] = {"vllm-ascend": {"version": "0.9.0"}}

    assert [said.code for said in remarks(facts(here), None, 1.0)] == [MISMATCH]


def test_without_workers_nothing_is_claimed_about_them():
    here = target()
    del here["workers"]

    assert parted_workers(Side.from_plain(here), load_rules()) == ()
    assert "checklist.determinism.env" not in codes({**here, "workers": []})


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.start()
    yield made
    made.stop()


def describe(trainer, plain):
    reply = trainer.send({"t": "facts", "at": 1.0, "facts": plain})
    trainer.world.settle()
    return reply


def incidents(world):
    return list(world.watchdog._watches["r"].snapshot().incidents)


def test_a_run_whose_workers_differ_has_an_incident_with_stage_config(world):
    trainer = world.trainer()
    trainer.steps(1, 2)
    describe(trainer, {"workers": facts(target())["workers"]})
    assert incidents(world) == []

    describe(trainer, {"workers": facts(changed(target(), "workers/3/variables/HCCL_DETERMINISTIC", ...))["workers"]})

    (found,) = incidents(world)
    assert (found.kind, found.stage, found.state) == ("mismatch", "config", "open")
    assert "rank 3" in found.because


def test_the_reply_does_not_wait_for_the_comparison(world):
    """Its threads are busy with something else: the trainer has its answer all the same, the incident comes later."""
    trainer = world.trainer()
    go_on = threading.Event()
    for place in range(THREADS):
        world.watchdog.deeds.beside(("busy", place), go_on.wait, 10)
    plain = {"workers": facts(changed(target(), "workers/3/variables/HCCL_DETERMINISTIC", ...))["workers"]}

    reply = trainer.send({"t": "facts", "at": 1.0, "facts": plain}, trainer.step_record(1))

    assert reply["step"] == 1
    assert incidents(world) == []
    go_on.set()
    world.settle()
    assert [incident.kind for incident in incidents(world)] == ["mismatch"]


@pytest.mark.parametrize("saved", [False, True])
def test_what_was_not_compared_when_the_daemon_was_killed_is_compared_by_the_next(world, saved):
    trainer = world.trainer()
    go_on = threading.Event()
    for place in range(THREADS):
        world.watchdog.deeds.beside(("busy", place), go_on.wait, 10)
    plain = {"workers": facts(changed(target(), "workers/3/variables/HCCL_DETERMINISTIC", ...))["workers"]}
    trainer.send({"t": "facts", "at": 1.0, "facts": plain})
    if saved:
        world.watchdog.with_watch("r", lambda watch: watch.save())
    world.watchdog.deeds._chores._wanted.clear()
    go_on.set()
    world.kill()
    world.start()
    world.settle()

    assert [incident.kind for incident in incidents(world)] == ["mismatch"]
    assert not world.watchdog.with_watch("r", lambda watch: watch.description.waits)


def test_differences_to_the_baseline_are_warnings_of_the_run_and_open_nothing(world):
    lines = world.baseline.read_text().splitlines(keepends=True)
    lines.append(json.dumps({"t": "facts", "at": 2.0, "facts": facts(golden())}) + "\n")
    world.baseline.write_text("".join(lines))
    trainer = world.trainer()
    trainer.step(1)

    describe(trainer, facts(changed(target(), "config/effective/data.shuffle", True)))

    shown = world.watchdog._watches["r"].snapshot()
    assert any(text.startswith("checklist.data.shuffle: ") for text in shown.warnings), shown.warnings
    assert shown.incidents == ()


def test_facts_that_are_nonsense_do_not_hurt(world):
    trainer = world.trainer()
    for plain in ({"workers": 5}, {"workers": [None, 3, {"rank": []}]}, {"process": [], "config": "x"}, "text", None):
        describe(trainer, plain)

    trainer.step(1)
    assert world.watchdog._watches["r"].snapshot().last_step == 1
    assert incidents(world) == []


def test_the_mismatch_is_still_known_after_the_daemon_was_killed(world):
    trainer = world.trainer()
    trainer.steps(1, 2)
    describe(trainer, {"workers": facts(changed(target(), "workers/3/variables/HCCL_DETERMINISTIC", ...))["workers"]})
    world.settle()
    world.kill()
    world.start()
    world.trainer().step(3)

    assert [incident.kind for incident in incidents(world)] == ["mismatch"]


def test_a_trainer_that_says_that_config_json_was_rewritten_has_an_incident(world):
    trainer = world.trainer()
    trainer.step(1)
    text = "config.json of the model was rewritten while the run goes: eos_token_id was 1 and is 2"

    trainer.send({"t": "said", "at": 2.0, "code": "mismatch", "text": text})

    (found,) = incidents(world)
    assert (found.kind, found.stage) == ("mismatch", "config")
    assert "eos_token_id" in found.because


def test_an_incident_names_the_differences_that_could_explain_it(world):
    lines = world.baseline.read_text().splitlines(keepends=True)
    lines.append(json.dumps({"t": "facts", "at": 2.0, "facts": facts(golden())}) + "\n")
    world.baseline.write_text("".join(lines))
    trainer = world.trainer()
    trainer.steps(1, 2)
    describe(trainer, facts(changed(target(), "process/packages/transformers", {"version": "4.40.0"})))

    trainer.step(3, **{"actor/grad_norm": float("nan")})

    (found,) = incidents(world)
    assert found.kind == "non_finite"
    assert any("checklist.versions.strict" in note and "4.40.0" in note for note in found.notes), found.notes


def with_learning_rate(world):
    """The baseline's run, with a learning rate that warms up."""
    lines = []
    for line in world.baseline.read_text().splitlines():
        record = json.loads(line)
        if record["t"] == "step":
            record["values"]["actor/lr"] = rate(record["step"])
        lines.append(json.dumps(record) + "\n")
    world.baseline.write_text("".join(lines))


def rate(step):
    return 1e-6 * min(1.0, step / 10)


@pytest.mark.parametrize(
    ("change", "stage", "metric"),
    [
        (lambda _step: {"prompt_length__mean": 107.0}, "data", "prompt_length/mean"),
        (lambda step: {"actor__lr": 2 * rate(step)}, "config", "actor/lr"),
    ],
)
def test_what_parts_from_the_baseline_at_a_step_is_a_mismatch_of_that_step(world, change, stage, metric):
    """Data in another order from step 12 on; a learning rate that leaves its schedule there."""
    with_learning_rate(world)
    trainer = world.trainer()
    for step in range(1, 12):
        trainer.step(step, actor__lr=rate(step))
    assert incidents(world) == []

    for step in range(12, 14):
        trainer.step(step, **{"actor__lr": rate(step), **change(step)})

    (found,) = incidents(world)
    assert (found.kind, found.stage, found.opened_at_step) == ("mismatch", stage, 12)
    assert {finding.metric for finding in found.findings} == {metric}
