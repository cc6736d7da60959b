# SPDX-License-Identifier: Apache-2.0
"""Clocks that are wrong, in another zone, or set while a run goes make no silence, and hide none."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.daemon.clock import LONGEST_BACKLOG_SECONDS, dated, steady_clock
from sentinel.daemon.protocol import Ended, Stepped
from tests.support.watching import World

HOURS = 3600.0
SILENT_AFTER = 1800.0


def stepped(at):
    return Stepped(step=1, at=at, values={}, unreadable=(), mark=at)


def test_the_clock_goes_with_the_time_that_goes_by():
    clock = steady_clock()
    before, began = clock(), time.monotonic()
    time.sleep(0.01)

    assert abs(before - time.time()) < 1.0
    assert clock() - before == pytest.approx(time.monotonic() - began, abs=0.005)


@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=5),
    st.floats(-1e9, 1e9),
    st.floats(1e9, 2e9),
)
def test_steps_of_one_message_keep_their_distances_whatever_their_senders_clock_says(ages, off, now):
    found = dated([stepped(off - age) for age in ages] + [Ended(at=off, finished=True)], now)

    newest = min(ages)
    assert found[-1] == Ended(at=off, finished=True)
    for record, age in zip(found[:-1], ages, strict=True):
        assert now - record.at == pytest.approx(min(age - newest, LONGEST_BACKLOG_SECONDS), abs=1e-3)


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.start()
    yield made
    made.stop()


def kinds(world):
    return [incident.kind for incident in world.watchdog.runs()[0].incidents]


def step(trainer, number, off):
    """A step, ten seconds after the one before, by a clock that is `off`."""
    trainer.world.clock.now += 10
    trainer.send({**trainer.step_record(number), "at": trainer.world.clock.now + off})
    trainer.world.watchdog.tick()


@pytest.mark.parametrize("offsets", [(-8 * HOURS,), (8 * HOURS,), (0.0, -5 * HOURS, 3 * HOURS)])
def test_a_trainers_clock_that_is_off_or_set_makes_no_silence_and_hides_none(world, offsets):
    trainer = world.trainer()
    for number, off in zip(range(1, 10), itertools.cycle(offsets)):
        step(trainer, number, off)
    assert kinds(world) == []

    world.clock.now += SILENT_AFTER - 60
    world.watchdog.tick()
    assert kinds(world) == []
    world.clock.now += 120
    world.watchdog.tick()
    assert kinds(world) == ["silence"]


@pytest.mark.parametrize("jump", [-8 * HOURS, 8 * HOURS])
def test_a_clock_that_was_set_while_the_daemon_was_away_makes_no_silence_and_hides_none(world, jump):
    trainer = world.trainer()
    for number in range(1, 5):
        step(trainer, number, 0.0)
    world.kill()
    world.clock.now += jump
    world.start().tick()
    assert kinds(world) == []

    world.clock.now += SILENT_AFTER + 60
    world.watchdog.tick()
    assert kinds(world) == ["silence"]
