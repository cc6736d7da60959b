# SPDX-License-Identifier: Apache-2.0
"""What people are told of incidents: each thing once, over kills of the daemon and with a webhook in trouble."""

import math
import socket
import time

import pytest

from sentinel.daemon.chores import THREADS
from tests.support.receiver import Receiver
from tests.support.watching import World, shown

BAD = {"actor__grad_norm": math.nan}


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


def test_webhooks_that_hang_hold_up_no_triage(tmp_path):
    """More incidents at once than there are threads: each dump is compared all the same."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        hook = {"webhook": f"http://127.0.0.1:{mute.getsockname()[1]}/", "timeout_seconds": 2.0}
        world = World(tmp_path, alerts=hook)
        world.start()
        trainers = [world.trainer(f"r{number}", f"session-{number}") for number in range(THREADS + 2)]
        for trainer in trainers:
            trainer.steps(1, 7)
            trainer.step(8, **BAD)
        begun = time.monotonic()
        for trainer in trainers:
            trainer.obey()
        assert world.watchdog.deeds._chores.wait(20)
        took = time.monotonic() - begun

        for trainer in trainers:
            (incident,) = shown(world, trainer.run).incidents
            assert incident.triage.verdict == "non_finite"
        assert not world.watchdog.deeds.wait(0)  # messages are still tried
        assert took < 6
        world.kill()
