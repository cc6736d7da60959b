# SPDX-License-Identifier: Apache-2.0
"""What it costs to wake a sleeping thread, by every means that the standard library has: the floor under a report.

A report must wake the emitter's thread, or it would be late for the boundary. These rows say what part of its cost that is.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time

from bench.trainer import quantiles

ROUNDS = 400
PAUSE_SECONDS = 0.004


def run() -> list[dict]:
    """Return one row a means."""
    event, simple, lock = threading.Event(), queue.SimpleQueue(), threading.Lock()
    lock.acquire()
    reading, writing = os.pipe()
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def wait_for_event() -> None:
        event.wait(5)
        event.clear()

    means = {
        "threading.Event": (event.set, wait_for_event),
        "queue.SimpleQueue (used)": (lambda: simple.put(None), lambda: simple.get(timeout=5)),
        "a lock": (lambda: lock.locked() and lock.release(), lambda: lock.acquire(timeout=5)),
        "a pipe": (lambda: os.write(writing, b"x"), lambda: os.read(reading, 1)),
        "a unix datagram": (lambda: here.send(b"x"), lambda: there.recv(1)),
    }
    rows = [row for name, (wake, sleep) in means.items() for row in measured(name, wake, sleep)]
    data = {f"group/metric_{i}": i * 0.1 for i in range(100)}
    return [*rows, *measured("and for scale, a copy of a dict of 100 floats", lambda: dict(data), None)]


def measured(name: str, wake, sleep) -> list[dict]:
    """p50 and p99 of waking, in microseconds, with a thread asleep each time."""
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            sleep()

    if sleep is not None:
        threading.Thread(target=loop, daemon=True).start()
    costs = []
    for _ in range(ROUNDS):
        time.sleep(PAUSE_SECONDS)
        began = time.perf_counter()
        wake()
        costs.append((time.perf_counter() - began) * 1e6)
    over.set()
    wake()
    p50, p99 = quantiles(costs)
    label = name if sleep is None else f"waking a thread by {name}"
    return [
        {"name": f"{label}: {part}", "value": value, "unit": "us", "limit": None}
        for part, value in (("p50", p50), ("p99", p99))
    ]
