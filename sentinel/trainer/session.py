# SPDX-License-Identifier: Apache-2.0
"""One watched training process: steps go out, orders come in, captures happen between two boundaries.

The trainer's thread calls `step_logged`, `boundary` and `step_over`; everything that can take time happens on the
emitters' threads or on the short-lived thread that collects a capture's answers.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sentinel.trainer import reach
from sentinel.trainer.describing import describe_run, watch_model
from sentinel.trainer.emitter import Emitter
from sentinel.trainer.fuse import Fuse
from sentinel.trainer.golden import GoldenBudget
from sentinel.trainer.orders import Order, OrderBook
from sentinel.trainer.receipts import ReceiptBook, ended
from sentinel.trainer.reruns import Reruns
from sentinel.trainer.values import plain_values

DEFAULT_WAIT_SECONDS = 0.05
MOST_WAIT_SECONDS = 1.0
COLLECT_SECONDS = 300.0
INTRODUCE_SECONDS = 30.0


@dataclass
class Outlets:
    """Where this process reports to: the daemon, a recording, or both."""

    daemon: Any = None
    recording: Any = None


class Session:
    """Everything of Sentinel in one trainer process; made once, by the plugin.

    Args:
        run: name of the run.
        outlets: at least one.
        dump_root: where dumps go when the daemon names no other place.
        orders: orders that hold without any daemon (a file of orders, a recording's schedule).
    """

    def __init__(self, run: str, outlets: Outlets, dump_root: str, orders: list[Order] | None = None) -> None:
        self.run = run
        self.metrics = Fuse("metrics")
        self.capture = Fuse("capture")
        self.wait_seconds = DEFAULT_WAIT_SECONDS
        self.dump_root = dump_root
        self.min_free_bytes: int | None = None
        self._lock = threading.Lock()
        self._book = OrderBook()
        self._book.offer(orders or [])
        self._own_orders = {order.id for order in orders or []}
        self._own_root = dump_root
        self._armed: list[reach.Armed] = []
        self._receipts: dict[str, ReceiptBook] = {}
        self._refused: set[str] = set()
        self._reruns = Reruns(self._send_receipt)
        self._trainer: Any = None
        self._preloaded = False
        self._golden = GoldenBudget()
        self._introduction: dict[str, Any] | None = None
        self._introduced_at = 0.0
        self._over = threading.Event()
        self._ended = False
        self._health = (0, 0, 0, 0)
        self._daemon = self._emitter(outlets.daemon)
        self._recording = self._emitter(outlets.recording)
        self._emitters = [emitter for emitter in (self._daemon, self._recording) if emitter is not None]

    def _emitter(self, outlet: Any) -> Emitter | None:
        return None if outlet is None else Emitter(outlet, self._on_reply, self._prepare)

    # ------------------------------------------------------------------ the trainer's thread

    def started(self, facts: Mapping[str, Any], config: Mapping[str, str] | None) -> None:
        """Say who is training. Call before the first step."""
        self._introduction = {"t": "start", "at": time.time(), "run": self.run, "facts": dict(facts), "config": config}
        self._put(self._introduction)

    def describe(self, trainer: Any) -> None:
        """Say what this run computes with, and each of its workers; on a thread of its own, once they answered."""
        self._trainer = trainer
        threading.Thread(target=self._describe, args=(trainer,), name="sentinel-facts", daemon=True).start()

    def said(self, code: str, text: str) -> None:
        """Say something about the run for people, once a code."""
        self._put({"t": "said", "at": time.time(), "code": code, "text": text})

    def schedule(self, orders: Iterable[Order]) -> None:
        """Take in orders that no daemon gave, such as a recording's default schedule."""
        with self._lock:
            for order in orders:
                self._own_orders.add(order.id)
                self._book.offer([order])

    def step_logged(self, step: int, data: Mapping[Any, Any]) -> None:
        """A step's metrics were logged: copy them shallowly and go on."""
        # Written out rather than handed to the fuse: each call costs a microsecond here, once in every step.
        if self.metrics.burnt:
            return
        try:
            record = {"t": "step", "step": step, "at": time.time(), "raw": dict(data)}
            for emitter in self._emitters:
                emitter.put(record)
        except Exception as error:  # noqa: BLE001  # nothing of ours reaches the trainer
            self.metrics.failed(error)

    def boundary(self, trainer: Any, step: int) -> None:
        """A step begins: wait for the verdict on the one before, at most the bound, and arm what is due."""
        self.capture.run(functools.partial(self._boundary, trainer, step), None)

    def step_over(self, step: int) -> None:
        """A step ends: take the captures of this step off again."""
        if self._armed:
            self.capture.run(functools.partial(self._disarm, step), None)

    def finished(self) -> None:
        """The run's last step was logged: say goodbye, and give the last records their one bounded moment."""
        if not self._ended:
            self._ended = True
            self._over.set()
            self._put({"t": "end", "at": time.time(), "finished": True})
            end = time.monotonic() + self.wait_seconds  # one bound for all outlets together
            for emitter in self._emitters:
                emitter.wait(emitter.last_number, end - time.monotonic())

    def close(self) -> None:
        """Stop the threads; waits at most a second for each. For tests and for loops that detach."""
        self._over.set()
        self.capture.run(self._reruns.close, None)
        for emitter in self._emitters:
            emitter.close()

    def _put(self, record: dict[str, Any]) -> None:
        for emitter in self._emitters:
            emitter.put(record)

    def _boundary(self, trainer: Any, step: int) -> None:
        if self._daemon is not None:
            self._daemon.wait(self._daemon.last_number, self.wait_seconds)
        self._reruns.boundary(step, self.dump_root, self.min_free_bytes)
        if not self._book:
            return
        with self._lock:
            due, missed = self._book.due(step)
        for order in missed:
            self._send_receipt(order, ended(order, "skipped", f"only of use at its own step; step {step} has begun"))
        given = [order for order in due if order.id not in self._own_orders]
        own = self._golden.affordable([order for order in due if order.id in self._own_orders], self._skip)
        if given and own:
            # Two roots cannot share a step, and the daemon has an incident to explain.
            for order in own:
                self._skip(order, f"step {step} is dumped for {given[0].id}")
        if given or own:
            root = self.dump_root if given else self._own_root
            self._armed.append(reach.arm(trainer, given or own, step, root, self.min_free_bytes))

    def _skip(self, order: Order, why: str) -> None:
        self._send_receipt(order, ended(order, "skipped", why))
        self._book.finish(order.id)

    def _disarm(self, step: int) -> None:
        armed, self._armed = self._armed, []
        for one in armed:
            reach.disarm(one)
        with self._lock:
            for order in (order for one in armed for order in one.orders):
                if order.last_step <= step:
                    self._book.finish(order.id)
        threading.Thread(target=self._collect, args=(armed,), name="sentinel-collect", daemon=True).start()

    # ------------------------------------------------------------------ background threads

    def _describe(self, trainer: Any) -> None:
        def emit(facts: dict[str, Any]) -> None:
            self._put({"t": "facts", "at": time.time(), "facts": facts})

        def said(text: str) -> None:
            self._put({"t": "said", "at": time.time(), "code": "mismatch", "text": text})

        self.metrics.run(functools.partial(describe_run, trainer, emit), None)
        self.metrics.run(functools.partial(watch_model, trainer, said, self._over), None)

    def _collect(self, armed: list[reach.Armed]) -> None:
        self.capture.run(functools.partial(self._collect_all, armed), None)

    def _collect_all(self, armed: list[reach.Armed]) -> None:
        for one in armed:
            answers, problems = reach.collect(one, COLLECT_SECONDS)
            for order in one.orders:
                book = self._receipts.setdefault(order.id, ReceiptBook(order))
                book.add(one.step, answers, problems)
                over = one.step >= order.last_step
                receipt = book.receipt(finished=over)
                self._golden.note(order, receipt)
                self._send_receipt(order, receipt)
                if over:
                    del self._receipts[order.id]

    def _send_receipt(self, order: Order, receipt: dict[str, Any]) -> None:
        record = {
            "t": "receipt",
            "at": time.time(),
            "capture": order.id,
            "receipt": receipt,
        }
        own = order.id in self._own_orders
        for emitter in self._emitters:
            # A daemon knows nothing of orders that it did not give.
            if not (own and emitter is self._daemon):
                emitter.put(record)

    def _on_reply(self, reply: Mapping[str, Any]) -> None:
        self.capture.run(functools.partial(self._take_orders, reply), None)
        self.metrics.run(self._tell_health, None)

    def _take_orders(self, reply: Mapping[str, Any]) -> None:
        if reply.get("introduce"):
            self._introduce_again()
        settings = reply.get("settings") or {}
        # Whatever a reply says, no boundary waits longer than a second: it may be forged.
        self.wait_seconds = min(float(settings.get("wait_seconds", self.wait_seconds)), MOST_WAIT_SECONDS)
        self.dump_root = str(settings.get("dump_root") or self.dump_root)
        if settings.get("min_free_bytes") is not None:
            self.min_free_bytes = int(settings["min_free_bytes"])
        if self._trainer is not None:
            if settings.get("preload") and not self._preloaded:
                self._preloaded = True
                reach.preload(self._trainer)
            self._reruns.install(self._trainer, int(settings.get("flight_recorder_bytes") or 0))
        orders = [order for plain in reply.get("orders") or () if (order := self._readable(plain)) is not None]
        self._reruns.take([order for order in orders if order.rerun])
        with self._lock:
            self._book.offer([order for order in orders if not order.rerun])
            cancelled = self._book.cancel(reply.get("cancelled") or ())
        for order in cancelled:
            if order.id not in self._receipts and all(order not in one.orders for one in self._armed):
                self._send_receipt(order, ended(order, "cancelled", "taken back before its first step"))

    def _introduce_again(self) -> None:
        """A daemon that lost its memory does not know whose steps these are; tell it, now and then."""
        now = time.monotonic()
        if (
            self._daemon is not None
            and self._introduction is not None
            and now - self._introduced_at > INTRODUCE_SECONDS
        ):
            self._introduced_at = now
            self._daemon.put(self._introduction)

    def _readable(self, plain: Mapping[str, Any]) -> Order | None:
        """An order as this side holds it; one that cannot be read is refused, once."""
        try:
            return Order.from_plain(plain)
        except ValueError as error:
            name = str(plain.get("id")) if isinstance(plain, Mapping) else "?"
            if name not in self._refused:
                self._refused.add(name)
                order = Order(name, 0, 0, ())
                self._send_receipt(order, ended(order, "refused", str(error)))
            return None

    def _prepare(self, record: dict[str, Any]) -> dict[str, Any]:
        """Turn what the trainer's thread only copied into plain numbers."""
        raw = record.get("raw")
        if raw is None:
            return record
        values, unreadable = plain_values(raw)
        plain = {key: value for key, value in record.items() if key != "raw"}
        return {**plain, "values": values, "unreadable": unreadable}

    def _tell_health(self) -> None:
        """Report drops, expired waits and failures once they have changed."""
        daemon = self._daemon
        if daemon is None:
            return
        now = (daemon.dropped, daemon.waits_expired, self.metrics.failures, self.capture.failures)
        if now != self._health:
            self._health = now
            daemon.put({"t": "health", **self.health()})

    def health(self) -> dict[str, Any]:
        """Drops, waits and fuses, in the form of the protocol's health record."""
        daemon = self._daemon
        return {
            "dropped": sum(emitter.dropped for emitter in self._emitters),
            "wait_seconds": daemon.wait_seconds if daemon else 0.0,
            "waits_expired": daemon.waits_expired if daemon else 0,
            "fuses": {fuse.feature: int(fuse.burnt) for fuse in (self.metrics, self.capture)},
            "failures": {fuse.feature: fuse.failures for fuse in (self.metrics, self.capture)},
        }
