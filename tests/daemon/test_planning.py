"""From a run's settings to what watches it."""

import os
import threading

import pytest

from sentinel.daemon import planning, references
from sentinel.daemon.planning import Config, Planner
from sentinel.settings import Settings, parse
from tests.support.watching import CATALOGUE, World, write_baseline


@pytest.fixture
def planner(tmp_path):
    return Planner(parse(f"home: {tmp_path}/home"), CATALOGUE)


def test_the_runs_own_settings_hold(planner, tmp_path):
    """Baseline, regime, engine and dump folder are the run's."""
    write_baseline(tmp_path / "gold.jsonl")
    text = "baseline: gold.jsonl\nregime: free\nengine: {past_steps: 9}\ntrainer: {dump_root: /big/disk, wait_seconds: 0}\n"
    plan = planner.plan("r", Config(path=str(tmp_path / "s.yaml"), text=text))
    prepared = planner.prepare(plan)

    assert (plan.baseline, plan.regime, plan.wait_seconds) == (str(tmp_path / "gold.jsonl"), "free", 0.0)
    assert plan.dump_root.startswith("/big/disk/r-")
    assert prepared.engine.settings.past_steps == 9
    assert len(prepared.reference.runs[0].readings) == 30
    assert prepared.remarks == {}


def test_a_run_without_settings_has_the_daemons(tmp_path):
    """A baseline that the daemon was started with."""
    write_baseline(tmp_path / "gold.jsonl")
    planner = Planner(Settings(baseline=str(tmp_path / "gold.jsonl")), CATALOGUE)

    assert planner.plan("r", Config()).baseline == str(tmp_path / "gold.jsonl")


def test_dump_folders_of_any_name_suit_msprobe(planner):
    """No blank and no `=` in a path made of a run's name."""
    root = planner.plan("a b=c/../d", Config()).dump_root

    assert not set(root) & set(" =")
    assert "/../" not in root


def test_the_signature_tells_when_the_question_changed(planner, tmp_path):
    """Same text and file: same; another text, or a baseline written anew: another."""
    path = write_baseline(tmp_path / "gold.jsonl")
    config = Config(path=str(tmp_path / "s.yaml"), text="baseline: gold.jsonl")
    before = planner.plan("r", config).signature

    assert planner.plan("r", config).signature == before
    assert planner.plan("r", Config(path=config.path, text="baseline: gold.jsonl\nregime: free")).signature != before
    os.utime(path, (1, 1))
    assert planner.plan("r", config).signature != before


def test_a_baseline_on_a_file_system_that_hangs_is_given_up(planner, tmp_path, monkeypatch):
    """The other runs must not wait for it."""
    gate = threading.Event()
    monkeypatch.setattr(references, "load_reference", lambda path: gate.wait(10))
    monkeypatch.setattr(planning, "BASELINE_SECONDS", 0.1)
    prepared = planner.prepare(planner.plan("r", Config(text="baseline: /hanging")))
    gate.set()

    assert prepared.reference is None
    assert "could not be read within" in prepared.remarks["baseline_unreadable"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"\xff" * 100, b'{"t":"start"}\n'])
def test_any_damaged_baseline_is_a_remark(planner, tmp_path, content):
    """Never an exception, never silence."""
    (tmp_path / "gold").write_bytes(content)
    prepared = planner.prepare(planner.plan("r", Config(text=f"baseline: {tmp_path}/gold")))

    assert prepared.reference is None
    assert "WITHOUT a baseline" in prepared.remarks["baseline_unreadable"]


def test_runs_of_one_recipe_share_a_baseline_that_is_read_once_until_it_changes(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(
        references, "load_reference", lambda path, load=references.load_reference: read.append(path) or load(path)
    )
    world = World(tmp_path)
    world.start()
    for number in range(4):
        world.trainer(f"r{number}", f"s{number}").steps(1, 3)
    assert len(read) == 1
    for run in ("r0", "r1"):
        world.watchdog.with_watch(run, lambda watch: watch.save())
    world.kill()
    world.start()
    assert len(read) == 2
    # What it teaches is learned once, too, whether a run comes back from a snapshot or from its entries.
    learned = {id(world.watchdog.with_watch(f"r{n}", lambda watch: watch.state.baseline)) for n in range(4)}
    assert len(learned) == 1

    world.baseline.write_text(world.baseline.read_text() + "\n")
    trainer = world.trainer("later", "s9")
    trainer.steps(1, 3)
    assert len(read) == 3
    assert {run.regime for run in world.watchdog.runs()} == {"replayed"}
    world.stop()
