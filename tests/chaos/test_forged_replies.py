# SPDX-License-Identifier: Apache-2.0
"""Whatever a daemon answers, the trainer's thread neither fails nor waits longer than it may."""

import time
import types

import pytest

pytest.importorskip("wrapt", reason="the patches of the benchmarks are wrapt's; the extra `verl` brings it")

from bench.chaos_plugin import spoilt
from sentinel.trainer.session import MOST_WAIT_SECONDS, Outlets, Session


class Forger:
    """An outlet that answers as it is told."""

    def __init__(self, answer):
        self.answer = answer

    def send(self, records):
        return self.answer(records)

    def close(self):
        pass


def walk(tmp_path, answer, steps=12):
    """Seconds of each boundary of a run, and its session."""
    session = Session("run", Outlets(daemon=Forger(answer)), str(tmp_path))
    session.started({}, None)
    trainer, spent = types.SimpleNamespace(), []
    for step in range(1, steps + 1):
        session.step_logged(step, {"a": 1.0})
        began = time.perf_counter()
        session.boundary(trainer, step + 1)
        spent.append(time.perf_counter() - began)
        session.step_over(step + 1)
    session.close()
    return spent, session


@pytest.mark.parametrize("wait", [1e9, float("inf"), float("nan"), -5.0, "soon", None, [], 2**70])
def test_no_reply_makes_a_boundary_wait_longer_than_a_second(tmp_path, wait):
    asked = []

    def answer(records):
        asked.append(records)
        if len(asked) > 4:
            time.sleep(3.0)
        return {"settings": {"wait_seconds": wait}}

    spent, session = walk(tmp_path, answer, steps=8)

    assert not session.wait_seconds > MOST_WAIT_SECONDS
    assert max(spent) < MOST_WAIT_SECONDS + 0.5
    assert sum(spent) < MOST_WAIT_SECONDS + 1.0, "a daemon that hangs is waited for once"


@pytest.mark.parametrize("step", range(3, 16))
def test_no_spoilt_reply_raises_into_training(tmp_path, step):
    answer = spoilt({"orders": []}, step)[1]

    spent, session = walk(tmp_path, lambda _: {} if answer == "late" else answer)

    assert max(spent) < MOST_WAIT_SECONDS
    assert session.metrics.failures == 0
