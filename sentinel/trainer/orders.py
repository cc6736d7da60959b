# SPDX-License-Identifier: Apache-2.0
"""Which capture is due at a step boundary: the trainer's copy of the orders.

Pure bookkeeping. An order that came too late for its first step is moved to the next boundary as a whole,
and the receipt says which steps it really was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Order:
    """One capture order, as the trainer holds it."""

    id: str
    first_step: int
    last_step: int
    stages: tuple[str, ...]
    level: str = "L0"
    ranks: tuple[int, ...] | None = None
    why: str = ""
    incident: str | None = None
    modules: tuple[str, ...] = ()
    task: str = "statistics"
    asked_first_step: int = 0
    """The first step that was asked for; differs from `first_step` when the order came late."""
    expected_bytes: int = 0
    """What it may take on disk; so much free space is asked for."""
    rerun: bool = False
    """The kept inputs of `first_step` are run again; see `reruns`."""
    exact: bool = False
    """A golden dump is wanted of its very step: too late means never, not the next one."""

    @property
    def manner(self) -> tuple[str, str, tuple[str, ...]]:
        """How is dumped; orders of one manner can share a step."""
        return (self.level, self.task, self.modules)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], number: int = 0, *, exact: bool = False) -> Order:
        """Read the ORDER form of the command-line contract.

        Raises:
            ValueError: a field is missing or of the wrong kind; the text names it.
        """
        try:
            first = int(plain["first_step"])
            last = int(plain.get("last_step", first))
            ranks = plain.get("ranks")
            order = cls(
                id=str(plain.get("id") or f"order-{number}"),
                first_step=first,
                last_step=last,
                stages=tuple(str(s) for s in plain["stages"]),
                level=str(plain.get("level") or "L0"),
                ranks=None if ranks in (None, "all") else tuple(int(r) for r in ranks),
                why=str(plain.get("why") or ""),
                incident=plain.get("incident"),
                modules=tuple(str(m) for m in plain.get("modules") or ()),
                task=str(plain.get("task") or "statistics"),
                asked_first_step=first,
                expected_bytes=int(plain.get("expected_bytes") or 0),
                rerun=bool(plain.get("rerun")),
                exact=exact,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"capture order {number}: {type(error).__name__} {error}") from error
        if order.last_step < order.first_step or not order.stages:
            raise ValueError(f"capture order {order.id}: needs a stage and first_step <= last_step")
        return order


class OrderBook:
    """The orders that are not finished. Not thread-safe by itself: the session holds the lock."""

    def __init__(self) -> None:
        self._open: dict[str, Order] = {}
        self._begun: set[str] = set()
        self._done: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def offer(self, orders: Iterable[Order]) -> None:
        """Take orders in; one that is known, running or finished is not taken twice."""
        for order in orders:
            if order.id not in self._open and order.id not in self._done:
                self._open[order.id] = order

    def cancel(self, ids: Iterable[str]) -> list[Order]:
        """Drop orders and return those that were open."""
        dropped = [self._open[name] for name in ids if name in self._open]
        for order in dropped:
            self.finish(order.id)
        return dropped

    def due(self, step: int) -> tuple[list[Order], list[Order]]:
        """Which orders are obeyed at this step, and which exact ones have missed theirs.

        What is due at one step is dumped in one manner, that of the eldest order; others wait for the next step. An order
        that has not begun and is late is moved here as a whole.
        """
        due: list[Order] = []
        missed: list[Order] = []
        for order in list(self._open.values()):
            begun = order.id in self._begun
            if not begun and order.first_step < step:
                if order.exact:
                    missed.append(order)
                    self.finish(order.id)
                    continue
                order = self._moved(order, step)
            if order.last_step < step:
                self.finish(order.id)
            elif order.first_step <= step:
                if due and order.manner != due[0].manner:
                    if not begun and not order.exact:
                        self._moved(order, step + 1)
                    elif not begun:
                        missed.append(order)
                        self.finish(order.id)
                    continue
                self._begun.add(order.id)
                due.append(order)
        return due, missed

    def _moved(self, order: Order, step: int) -> Order:
        self._open[order.id] = replace(order, first_step=step, last_step=step + order.last_step - order.first_step)
        return self._open[order.id]

    def finish(self, order_id: str) -> None:
        """The order's last step is over, or it failed for good."""
        self._open.pop(order_id, None)
        self._begun.discard(order_id)
        self._done[order_id] = None
        while len(self._done) > 1000:
            self._done.pop(next(iter(self._done)))
