# SPDX-License-Identifier: Apache-2.0
"""What the journal is for: a killed daemon goes on as if it had not been; a disk in trouble is said and survived."""

import math
import resource
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.daemon import references, report_files
from tests.support.watching import World, codes, shown, told

BAD = {"actor__grad_norm": math.nan}


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.start()
    yield made
    made.stop()


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
    other = another(world)
    assert other.watchdog.runs() == ()
    assert "another daemon" in other.watchdog.left_out["r"]
    trainer = other.trainer()
    trainer.step(2)

    assert other.watchdog.left_out == {}
    assert "journal_closed" in codes(other)
    assert trainer.reply["step"] == 2
    other.stop()


def another(world):
    """A daemon of another cluster with the same home folder."""
    made = World.__new__(World)
    made.__dict__.update(world.__dict__)
    made.start()
    return made


def test_when_the_other_daemon_ends_this_one_takes_over_what_it_left(world):
    """Runs that it has not seen, and one that reports here meanwhile."""
    for run, session in (("r", "s1"), ("gone", "s22")):
        trainer = world.trainer(run, session)
        trainer.steps(1, 7)
    trainer.step(8, **BAD)
    other = another(world)
    trainer = other.trainer("r", "s333")
    trainer.step(8)
    assert "journal_closed" in codes(other)
    world.settle()
    world.kill()

    other.watchdog.tick()
    other.settle()
    assert other.watchdog.left_out == {}
    assert [i.id for i in shown(other, "gone").incidents] == ["gone:1"]
    assert "journal_closed" not in codes(other)
    assert trainer.step(9)["step"] == 9
    other.kill()
    world.start()

    assert shown(world).last_step == 9
    assert [i.id for i in shown(world, "gone").incidents] == ["gone:1"]


def test_with_incidents_on_both_sides_neither_is_forgotten(world):
    """The journal stays as the other daemon left it; this one goes on from memory, and says so."""
    first = world.trainer()
    first.steps(1, 7)
    first.step(8, **BAD)
    other = another(world)
    second = other.trainer("r", "s333")
    second.step(1, **BAD)
    world.settle()
    world.kill()
    other.watchdog.tick()

    assert "journal_closed" in codes(other)
    assert [i.opened_at_step for i in shown(other).incidents] == [1]
    other.kill()
    world.start()
    assert [i.opened_at_step for i in shown(world).incidents] == [8]


def test_a_home_that_can_be_written_again_keeps_everything_from_then_on(world):
    """Also the incidents of the time when it could not."""
    home = world.watchdog.home
    home.mkdir(parents=True, exist_ok=True)
    (home / "journal").write_text("in the way")
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    assert "journal_closed" in codes(world)
    (home / "journal").unlink()
    world.watchdog.tick()
    world.settle()

    assert "journal_closed" not in codes(world)
    trainer.step(9)
    before = told(shown(world))
    world.kill()
    world.start()
    assert told(shown(world)) == before


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


JOURNAL_OF_FORMAT_1 = Path(__file__).parents[1] / "data" / "journal-1"


def test_a_journal_of_the_first_format_is_taken_up_with_everything_in_it(tmp_path):
    """Written by the version of 2026-11: a snapshot, entries after it, two incidents, a capture that is done and one that is not.

    It stays as it is for ever, and this must go on passing. Only what detectors had learnt may begin anew, and is said then.
    """
    world = World(tmp_path)
    shutil.copytree(JOURNAL_OF_FORMAT_1, tmp_path / "home" / "journal")
    world.start()
    world.settle()
    found = shown(world, "运行 1")

    assert (found.last_step, found.steps_seen) == (23, 23)
    assert [(i.id, i.kind, i.state, i.opened_at_step, i.closed_at_step) for i in found.incidents] == [
        ("运行 1:1", "non_finite", "closed", 8, 9),
        ("运行 1:2", "non_finite", "closed", 21, 22),
    ]
    assert found.incidents[0].triage is not None
    assert {c.id: c.state for c in found.captures} == {"运行 1:1/c1": "done", "运行 1:2/c1": "ordered"}
    assert any("out of memory" in warning for warning in found.warnings)
    assert "journal_unread" not in codes(world, "运行 1")
    trainer = world.trainer("运行 1")
    assert trainer.step(24)["step"] == 24
    world.stop()
