# SPDX-License-Identifier: Apache-2.0
"""The trainer's half of the flight recorder: orders to run a stage again on its kept inputs, asked for, queued and collected."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sentinel.trainer import flight_recorder, reach
from sentinel.trainer.fuse import attempt
from sentinel.trainer.orders import Order
from sentinel.trainer.receipts import ReceiptBook, ended

HELD_SECONDS = 2.0
"""How long the emitter's thread waits for the workers to say what they hold; at a boundary they are idle."""
COLLECT_SECONDS = 300.0

Send = Callable[[Order, dict[str, Any]], None]


@dataclass
class _Ready:
    """An order that every rank can obey."""

    order: Order
    calls: dict[str, int]
    workers: list[Any]


class Reruns:
    """Orders to run stages again. `install` and `take` are called on background threads, `boundary` on the trainer's.

    Args:
        send: sends an order's receipt.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._ready: list[_Ready] = []
        self._known: set[str] = set()
        self._trainer: Any = None
        self._begun = 0
        self.bytes = 0

    def install(self, trainer: Any, most_bytes: int) -> None:
        """Let every worker keep its inputs, or stop it; cheap where nothing changes."""
        if most_bytes == self.bytes and (trainer is self._trainer or not most_bytes):
            return
        self.bytes, self._trainer = most_bytes, trainer
        # One order of calls on every rank: between a stage's queueing on two ranks nothing may be queued that lets go of inputs.
        with self._lock:
            for worker in reach.workers_of(trainer):
                attempt(lambda worker=worker: worker.__ray_call__.remote(flight_recorder.keep, most_bytes))  # type: ignore[misc]

    def close(self) -> None:
        """Let every worker forget its inputs and put its methods back."""
        if self._trainer is not None:
            self.install(self._trainer, 0)

    def take(self, orders: list[Order]) -> None:
        """Ask the workers whether they hold what an order is about; refuse it where one does not."""
        for order in orders:
            if order.id in self._known:
                continue
            self._known.add(order.id)
            late = f"the inputs of step {order.first_step} are gone: step {self._begun} has begun"
            ready = late if self._begun > order.first_step else self._held(order)
            if isinstance(ready, str):
                self._send(order, ended(order, "refused", ready))
                continue
            with self._lock:
                self._ready.append(ready)

    def _held(self, order: Order) -> _Ready | str:
        if self._trainer is None:
            return "the flight recorder is off (trainer.flight_recorder_bytes)"
        asked = list(reach.workers_of(self._trainer))
        answers = reach.ask(self._trainer, flight_recorder.held, HELD_SECONDS)
        if len(answers) < len(asked):
            return f"{len(asked) - len(answers)} of {len(asked)} workers did not say what they hold"
        calls: dict[str, int] = {}
        having: set[int] = set()
        for stage in order.stages:
            told = [(place, answer) for place, answer in enumerate(answers) if stage in answer["calls"]]
            found = {answer["calls"][stage] for _, answer in told}
            if not told or None in found or len(found) > 1:
                without = next((a for _, a in told if a["calls"][stage] is None), None)
                why = "no worker runs it" if not told else "ranks hold different calls"
                if without is not None:
                    why = f"rank {without['rank']}: {without['why'].get(stage, 'not called yet')}"
                return f"the inputs of {stage} are not kept on every rank: {why}"
            calls[stage] = found.pop()
            having |= {place for place, _ in told}
        return _Ready(order, calls, [asked[place] for place in sorted(having)])

    def boundary(self, step: int, root: str, min_free_bytes: int | None) -> None:
        """A step begins: run again what was meant of the step before it; what is older is gone."""
        self._begun = step
        # Never waited for: while another thread queues, this boundary passes, and the next one says that it is too late.
        if not self._ready or not self._lock.acquire(blocking=False):
            return
        try:
            ready, self._ready = self._ready, []
            for one in ready:
                self._begin(one, step, root, min_free_bytes)
        finally:
            self._lock.release()

    def _begin(self, one: _Ready, step: int, root: str, min_free_bytes: int | None) -> None:
        if one.order.first_step != step - 1:
            why = f"the inputs of step {one.order.first_step} are gone: step {step} has begun"
            self._send(one.order, ended(one.order, "skipped", why))
            return
        plan = {**reach.plan_of([one.order], step - 1, root, min_free_bytes), "calls": one.calls}
        calls = [worker.__ray_call__.remote(flight_recorder.again, plan) for worker in one.workers]
        threading.Thread(target=self._collect, args=(one.order, calls), name="sentinel-rerun", daemon=True).start()

    def _collect(self, order: Order, calls: list[Any]) -> None:
        armed = reach.Armed([order], order.first_step, {}, [], [], calls)
        answers, problems = reach.collect(armed, COLLECT_SECONDS)
        book = ReceiptBook(order)
        book.add(order.first_step, answers, problems)
        receipt = book.receipt(finished=True)
        weights = {stage: {a["weights"].get(stage, "unknown") for a in answers} for stage in order.stages}
        told = [f"{stage}: {_weights(marks, order.first_step)}" for stage, marks in weights.items()]
        said = f"run again before step {order.first_step + 1} on the kept inputs of step {order.first_step}; {'; '.join(told)}"
        receipt["why"] = "; ".join(part for part in (said, receipt["why"]) if part)
        self._send(order, receipt)


def _weights(marks: set[str], step: int) -> str:
    if marks == {"same"}:
        return f"its weights are those of step {step}"
    if "changed" in marks:
        return f"its weights HAVE CHANGED since: they are those after the update of step {step}"
    return "whether its weights changed since is not known"
