# SPDX-License-Identifier: Apache-2.0
"""The short way between a trainer and a daemon on one host."""

import contextlib
import math
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.daemon.local_door import LocalDoor
from sentinel.trainer.door import Door, DoorClosedError
from sentinel.trainer.link import DaemonLink

STEP = {"t": "step", "step": 3, "at": 1.0, "values": {"actor/grad_norm": math.nan, "loss": 0.1}, "unreadable": []}


@pytest.fixture
def heard():
    return []


@pytest.fixture
def daemon(heard):
    """A daemon's local socket that answers with what it heard."""

    def report(message):
        heard.append(message)
        return {"v": 1, "step": len(heard), "orders": []}

    door = LocalDoor(report)
    yield door
    door.close()


class Cluster(DaemonLink):
    """A link whose Ray call is a function: the cluster itself has tests of its own."""

    def __init__(self, call):
        super().__init__("r", "s", None)
        self._call = call


def test_a_message_arrives_as_it_was_sent_and_its_answer_comes_back(daemon, heard):
    door = Door(daemon.address, 5.0)

    assert door.ask({"v": 1, "records": [STEP]}) == {"v": 1, "step": 1, "orders": []}
    assert door.ask({"v": 1, "records": []})["step"] == 2
    values = heard[0]["records"][0]["values"]
    assert values["loss"] == 0.1
    assert math.isnan(values["actor/grad_norm"])
    door.close()


def test_without_the_token_nothing_is_heard(daemon, heard):
    with pytest.raises(DoorClosedError):
        Door({**daemon.address, "token": "guessed"}, 5.0)

    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect("\0" + daemon.address["name"])
        stranger.sendall(b'{"v": 1}\n')
        assert stranger.recv(10) == b""
    assert heard == []


def test_somebody_else_at_the_daemons_name_is_not_believed():
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind("\0sentinel-test-impostor")
        impostor.listen()

        def answer():
            with contextlib.suppress(OSError):
                guest, _ = impostor.accept()
                with guest:
                    guest.recv(100)
                    guest.sendall(b"welcome\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(DoorClosedError, match="another process"):
            Door({"name": "sentinel-test-impostor", "token": "t", "proof": "p"}, 5.0)


def test_a_link_takes_the_short_way_once_it_was_told_of_it(daemon, heard):
    over_ray = []

    def call(message):
        over_ray.append(message)
        return {"v": 1, "step": 0, "orders": [], "door": daemon.address}

    link = Cluster(call)
    link.send([STEP])
    assert link.local
    link.send([STEP])

    assert (len(over_ray), len(heard)) == (1, 1)
    assert heard[0]["session"] == "s"
    link.close()


def test_a_daemon_that_ended_is_asked_over_ray_at_once_and_its_successor_has_a_door_of_its_own(daemon, heard):
    successor = LocalDoor(lambda message: {"v": 1, "step": 9, "orders": []})
    doors = [daemon.address, successor.address]
    link = Cluster(lambda message: {"v": 1, "step": 0, "orders": [], "door": doors.pop(0)})
    link.send([STEP])
    daemon.close()

    assert link.send([STEP])["step"] == 0, "not lost: this one went over Ray"
    assert link.send([STEP])["step"] == 9
    link.close()
    successor.close()


def test_a_door_on_another_host_is_tried_once(heard):
    asked = []

    def call(message):
        asked.append(message)
        return {"v": 1, "orders": [], "door": {"name": "sentinel-nowhere", "token": "t", "proof": "p"}}

    link = Cluster(call)
    for _ in range(3):
        link.send([STEP])

    assert len(asked) == 3
    assert not link.local


def test_a_daemon_that_hangs_costs_one_bounded_wait_and_is_then_asked_over_ray(monkeypatch):
    monkeypatch.setattr("sentinel.trainer.link.REPLY_SECONDS", 0.2)
    gate = threading.Event()
    hung = LocalDoor(lambda message: {"v": 1} if gate.wait(20) else {})
    link = Cluster(lambda message: {"v": 1, "orders": [], "door": hung.address})
    link.send([STEP])

    with pytest.raises(TimeoutError):
        link.send([STEP])
    assert not link.local
    gate.set()
    hung.close()


def test_no_bytes_from_a_trainer_end_the_daemons_side(daemon, heard):
    @given(st.binary(max_size=200).filter(lambda raw: b"\n" not in raw))
    def send(raw):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(5)
            stranger.connect("\0" + daemon.address["name"])
            stranger.sendall(daemon.address["token"].encode() + b"\n" + raw + b"\n")
            assert stranger.recv(100).startswith(daemon.address["proof"].encode())
        door = Door(daemon.address, 5.0)
        try:
            assert door.ask({"still": "here"})["v"] == 1
        finally:
            door.close()

    send()
    assert {"still": "here"} in heard
