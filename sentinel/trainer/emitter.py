# SPDX-License-Identifier: Apache-2.0
"""Carries records from the trainer's thread to an outlet: bounded, drop-oldest, acknowledged, never in the way.

The trainer's thread only appends to a deque and sets an event. One background thread converts, connects, sends and
receives; a record stays queued until it was acknowledged, so a daemon that restarts gets the last ones again.
"""

from __future__ import annotations

import collections
import itertools
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from sentinel.trainer.fuse import attempt

CAPACITY = 4096
BATCH = 256
FIRST_BACKOFF_SECONDS = 0.5
LAST_BACKOFF_SECONDS = 30.0
HEARTBEAT_SECONDS = 5.0
BACK_BEFORE = 0.9
"""Share of a bound that is slept: a thread runs again some milliseconds after the end of its sleep, and the bound is of the whole wait."""


class Outlet(Protocol):
    """Where records go: the daemon, or a file. Used by the background thread only."""

    def send(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Deliver records and return the reply; raise when it cannot be done now."""

    def close(self) -> None:
        """Let go of everything."""


class Emitter:
    """A bounded queue in front of one outlet, and the thread that empties it."""

    def __init__(
        self,
        outlet: Outlet,
        on_reply: Callable[[dict[str, Any]], None],
        prepare: Callable[[dict[str, Any]], dict[str, Any]] = dict,
        capacity: int = CAPACITY,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._outlet = outlet
        self._on_reply = on_reply
        self._prepare = prepare
        self._records: collections.deque[tuple[int, dict[str, Any]]] = collections.deque(maxlen=capacity)
        self._capacity = capacity
        self._heartbeat_seconds = heartbeat_seconds
        self._lock = threading.Lock()  # held for the numbering only: several threads put
        # A SimpleQueue wakes its reader for a third of what an Event costs the one who sets it.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._acked = threading.Event()
        self._acked_number = 0
        self.last_number = 0
        """Number of the newest record."""
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.dropped = 0
        self.failures = 0
        self.last_error = ""
        self.prompt = False
        """Whether the last answer came; the trainer waits for nobody who is late."""
        self.wait_seconds = 0.0
        self.waits_expired = 0

    # ------------------------------------------------------------------ the trainer's thread

    def put(self, record: dict[str, Any]) -> int:
        """Queue a record; returns its number. Costs microseconds, whatever the outlet does."""
        with self._lock:
            if len(self._records) == self._capacity:
                self.dropped += 1
            self.last_number = number = self.last_number + 1
            self._records.append((number, record))
        self._wake.put(None)
        if self._thread is None:
            self._start()
        return number

    def wait(self, number: int, bound_seconds: float) -> bool:
        """Wait until record `number` was answered, at most `bound_seconds`; not at all if nobody answers promptly."""
        if self._acked_number >= number:
            return True
        if not self.prompt or bound_seconds <= 0:
            return False
        began = time.perf_counter()
        sleep_seconds = BACK_BEFORE * bound_seconds
        left = sleep_seconds
        while left > 0 and self._acked_number < number:
            self._acked.wait(left)
            if self._acked_number < number:
                self._acked.clear()
            left = sleep_seconds - (time.perf_counter() - began)
        self.wait_seconds += time.perf_counter() - began
        if self._acked_number >= number:
            return True
        self.prompt = False
        self.waits_expired += 1
        return False

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name="sentinel-emitter", daemon=True)
        self._thread.start()

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Send what is left, then stop; waits at most `timeout_seconds`."""
        self._stopping = True
        self._wake.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    # ------------------------------------------------------------------ the background thread

    def _loop(self) -> None:
        backoff = 0.0
        while True:
            if backoff:
                # A record that comes meanwhile does not hurry a daemon that is not there.
                self._sleep(backoff)
            elif not self._records and not self._doze():
                continue
            sent = self._send()
            backoff = 0.0 if sent else min(LAST_BACKOFF_SECONDS, backoff * 2 or FIRST_BACKOFF_SECONDS)
            if self._stopping and (backoff or not self._records):
                attempt(self._outlet.close)
                return

    def _doze(self) -> bool:
        """Wait for the next record, at most one heartbeat; False when a record that is already gone woke it."""
        try:
            self._wake.get(timeout=self._heartbeat_seconds)
        except queue.Empty:
            return True
        return bool(self._records) or self._stopping

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))

    def _send(self) -> bool:
        """Send the head of the queue; an empty one is a heartbeat, which also brings orders made by hand."""
        batch = self._head()
        replies: list[dict[str, Any]] = []
        failure = attempt(lambda: replies.append(self._outlet.send([self._prepare(record) for _, record in batch])))
        if failure is not None:
            self.failures += 1
            self.prompt = False
            self.last_error = f"{type(failure).__name__}: {failure}"
            return False
        last = batch[-1][0] if batch else self._acked_number
        while self._records and self._records[0][0] <= last:
            self._records.popleft()
        # First the orders, then the release: the boundary that waits for them must find them.
        self._on_reply(replies[0])
        self._acked_number = last
        self.prompt = True
        self._acked.set()
        return True

    def _head(self) -> list[tuple[int, dict[str, Any]]]:
        """At most one batch, oldest first."""
        with self._lock:
            return list(itertools.islice(self._records, BATCH))
