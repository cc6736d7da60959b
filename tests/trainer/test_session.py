# SPDX-License-Identifier: Apache-2.0
"""A session without a cluster: what the trainer's thread meets when nobody is there."""

import time
import types

import pytest
import ray  # noqa: F401  # two threads that import it for the first time get in each other's way; verl has it already

from sentinel.trainer.link import DaemonLink
from sentinel.trainer.orders import Order
from sentinel.trainer.session import Outlets, Session

pytestmark = pytest.mark.timeout(60)


class Daemon:
    """An outlet that answers like the daemon, with whatever it is given."""

    def __init__(self, **reply):
        self.reply = {"v": 1, "orders": [], "cancelled": [], **reply}
        self.records = []

    def send(self, records):
        self.records += records
        return self.reply

    def close(self):
        pass

    def of(self, kind):
        return [record for record in self.records if record["t"] == kind]


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_without_a_ray_cluster_the_trainer_neither_waits_nor_learns_of_it():
    session = Session("r", Outlets(daemon=DaemonLink("r", "s", None)), "/nowhere")

    began = time.perf_counter()
    for step in range(1, 51):
        session.step_logged(step, {"a": 1.0})
        session.boundary(types.SimpleNamespace(), step + 1)
    spent = time.perf_counter() - began

    assert until(lambda: session._daemon.failures > 0)
    assert "NoClusterError" in session._daemon.last_error
    assert spent < 2.0, "fifty waits of 50 ms are 2.5 s"
    assert (session.metrics.failures, session.capture.failures) == (0, 0)
    session.close()


def test_the_daemon_says_where_dumps_go_and_how_long_to_wait():
    daemon = Daemon(settings={"wait_seconds": 0.2, "dump_root": "/shared/dumps", "min_free_bytes": 7})
    session = Session("r", Outlets(daemon=daemon), "/local")
    session.step_logged(1, {"a": 1.0})

    assert until(lambda: session.dump_root == "/shared/dumps")
    assert (session.wait_seconds, session.min_free_bytes) == (0.2, 7)
    session.close()


@pytest.mark.parametrize("broken", [{"id": "x", "first_step": "soon"}, {"id": "x"}, None, "text", 3])
def test_a_malformed_order_is_refused_once_however_often_it_comes(broken):
    daemon = Daemon(orders=[broken])
    session = Session("r", Outlets(daemon=daemon), "/local")
    for step in range(1, 8):
        session.step_logged(step, {"a": 1.0})
        session.boundary(types.SimpleNamespace(), step + 1)
        time.sleep(0.01)

    assert until(lambda: len(daemon.of("step")) == 7)
    session.close()
    assert [receipt["receipt"]["outcome"] for receipt in daemon.of("receipt")] == ["refused"]
    assert session.capture.failures == 0


def test_an_order_taken_back_before_its_first_step_is_answered():
    order = {"id": "r:1/c1", "first_step": 9, "last_step": 9, "stages": ["actor_update"], "level": "L0", "ranks": "all"}
    daemon = Daemon(orders=[order])
    session = Session("r", Outlets(daemon=daemon), "/local")
    session.step_logged(1, {"a": 1.0})
    assert until(lambda: len(session._book) == 1)
    daemon.reply = {"v": 1, "orders": [], "cancelled": ["r:1/c1"]}
    session.step_logged(2, {"a": 1.0})

    assert until(lambda: daemon.of("receipt"))
    (receipt,) = daemon.of("receipt")
    assert (receipt["capture"], receipt["receipt"]["outcome"]) == ("r:1/c1", "cancelled")
    session.close()


def test_a_trainer_without_workers_gets_a_receipt_that_says_so():
    order = {"id": "r:1/c1", "first_step": 2, "last_step": 2, "stages": ["actor_update"], "level": "L0", "ranks": "all"}
    daemon = Daemon(orders=[order])
    session = Session("r", Outlets(daemon=daemon), "/local")
    session.step_logged(1, {"a": 1.0})
    assert until(lambda: len(session._book) == 1)

    session.boundary(types.SimpleNamespace(), 2)
    session.step_over(2)

    assert until(lambda: daemon.of("receipt"), seconds=30)
    receipt = daemon.of("receipt")[0]["receipt"]
    assert receipt["outcome"] == "failed"
    assert "actor_update at step 2" in receipt["why"]
    session.close()


def test_drops_expired_waits_and_fuses_are_told_once_they_change():
    daemon = Daemon()
    session = Session("r", Outlets(daemon=daemon), "/local")
    session.metrics.run(lambda: 1 / 0, None)
    session.step_logged(1, {"a": 1.0})
    session.step_logged(2, {"a": 1.0})

    assert until(lambda: daemon.of("health"))
    session.close()
    (health,) = daemon.of("health")
    assert health["failures"] == {"metrics": 1, "capture": 0}
    assert health["fuses"] == {"metrics": 0, "capture": 0}


def test_the_recordings_own_orders_are_no_business_of_the_daemons():
    daemon, recording = Daemon(), Daemon()
    own = Order("golden-2", 2, 2, ("actor_update",), asked_first_step=2)
    session = Session("r", Outlets(daemon=daemon, recording=recording), "/local", [own])
    session._send_receipt(own, {"last_step": 2, "outcome": "complete"})

    assert until(lambda: recording.of("receipt"))
    session.close()
    assert daemon.of("receipt") == []


def test_a_daemon_that_lost_its_memory_is_told_again_who_is_training_and_not_at_every_step():
    daemon = Daemon(introduce=True)
    session = Session("r", Outlets(daemon=daemon), "/local")
    session.started({"trainer": "v0"}, None)
    for step in range(1, 6):
        session.step_logged(step, {"a": 1.0})
        time.sleep(0.02)

    assert until(lambda: len(daemon.of("start")) == 2 and len(daemon.of("step")) == 5)
    session.close()
    assert [start["facts"] for start in daemon.of("start")] == [{"trainer": "v0"}] * 2


def test_the_last_wait_of_a_run_has_one_bound_however_many_outlets_are_silent():
    class Silent(Daemon):
        hung = False

        def send(self, records):
            while self.hung:
                time.sleep(0.01)
            return super().send(records)

    daemon, recording = Silent(), Silent()
    session = Session("r", Outlets(daemon=daemon, recording=recording), "/local")
    session.wait_seconds = 0.4
    session.step_logged(1, {"a": 1.0})
    assert until(lambda: all(emitter.prompt for emitter in session._emitters))
    daemon.hung = recording.hung = True

    began = time.perf_counter()
    session.finished()
    spent = time.perf_counter() - began
    daemon.hung = recording.hung = False
    session.close()

    assert 0.3 < spent < 0.7
