"""The daemon without Ray: runs, orders, restarts, and everything that may be wrong with them."""

import json
import math
import os

import pytest

from sentinel.daemon import report_files
from tests.support.watching import World, codes, metrics, shown

BAD = {"actor__grad_norm": math.nan}


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.start()
    yield made
    made.stop()


def test_a_healthy_run_is_watched_in_silence(world):
    """Thirty steps like the baseline's: no incident, no order."""
    reply = world.trainer().steps(1, 30)

    assert (reply["step"], reply["orders"]) == (30, [])
    assert shown(world).state == "watching"
    assert shown(world).incidents == ()
    assert shown(world).baseline == str(world.baseline)


def test_the_verdict_on_a_step_is_in_the_reply(world):
    """NaN at step 8: the answer to step 8 orders the dump of step 9."""
    trainer = world.trainer()
    trainer.steps(1, 7)
    (order,) = trainer.step(8, **BAD)["orders"]

    assert (order["first_step"], order["stages"], order["run"]) == (9, ["actor_update"], "r")
    assert trainer.reply["settings"]["wait_seconds"] == 0.05
    assert os.path.isabs(trainer.reply["settings"]["dump_root"])


@pytest.mark.parametrize("regime", ["free", "replayed"])
def test_the_regime_that_the_settings_name_is_the_one_that_judges(tmp_path, regime):
    """Not recognised anew, whatever the first steps look like; after a restart, too."""
    world = World(tmp_path, regime=regime)
    world.start()
    trainer = world.trainer()
    trainer.steps(1, 8 if regime == "free" else 1)

    assert shown(world).regime == regime
    world.kill()
    world.start()
    assert shown(world).regime == regime
    world.stop()


def test_an_order_stands_in_every_reply_until_its_receipt(world):
    """A reply that is lost loses no order."""
    trainer = world.trainer()
    trainer.steps(1, 7)
    first = trainer.step(8, **BAD)["orders"]

    assert trainer.send()["orders"] == first
    trainer.obey()
    after = [order["id"] for order in trainer.send()["orders"]]
    assert first[0]["id"] not in after  # another one may be out: nothing could be compared


def test_a_dump_is_compared_and_the_answer_joins_the_incident(world):
    """Order, receipt, triage, report: one incident with all of it, and its files."""
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, actor__grad_norm=50.0)
    trainer.obey(norm=3.0)
    world.settle()
    (incident,) = shown(world).incidents

    assert incident.receipt.outcome == "complete"
    assert incident.triage.verdict == "diverged"
    assert incident.triage.first.module == "model.lm_head"
    folder = report_files.folder(world.watchdog.home, incident.id)
    document = json.loads((folder / "incident.json").read_text())
    assert document["triage"]["first"]["module"] == "model.lm_head"
    assert "model.lm_head" in (folder / "report.html").read_text()
    assert "model.lm_head" in (folder / "report.md").read_text()


def test_a_dump_that_cannot_be_read_is_said(world):
    """The trainer says it dumped, and there is nothing."""
    trainer = world.trainer()
    trainer.steps(1, 7)
    (order,) = trainer.step(8, **BAD)["orders"]
    receipt = {"first_step": 9, "last_step": 9, "stages": ["actor_update"], "outcome": "complete"}
    paths = ["/nowhere/step_9/actor_update"]
    trainer.send({"t": "receipt", "capture": order["id"], "at": 1.0, "receipt": {**receipt, "paths": paths}})
    world.settle()

    assert shown(world).incidents[0].triage.verdict == "not_comparable"
    assert shown(world).incidents[0].triage.notes


def test_two_runs_at_once_do_not_touch_each_other(world):
    """One is faulty, the other stays healthy."""
    one, two = world.trainer("one", "s1"), world.trainer("two", "s2")
    for step in range(1, 10):
        one.step(step, **(BAD if step == 8 else {}))
        two.step(step)

    assert len(shown(world, "one").incidents) == 1
    assert shown(world, "two").incidents == ()
    assert shown(world, "two").last_step == 9


def test_a_second_run_of_the_same_name_is_watched_under_another(world):
    """Nothing stays unwatched, and neither run's numbers reach the other's judgement."""
    one = world.trainer("r", "s1", host="a")
    one.steps(1, 5)
    two = world.trainer("r", "s2", host="b")
    two.step(1, **BAD)

    assert two.reply["run"] == "r~2"
    assert "another run named r" in next(w for w in shown(world, "r~2").warnings if w.startswith("name_taken"))
    assert one.step(6)["run"] == "r"
    assert shown(world, "r").incidents == ()
    assert len(shown(world, "r~2").incidents) == 1


def test_a_run_that_crashed_and_starts_again_keeps_its_name(world):
    """Its process is gone on this host: a new attempt."""
    world.alive = {1: False, 2: True}
    world.trainer("r", "s1", pid=1).steps(1, 9)
    again = world.trainer("r", "s2", pid=2)
    again.steps(6, 9)

    assert again.reply["run"] == "r"
    assert shown(world).last_step == 9
    assert len(world.watchdog.runs()) == 1


def test_the_name_of_a_finished_run_may_be_used_again(world):
    """Goodbye gives the name back."""
    world.trainer("r", "s1").steps(1, 5)
    world.trainer("r", "s1").end()
    assert shown(world).state == "finished"

    reply = world.trainer("r", "s2", host="elsewhere").step(1)

    assert reply["run"] == "r"
    assert shown(world).state == "watching"


def test_a_step_that_goes_back_is_a_restart_and_no_fault(world):
    """A rewound run is judged on from there."""
    trainer = world.trainer()
    trainer.steps(1, 9)
    trainer.session = "session-two"
    world.clock.now += 1000
    trainer.steps(4, 12)

    assert shown(world).incidents == ()
    assert shown(world).last_step == 12


def test_what_is_sent_again_counts_once(world):
    """The answer was lost, so the trainer's side sends the step again."""
    trainer = world.trainer()
    trainer.steps(1, 5)
    before = shown(world)
    trainer.send(trainer.step_record(5), trainer.step_record(4))

    assert shown(world).steps_seen == before.steps_seen
    assert shown(world).last_step == 5


def test_metrics_that_are_no_numbers_are_named(world):
    """Text, arrays and None: said once, the rest is judged."""
    trainer = world.trainer()
    record = trainer.step_record(1)
    record["values"] |= {"a": "text", "b": [1.0], "c": None}
    reply = trainer.send(record)

    assert reply["step"] == 1
    assert any("a, b, c" in warning or "a" in warning for warning in shown(world).warnings)


def test_an_unreadable_baseline_is_said_and_the_run_is_watched(world):
    """Never healthy by default: no baseline is shown, and the rules that need none still hold."""
    world.baseline.write_bytes(b"\x00\x01garbage")
    trainer = world.trainer()
    trainer.steps(1, 7)

    assert shown(world).baseline is None
    assert "baseline_unreadable" in codes(world)
    assert shown(world).regime == "alone"
    assert len(trainer.step(8, **BAD)["orders"]) == 1


def test_a_missing_baseline_is_said_too(world):
    """The path leads nowhere."""
    world.baseline.unlink()
    world.trainer().step(1)

    assert "baseline_unreadable" in codes(world)


def test_a_run_without_a_baseline_is_told(world):
    """None was named."""
    trainer = world.trainer()
    trainer.config = {"path": None, "text": "home: x"}
    trainer.introduce()
    trainer.step(1)

    assert "no_baseline" in codes(world)
    assert shown(world).baseline is None


def test_settings_that_are_at_fault_are_said_and_the_run_is_watched(world):
    """An unknown key in a run's file."""
    trainer = world.trainer()
    trainer.config = {"path": "/x/sentinel.yaml", "text": "bseline: /gold"}
    trainer.introduce()
    trainer.step(1)

    assert any("did you mean 'baseline'" in warning for warning in shown(world).warnings)
    assert shown(world).last_step == 1


def test_a_run_reads_nothing_from_the_daemons_environment(world, monkeypatch):
    """Its settings come with its messages."""
    monkeypatch.setenv("SENTINEL_CONFIG", "/nowhere.yaml")
    monkeypatch.setenv("SENTINEL_RUN", "other")
    world.trainer().step(1)

    assert shown(world, "r").baseline == str(world.baseline)


def test_an_attached_run_orders_no_dump(world):
    """No trainer listens: capture null, and a receipt that says why."""
    trainer = world.trainer(trainer="attached")
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    (incident,) = shown(world).incidents

    assert trainer.reply["orders"] == []
    assert incident.capture is None
    assert (incident.receipt.outcome, "no trainer listens" in incident.receipt.why) == ("refused", True)


def test_a_daemon_that_does_not_know_a_run_asks_for_its_settings(world):
    """All journals lost: the trainer is asked to introduce itself again."""
    trainer = world.trainer()
    assert "introduce" not in trainer.reply
    other = type(trainer)(world, "unknown", "s", {})

    assert other.step(3)["introduce"]


@pytest.mark.parametrize("message", [None, 7, {}, {"run": ""}, {"v": 1, "run": "x", "records": "text"}, {"run": "\n"}])
def test_any_message_is_answered(world, message):
    """A broken message is answered with its faults."""
    reply = world.watchdog.report(message)

    assert reply["v"] == 1
    assert reply.get("faults") or reply["run"] == "x"


def test_a_bug_in_the_engine_is_said_and_ends_nothing(world):
    """A step that breaks the engine: the reply comes, the next step is judged, and a restart does not fail on it."""
    trainer = world.trainer()
    trainer.steps(1, 3)

    def broken(watch, advance):
        def fails(state, event):
            if getattr(event, "step", 0) == 4:
                raise ZeroDivisionError("a bug")
            return advance(state, event)

        watch.prepared.engine.advance = fails

    world.watchdog.with_watch("r", lambda watch: broken(watch, watch.prepared.engine.advance))
    assert trainer.step(4)["step"] == 3
    assert "ZeroDivisionError" in next(w for w in shown(world).warnings if w.startswith("internal"))
    assert trainer.step(5)["step"] == 5
    world.kill()
    world.start()

    assert shown(world).last_step == 5


def test_a_snapshot_that_makes_no_sense_does_not_keep_the_daemon_away(world):
    """Its fields are gone; the run is watched from its next step on."""
    trainer = world.trainer()
    trainer.steps(1, 3)
    world.watchdog.with_watch("r", lambda watch: watch.keeper.write_snapshot({"v": 1}))
    world.kill()
    world.start()

    assert "journal_unread" in codes(world)
    assert trainer.step(4)["step"] == 4


def test_metrics_that_are_for_ever_new_are_bounded(world):
    """A name with a number in it: memory is bounded, it is said, and the known metrics are judged on."""
    trainer = world.trainer()
    for step in range(1, 5):
        record = trainer.step_record(step)
        record["values"] |= {f"new/{step}/{number}": 1.0 for number in range(2500)}
        trainer.send(record)

    assert "too_many_metrics" in codes(world)
    assert len(shown(world).metrics) < 6000
    trainer.steps(5, 7)
    assert len(trainer.step(8, **BAD)["orders"]) == 1


def test_hostile_names_make_no_path(world):
    """A run named like a path stays inside the home folder."""
    name = "../../../etc/passwd\n\x00'\"<script>" + "x" * 10_000
    trainer = world.trainer(name)
    trainer.steps(1, 3)
    trainer.step(4, **BAD)
    world.settle()
    inside = {path.name for path in world.folder.iterdir()}

    assert inside == {"golden.jsonl", "golden.jsonl.dumps", "home"}
    assert len(list((world.folder / "home" / "incidents").iterdir())) == 1


def test_silence_is_noticed(world):
    """Nothing for hours: the run is silent, and finished runs are not."""
    world.trainer("going").steps(1, 5)
    world.trainer("done", "s9").steps(1, 5)
    world.trainer("done", "s9").end()
    world.clock.now += 100_000
    world.watchdog.tick()

    assert shown(world, "going").state == "silent"
    assert shown(world, "done").state == "finished"


def test_metrics_of_the_world_are_healthy():
    """The world's own steps are what the baseline holds."""
    assert metrics(3) == metrics(3)
    assert metrics(3) != metrics(4)
