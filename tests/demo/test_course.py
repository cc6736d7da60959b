# SPDX-License-Identifier: Apache-2.0
"""Every step after a fault has a golden dump, and an incident's evidence is waited for."""

import pytest

from sentinel.demo.course import golden_orders, settled
from sentinel.demo.kit.faults import STAGES
from sentinel.demo.scenarios import STEPS


def test_every_step_after_a_fault_has_a_golden_dump_of_every_stage():
    orders = golden_orders()

    assert [order["first_step"] for order in orders] == list(range(2, STEPS + 1))
    assert all(order["first_step"] == order["last_step"] for order in orders)
    assert all(set(order["stages"]) == set(STAGES) for order in orders)
    assert len({order["id"] for order in orders}) == len(orders)


@pytest.mark.parametrize(
    ("incident", "done"),
    [
        ({"triage": {"verdict": "diverged"}}, True),
        ({"triage": None, "receipt": {"outcome": "failed"}}, True),
        ({"triage": None, "receipt": {"outcome": "complete"}}, False),
        ({"triage": None, "receipt": None}, False),
    ],
)
def test_an_incident_is_settled_when_nothing_more_will_come(incident, done):
    assert settled(incident) is done
