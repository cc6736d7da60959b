# SPDX-License-Identifier: Apache-2.0
"""Workers that answer, worker that died: what the receipt says of each."""

import ray

from sentinel.trainer import reach
from sentinel.trainer.orders import Order
from sentinel.trainer.receipts import ReceiptBook

ORDER = Order("r:1/c1", 5, 5, ("actor_update",), asked_first_step=5)


def answer(rank, path="/d/step_5/actor_update"):
    stages = {"actor_update": {"path": path, "bytes": 10, "seconds": 0.5, "calls": 1}}
    return {"rank": rank, "stages": stages, "broken": "", "seconds": 0.75}


def receipt(*calls):
    armed = reach.Armed([ORDER], 5, {}, [], [], list(calls))
    book = ReceiptBook(ORDER)
    book.add(5, *reach.collect(armed, 0.1))
    return book.receipt(finished=True)


def test_a_rank_that_died_in_the_capture_is_said_and_the_others_count():
    told = receipt(reach.Done(answer(0)), object())

    assert (told["outcome"], told["ranks"], told["bytes"]) == ("partial", [0], 10)
    assert "worker did not answer" in told["why"]


def test_where_every_rank_died_nothing_is_claimed():
    told = receipt(object(), object())

    assert (told["outcome"], told["ranks"], told["paths"]) == ("failed", [], [])
    assert "not dumped: actor_update at step 5" in told["why"]


def test_asking_a_worker_never_begins_a_cluster_in_the_training_process():
    """As ray.get does of itself where there is none: when Ray was shut down under a capture."""
    receipt(object())

    assert not ray.is_initialized()


def test_the_time_beside_the_stages_counts_too_and_the_slowest_rank_is_what_a_step_took():
    assert receipt(reach.Done(answer(0)), reach.Done({**answer(1), "seconds": 1.5}))["seconds"] == 1.5


def test_a_call_in_this_process_that_raises_is_an_answer():
    call = reach.InThisProcess(None).remote(lambda _: 1 / 0)

    assert call.value == {"error": "ZeroDivisionError: division by zero"}
