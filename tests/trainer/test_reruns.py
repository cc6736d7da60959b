# SPDX-License-Identifier: Apache-2.0
"""Orders to run a stage again that cannot be obeyed: each is answered, once, with the reason."""

import types

import pytest

from sentinel.trainer.orders import Order
from sentinel.trainer.reruns import Reruns

ORDER = Order("r:1/r1", 5, 5, ("ref_compute_log_prob",), rerun=True, asked_first_step=5)


@pytest.fixture
def sent():
    return []


@pytest.fixture
def reruns(sent):
    return Reruns(lambda order, receipt: sent.append((order.id, receipt["outcome"], receipt["why"])))


def test_without_the_recorder_an_order_is_refused_once_however_often_it_comes(reruns, sent):
    reruns.take([ORDER])
    reruns.take([ORDER])

    assert sent == [("r:1/r1", "refused", "the flight recorder is off (trainer.flight_recorder_bytes)")]


def test_a_run_without_workers_holds_nothing(reruns, sent):
    reruns.install(types.SimpleNamespace(), 1000)

    reruns.take([ORDER])

    assert sent[0][1:] == (
        "refused",
        "the inputs of ref_compute_log_prob are not kept on every rank: no worker runs it",
    )


def test_an_order_that_comes_after_the_next_step_began_is_refused(reruns, sent):
    reruns.boundary(6, "/dumps", None)

    reruns.take([ORDER])

    assert sent[0][1:] == ("refused", "the inputs of step 5 are gone: step 6 has begun")
