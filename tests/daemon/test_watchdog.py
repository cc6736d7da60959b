"""The daemon without Ray: runs, orders, restarts, and everything that may be wrong with them."""

import json
import math
import os
import resource
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.daemon import references, report_files
from tests.support.receiver import Receiver
from tests.support.watching import World, metrics

BAD = {"actor__grad_norm": math.nan}


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.start()
    yield made
    made.stop()


def shown(world, run="r"):
    return next(snapshot for snapshot in world.watchdog.runs() if snapshot.run == run)


def codes(world, run="r"):
    return {warning.partition(":")[0] for warning in shown(world, run).warnings}


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


def test_an_order_stands_in_every_reply_until_its_receipt(world):
    """A reply that is lost loses no order."""
    trainer = world.trainer()
    trainer.steps(1, 7)
    first = trainer.step(8, **BAD)["orders"]

    assert trainer.send()["orders"] == first
    trainer.obey()
    assert trainer.send()["orders"] == []


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


# --------------------------------------------------------------------------- restarts


def course(world, kill_at, steps=14):
    """A run with a NaN at step 8 whose dump differs; the daemon is killed after the given steps, once or more."""
    trainer = world.trainer()
    for step in range(1, steps + 1):
        trainer.step(step, **(BAD if step == 8 else {}))
        if step in kill_at:
            world.kill()
            world.start()
            trainer.send(trainer.step_record(step, **(BAD if step == 8 else {})))  # the answer was lost
        if step == 9:
            trainer.obey()
    world.settle()
    return shown(world)


def told(snapshot):
    """What must be the same, however often the daemon died."""
    return (
        snapshot.last_step,
        snapshot.steps_seen,
        snapshot.state,
        [(i.id, i.kind, i.state, i.opened_at_step, i.closed_at_step) for i in snapshot.incidents],
        [(i.triage.verdict if i.triage else None, len(i.findings)) for i in snapshot.incidents],
        [(c.id, c.state, c.receipt.outcome if c.receipt else None) for c in snapshot.captures],
    )


@pytest.mark.parametrize("kill_at", [{1}, {7}, {8}, {9}, {12}, {2, 3, 8, 9, 10, 11}, set(range(1, 15))])
def test_a_killed_daemon_goes_on_as_if_it_had_not_been(tmp_path, kill_at):
    """No incident, capture or step is lost, and none is there twice."""
    (tmp_path / "calm").mkdir()
    (tmp_path / "killed").mkdir()
    calm, killed = World(tmp_path / "calm"), World(tmp_path / "killed")
    calm.start()
    killed.start()

    assert told(course(killed, kill_at)) == told(course(calm, set()))
    calm.stop()
    killed.stop()


def test_a_restart_from_a_snapshot_is_the_same_as_from_all_entries(world):
    """Snapshots only make it quick."""
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    world.watchdog.with_watch("r", lambda watch: watch.save())
    trainer.step(9)
    before = told(shown(world))
    world.kill()
    world.start()

    assert told(shown(world)) == before
    assert trainer.send()["orders"][0]["id"] == "r:1/c1"


def test_triage_that_was_under_way_is_asked_again(tmp_path):
    """Killed between the receipt and the answer."""
    world = World(tmp_path)
    world.start()
    gate = threading.Event()
    world.watchdog.deeds._triage = lambda *args: gate.wait(5)  # it never comes back
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    trainer.obey()
    gate.set()
    world.kill()
    world.start()
    world.settle()

    assert shown(world).incidents[0].triage.verdict == "non_finite"
    world.stop()


def test_triage_that_came_is_not_asked_again(world):
    """After a restart nothing is owed."""
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    trainer.obey()
    world.settle()
    world.kill()
    world.start()

    assert world.watchdog.with_watch("r", lambda watch: watch.asked) == {}


@pytest.fixture
def receiver():
    made = Receiver(200)
    yield made
    made.close()


def announced(receiver):
    return [(body["change"], body["incident"]["id"]) for _, body in receiver.got]


def test_an_incident_is_announced_once_over_restarts(tmp_path, receiver):
    """Opened and closed, each once, although the daemon was killed in between."""
    world = World(tmp_path, alerts={"webhook": receiver.url})
    world.start()
    trainer = world.trainer(trainer="attached")
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    world.settle()
    world.kill()
    world.start()
    world.settle()
    trainer.steps(9, 10)
    world.settle()
    world.stop()

    told = announced(receiver)
    assert told.count(("opened", "r:1")) == 1
    assert told.count(("closed", "r:1")) == 1
    assert told[0][0] == "opened"


def test_a_dump_is_announced_once(tmp_path, receiver):
    """Not the order, not the receipt: what the dump showed."""
    world = World(tmp_path, alerts={"webhook": receiver.url})
    world.start()
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    world.settle()
    trainer.obey()
    world.settle()
    trainer.step(9)
    world.settle()
    world.stop()

    assert announced(receiver) == [("opened", "r:1"), ("evidence", "r:1"), ("closed", "r:1")]
    assert receiver.got[1][1]["incident"]["triage"]["verdict"] == "non_finite"


def test_an_announcement_that_was_under_way_is_made_after_the_restart(tmp_path, receiver):
    """Killed before the webhook was reached."""
    world = World(tmp_path, alerts={"webhook": receiver.url})
    world.start()
    world.watchdog.deeds._alert = lambda *args: None
    trainer = world.trainer(trainer="attached")
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    world.settle()
    world.kill()
    assert announced(receiver) == []
    world.start()
    world.settle()
    world.stop()

    assert ("opened", "r:1") in announced(receiver)


def test_a_webhook_in_trouble_is_a_fault_in_the_status(tmp_path):
    """Nobody listens there; the watch goes on."""
    world = World(tmp_path, alerts={"webhook": "http://127.0.0.1:9/"})
    world.start()
    trainer = world.trainer(trainer="attached")
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    world.settle()

    assert any("webhook at 127.0.0.1" in fault for fault in world.watchdog.deeds.faults)
    assert world.watchdog.deeds.alerts_failed > 0
    assert trainer.step(9)["step"] == 9
    world.stop()


def test_reports_that_were_not_written_are_written(world):
    """Killed before the report's thread came to it."""
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    world.settle()
    folder = report_files.folder(world.watchdog.home, "r:1")
    (folder / "report.html").unlink()
    world.kill()
    world.start()
    world.settle()

    assert (folder / "report.html").is_file()


def test_a_state_of_another_version_begins_anew_and_keeps_what_was_decided(world):
    """An upgrade that cannot read the engine's state still knows the incidents, and numbers go on."""
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)

    def spoil(watch):
        watch.save()
        (path,) = watch.keeper._journal.folder.glob("snapshot-*.json")
        from sentinel.storage import entry_lines

        entry = entry_lines.decode(path.read_bytes())
        payload = dict(entry.payload) | {"state": {"version": 99}}
        path.write_bytes(entry_lines.encode(entry.seq, "snapshot", payload))

    world.watchdog.with_watch("r", spoil)
    world.kill()
    world.start()
    trainer.steps(9, 24)
    trainer.step(25, actor__pg_loss=math.inf)

    assert "state_unread" in codes(world)
    assert [i.id for i in shown(world).incidents] == ["r:1", "r:2"]


def test_a_torn_journal_is_repaired_and_said(world):
    """The last record was cut off in the middle."""
    trainer = world.trainer()
    trainer.steps(1, 5)
    path = world.watchdog.with_watch("r", lambda watch: watch.keeper._journal._path)
    world.kill()
    path.write_bytes(path.read_bytes()[:-20])
    world.start()

    assert shown(world).last_step == 4
    assert "journal_repaired" in codes(world)
    assert trainer.step(5)["step"] == 5


def test_a_full_disk_does_not_stop_the_watch(world):
    """It keeps watching, says so, and recovers."""
    trainer = world.trainer()
    trainer.steps(1, 5)

    size = world.watchdog.with_watch("r", lambda watch: watch.keeper._journal._path.stat().st_size)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    trainer.steps(6, 7)
    assert len(trainer.step(8, **BAD)["orders"]) == 1
    assert "journal_unwritten" in codes(world)
    assert trainer.step(9)["step"] == 9
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    world.settle()
    trainer.step(10)
    world.settle()
    trainer.step(11)
    assert "journal_unwritten" not in codes(world)
    world.kill()
    world.start()

    assert shown(world).last_step == 11
    assert [i.id for i in shown(world).incidents] == ["r:1"]


def test_a_journal_that_another_daemon_writes_is_said(world):
    """The run is watched, and nothing would survive."""
    world.trainer().step(1)
    other = World.__new__(World)
    other.__dict__.update(world.__dict__)
    other.start()
    assert other.watchdog.runs() == ()
    assert "another daemon" in other.watchdog.left_out["r"]
    trainer = other.trainer()
    trainer.step(2)

    assert other.watchdog.left_out == {}
    assert "journal_closed" in codes(other)
    assert trainer.reply["step"] == 2
    other.stop()


def test_a_changed_baseline_counts_from_the_next_attempt(world):
    """The settings of a restart are other ones: incidents stay, judging goes by the new baseline."""
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    trainer.session, trainer.config = "session-2", {"path": None, "text": "home: x"}
    world.clock.now += 1000
    trainer.introduce()
    trainer.steps(9, 12)
    before = told(shown(world))
    assert shown(world).regime == "alone"
    world.kill()
    world.start()

    assert told(shown(world)) == before
    assert [i.id for i in shown(world).incidents] == ["r:1"]


def test_a_finished_run_is_still_known_after_a_restart(world):
    """With its incidents."""
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    trainer.end()
    world.kill()
    world.start()

    assert shown(world).state == "finished"
    assert shown(world).baseline == str(world.baseline)
    assert [i.id for i in shown(world).incidents] == ["r:1"]


def test_many_finished_runs_do_not_hold_up_a_restart(world, monkeypatch):
    """Their baselines are not read; one that goes on again has its own at once, and after the next kill, too."""
    for number in range(3):
        trainer = world.trainer(f"r{number}", f"s{number}")
        trainer.steps(1, 5)
        trainer.end()
    world.settle()
    world.kill()
    read = []
    monkeypatch.setattr(
        references, "load_reference", lambda path, load=references.load_reference: read.append(1) or load(path)
    )
    world.start()
    assert read == []
    trainer.session = "again"
    trainer.introduce()
    trainer.steps(6, 12)
    before = told(shown(world, "r2"))
    assert (len(read), shown(world, "r2").regime) == (1, "replayed")
    world.kill()
    world.start()

    assert told(shown(world, "r2")) == before
    assert shown(world, "r2").regime == "replayed"


@settings(max_examples=12, deadline=None)
@given(
    plan=st.lists(st.sampled_from(["step", "bad", "kill", "again", "obey", "save", "settle"]), min_size=3, max_size=18)
)
def test_any_order_of_steps_faults_and_kills_tells_the_same(tmp_path_factory, plan):
    """A course with kills in it ends as the same course without."""
    outcomes = []
    for kills in (False, True):
        world = World(tmp_path_factory.mktemp("world"))
        world.start()
        trainer = world.trainer()
        step, last = 0, None
        for what in ["step", *plan]:
            if what in ("step", "bad"):
                step += 1
                last = trainer.step_record(step, **(BAD if what == "bad" else {}))
                trainer.send(last)
            elif what == "again":
                trainer.send(last)
            elif what == "obey":
                trainer.obey()
                world.settle()
            elif what == "settle":
                world.settle()
            elif kills and what == "kill":
                world.settle()
                world.kill()
                world.start()
            elif kills and what == "save":
                world.watchdog.with_watch("r", lambda watch: watch.save())
        world.settle()
        outcomes.append(told(shown(world)))
        world.stop()

    assert outcomes[0] == outcomes[1]


def test_metrics_of_the_world_are_healthy():
    """The world's own steps are what the baseline holds."""
    assert metrics(3) == metrics(3)
    assert metrics(3) != metrics(4)
