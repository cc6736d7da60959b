# SPDX-License-Identifier: Apache-2.0
"""The book of all captures of a run: what was ordered, what became of it, what it has cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sentinel.core.capture.cost import ModelSize
from sentinel.core.capture.machine import ENDED, EVENT_OF_OUTCOME, after
from sentinel.records import Capture, CaptureOrder, CaptureReceipt


@dataclass(frozen=True)
class Book:
    """All captures of a run."""

    captures: tuple[Capture, ...] = ()
    manual: int = 0
    """Captures ordered by hand so far."""
    steps: int = 0
    bytes: int = 0
    seconds: float = 0.0
    at: Mapping[str, float] = field(default_factory=dict)
    """Capture -> Unix time of its last receipt."""
    size: ModelSize | None = None
    """Of the model that is dumped, where the trainer said it."""
    ranks: int = 0
    """Of the run; 0 where not known."""
    stages: tuple[str, ...] = ()
    """Stages of the run that can be dumped; empty where the trainer did not say."""
    recorder: bool = False
    """The workers keep their last inputs, so that a stage can be run again."""


def entered(book: Book, order: CaptureOrder) -> Book:
    """The book with a new order."""
    capture = Capture(id=order.id, run=order.run, incident=order.incident, state="ordered", order=order)
    return replace(
        book,
        captures=(*book.captures, capture),
        manual=book.manual + (order.incident is None and not order.id.endswith(":healthy")),
    )


def receipted(book: Book, name: str, receipt: CaptureReceipt, at_seconds: float = 0.0) -> tuple[Book, Capture | None]:
    """The book with what became of a capture; None for a capture that is not in it.

    A receipt for a capture that has ended is kept, and its state stays; but one that was taken back after a step of it was dumped is done.
    """
    place = next((place for place, capture in enumerate(book.captures) if capture.id == name), None)
    if place is None:
        return book, None
    old = book.captures[place]
    event = EVENT_OF_OUTCOME.get(receipt.outcome, "failed")
    state = old.state if old.state in ENDED else after(old.state, event)
    if old.state == "cancelled" and event == "finished" and receipt.paths:
        state = "done"
    capture = replace(old, state=state, receipt=receipt)
    before = old.receipt
    return replace(
        book,
        captures=(*book.captures[:place], capture, *book.captures[place + 1 :]),
        steps=book.steps + _steps(receipt) - _steps(before),
        bytes=book.bytes + receipt.bytes - (before.bytes if before else 0),
        seconds=book.seconds + receipt.seconds - (before.seconds if before else 0.0),
        at={**book.at, name: at_seconds},
    ), capture


def _steps(receipt: CaptureReceipt | None) -> int:
    return receipt.last_step - receipt.first_step + 1 if receipt is not None and receipt.paths else 0


def cancelled(book: Book, name: str) -> tuple[Book, bool]:
    """The book with a capture cancelled; False when there was nothing to cancel."""
    captures = tuple(
        replace(capture, state=after(capture.state, "cancelled"))
        if capture.id == name and capture.state not in ENDED
        else capture
        for capture in book.captures
    )
    return replace(book, captures=captures), captures != book.captures


def overdue(book: Book, step: int, grace: int) -> tuple[Capture, ...]:
    """Captures whose last step lies more than `grace` steps back and of which nothing was heard."""
    return tuple(
        capture for capture in book.captures if capture.state not in ENDED and step > capture.order.last_step + grace
    )


def expired(capture: Capture) -> CaptureReceipt:
    """The receipt of a capture of which nothing was heard."""
    order = capture.order
    return CaptureReceipt(
        first_step=order.first_step,
        last_step=order.last_step,
        stages=order.stages,
        ranks=(),
        paths=(),
        bytes=0,
        seconds=0.0,
        outcome="expired",
        why="no receipt came from the trainer",
    )
