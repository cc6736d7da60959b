# SPDX-License-Identifier: Apache-2.0
"""Orders to run a stage again that cannot be obeyed: each is answered, once, with the reason."""

import types

import pytest

from sentinel.trainer import reach
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


class Worker:
    """A worker that holds the inputs of call 1, and notes what is queued on it."""

    def __init__(self):
        self.queued = []
        self.__ray_call__ = types.SimpleNamespace(remote=self._remote)

    def _remote(self, function, *args):
        self.queued.append(function.__name__)
        calls = {"ref_compute_log_prob": 1}
        return reach.Done({"rank": 0, "calls": calls, "why": {}, "stages": {}, "weights": {}, "error": ""})


@pytest.fixture
def workers():
    return [Worker(), Worker()]


@pytest.fixture
def trainer(workers):
    return types.SimpleNamespace(actor_rollout_wg=types.SimpleNamespace(workers=workers))


def test_a_stage_is_queued_on_every_rank_or_on_none(reruns, sent, workers, trainer):
    """It has collectives: a rank alone would wait for ever. While another thread queues, the boundary passes at once."""
    reruns.install(trainer, 1000)
    reruns.take([ORDER])

    with reruns._lock:
        reruns.boundary(6, "/dumps", None)
    assert ["again" in worker.queued for worker in workers] == [False, False]

    reruns.boundary(7, "/dumps", None)
    assert sent == [("r:1/r1", "skipped", "the inputs of step 5 are gone: step 7 has begun")]
    assert ["again" in worker.queued for worker in workers] == [False, False]


def test_a_stage_runs_again_before_the_step_after_its_own(reruns, workers, trainer):
    reruns.install(trainer, 1000)
    reruns.take([ORDER])
    reruns.boundary(6, "/dumps", None)

    assert [worker.queued for worker in workers] == [["keep", "held", "again"]] * 2


def test_closed_every_worker_is_told_to_let_go(reruns, workers, trainer):
    reruns.install(trainer, 1000)
    reruns.close()

    assert [worker.queued for worker in workers] == [["keep", "keep"]] * 2
    assert reruns.bytes == 0
