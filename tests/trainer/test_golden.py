# SPDX-License-Identifier: Apache-2.0
"""The golden dumps of a recording run: cheap, whatever a dump costs there."""

import pytest

from sentinel.trainer.golden import FREE, MOST_BYTES, SHARE, STEPS, GoldenBudget, schedule
from sentinel.trainer.orders import Order
from sentinel.trainer.receipts import ended

ORDERS = schedule(["actor_update"])


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def receipt(order, seconds=1.0, size=10):
    return {**ended(order, "complete", ""), "paths": ["/d"], "seconds": seconds, "bytes": size}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def budget(clock):
    return GoldenBudget(clock)


def taken(budget, clock, step_seconds, dump_seconds, size=10):
    """The steps that are dumped by a run whose steps and dumps take so long."""
    steps = []
    for order in ORDERS:
        clock.now = step_seconds * order.first_step
        if budget.affordable([order], lambda *_: None):
            steps.append(order.first_step)
            budget.note(order, receipt(order, dump_seconds, size))
    return steps


def test_cheap_dumps_are_made_as_scheduled(budget, clock):
    assert taken(budget, clock, 100.0, 4.0) == list(STEPS)


def test_dear_dumps_keep_to_their_share_of_the_time(budget, clock):
    steps = taken(budget, clock, 10.0, 60.0)

    assert steps[:FREE] == list(STEPS[:FREE])
    assert len(steps) < len(STEPS)
    spent = 60.0 * (len(steps) - 1)
    assert spent <= SHARE * 10.0 * steps[-1], "when the last one was allowed"


def test_a_full_disk_share_ends_the_schedule(budget, clock):
    assert taken(budget, clock, 1e6, 1.0, MOST_BYTES) == list(STEPS[:FREE])


def test_what_is_left_out_is_told_with_its_numbers(budget, clock):
    taken(budget, clock, 1.0, 200.0)
    told = []

    assert budget.affordable([ORDERS[-1]], lambda order, why: told.append((order.id, why))) == []
    assert told[0][0] == "golden-5000"
    assert "more than 5%" in told[0][1]


def test_orders_of_a_file_are_obeyed_whatever_they_cost(budget, clock):
    taken(budget, clock, 1.0, 60.0)
    order = Order("mine", 7, 7, ("actor_update",), why="for incident r:1")

    budget.note(order, receipt(order, 1e9))

    assert budget.affordable([order], lambda *_: None) == [order]
