# SPDX-License-Identifier: Apache-2.0
"""Dumps that have come: their context lies beside them, and what takes too much room goes in the right order."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from sentinel.core.capture.retention import to_forget
from sentinel.daemon.dump_keeping import CONTEXT, rows_of
from sentinel.records import Capture, CaptureOrder, CaptureReceipt, Incident, Triage
from tests.support.watching import World, shown

BAD = {"actor__grad_norm": math.nan}


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.start()
    yield made
    made.stop()


def captured(world, **facts):
    """A run with a NaN at step 8, dumped at 9 and 10."""
    trainer = world.trainer(**facts)
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    trainer.obey()
    trainer.step(9)
    trainer.send()
    world.settle()
    world.settle()
    return trainer


def contexts(world):
    return [
        json.loads((Path(path).parent / CONTEXT).read_text())
        for capture in shown(world).captures
        if capture.receipt is not None
        for path in capture.receipt.paths
    ]


def test_a_dump_has_its_context_beside_it(world, tmp_path):
    rollouts = tmp_path / "rollouts"
    rollouts.mkdir()
    (rollouts / "9.jsonl").write_text('{"uid": "u1", "input": "how many apples?", "output": "3"}\n')
    captured(world, rollout_data_dir=str(rollouts), torch="2.9", topology={"strategy": "fsdp2"})

    document = contexts(world)[0]

    assert (document["run"], document["step"]) == ("r", 9)
    assert document["incident"]["id"] == "r:1"
    assert document["capture"]["order"]["stages"] == ["actor_update"]
    assert document["metrics"]["actor/entropy"] == pytest.approx(0.5, abs=0.1)
    assert document["rows"] == [{"uid": "u1", "prompt": "how many apples?"}]
    assert document["rollout_file"].endswith("9.jsonl")
    assert document["trainer"]["torch"] == "2.9"
    assert document["trainer"]["topology"] == {"strategy": "fsdp2"}


def test_without_rollout_files_the_rows_are_not_known(world):
    captured(world)

    document = contexts(world)[0]

    assert (document["rows"], document["rollout_file"]) == (None, None)


@pytest.mark.parametrize("text", ["no json\n", "[1]\n", "\x00\n"])
def test_a_rollout_file_that_cannot_be_read_gives_no_rows(tmp_path, text):
    (tmp_path / "9.jsonl").write_text(text)

    assert rows_of(tmp_path / "9.jsonl") is None


def test_dumps_beyond_the_room_go_once_their_incident_is_closed(tmp_path):
    world = World(tmp_path, trainer={"keep_dump_bytes": 1}, engine={"capture": {"cool_down_steps": 0}})
    world.start()
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    trainer.obey()
    world.settle()
    there = [Path(path) for path in shown(world).captures[0].receipt.paths]
    assert all(path.is_dir() for path in there), "the incident is open"

    trainer.steps(9, 23)
    trainer.step(24, **BAD)
    trainer.obey()
    world.settle()

    assert not any(path.exists() for path in there)
    trainer.send()
    assert any(warning.startswith("dumps_deleted: 1 dumps were deleted") for warning in shown(world).warnings)
    world.stop()


def capture(number, incident=None, size=10, state="done", **order):
    given = CaptureOrder(
        id=f"c{number}",
        run="r",
        incident=incident,
        first_step=number,
        last_step=number,
        stages=("actor_update",),
        level="L0",
        ranks=None,
        why="",
        **order,
    )
    receipt = CaptureReceipt(number, number, given.stages, (0,), (f"/d/{number}",), size, 1.0, "complete")
    return Capture(id=given.id, run="r", incident=incident, state=state, order=given, receipt=receipt)


def incident(name, state="closed", verdict=None, shows=None):
    triage = None if verdict is None else Triage(verdict, None, None, 1)
    return Incident(
        id=name,
        run="r",
        kind="drift",
        state=state,
        opened_at_step=1,
        closed_at_step=None,
        severity="warning",
        stage="actor_update",
        suspects=(),
        findings=(),
        capture=shows.order if shows else None,
        triage=triage,
    )


def test_the_oldest_and_least_informative_dumps_go_first():
    named, narrow = capture(1, "i1"), capture(2, "i1", modules=("m",))
    nothing_new, nothing_old, by_hand = capture(3, "i2"), capture(4, "i3"), capture(5)
    incidents = [incident("i1", verdict="diverged", shows=named), incident("i2", verdict="same"), incident("i3")]
    at = {"c1": 1.0, "c2": 2.0, "c3": 9.0, "c4": 3.0, "c5": 0.5}
    everything = [named, narrow, nothing_new, nothing_old, by_hand]

    gone = [one.id for one in to_forget(everything, incidents, at, 0)]

    assert gone == ["c4", "c3", "c5", "c1", "c2"]
    assert [one.id for one in to_forget(everything, incidents, at, 30)] == ["c4", "c3"]
    assert to_forget(everything, incidents, at, 50) == ()


def test_an_open_incidents_dumps_a_running_one_and_those_that_are_needed_never_go():
    opened, running, needed = capture(1, "i1"), capture(2, "i2", state="recording"), capture(3)

    assert to_forget([opened, running, needed], [incident("i1", "open"), incident("i2")], {}, 0, {"c3"}) == ()
    closed = replace(incident("i1", "open"), state="closed")
    assert [c.id for c in to_forget([opened, running, needed], [closed, incident("i2")], {}, 0, {"c3"})] == ["c1"]
