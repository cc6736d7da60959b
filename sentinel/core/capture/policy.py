# SPDX-License-Identifier: Apache-2.0
"""Is this incident worth a dump: of which stages, over which steps, within which budget. And the book of all captures of a run.

A dump slows the steps it covers (L0 about 1.6 to 4 times), so it is narrow (two stages), short (two steps), rare (cool-down) and
bounded for the whole run; what is not done is said, with the reason, in the incident.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sentinel.core.capture.machine import ENDED, EVENT_OF_OUTCOME, after
from sentinel.records import DUMPABLE_STAGES, Capture, CaptureOrder, CaptureReceipt, Incident

ACTOR_STAGES = ("actor_compute_log_prob", "actor_update", "ref_compute_log_prob")
"""Where to look when the suspects are cleared: every run has these."""
NO_DUMP_HELPS = {
    "mismatch": "inputs or settings differ: a dump would show other numbers, not a fault",
    "vanished": "a metric is missing: a dump shows tensors, not reports",
    "silence": "the run is silent: no step is coming that could be dumped",
}


@dataclass(frozen=True)
class CaptureSettings:
    """Bounds of automatic dumps. A capture ordered by hand counts against the budget and is never refused by it."""

    enabled: bool = True
    why_not: str = "captures are switched off in the settings"
    """Said in the receipt when `enabled` is false, e.g. `no trainer is attached`."""
    level: str = "L0"
    steps: int = 2
    """Steps of one order, the first of them the next step."""
    stages: int = 2
    """Stages of one order, at most."""
    extensions: int = 1
    """Further orders for an incident whose question stays open."""
    least_confidence: float = 0.1
    """Suspects below it are not dumped."""
    cool_down_steps: int = 10
    """Steps after a capture before another incident may have one."""
    most_steps: int = 40
    """Dumped steps of a run."""
    most_bytes: int = 20 * 2**30
    most_seconds: float = 1800.0
    """Time that dumping added to a run."""


@dataclass(frozen=True)
class Book:
    """All captures of a run."""

    captures: tuple[Capture, ...] = ()
    manual: int = 0
    """Captures ordered by hand so far."""
    steps: int = 0
    bytes: int = 0
    seconds: float = 0.0


def plan(
    incident: Incident, step: int, book: Book, settings: CaptureSettings, cleared: frozenset[str] = frozenset()
) -> CaptureOrder | str:
    """The order for the step after `step`, or the reason why there is none.

    `cleared` are stages whose dump equals the golden one: the next order looks elsewhere.
    """
    if incident.kind in NO_DUMP_HELPS:
        return NO_DUMP_HELPS[incident.kind]
    suspected = [
        suspect.stage
        for suspect in incident.suspects
        if suspect.stage in DUMPABLE_STAGES and suspect.confidence >= settings.least_confidence
    ]
    wanted = [*suspected, *(ACTOR_STAGES if cleared else ())]
    stages = tuple(stage for stage in dict.fromkeys(wanted) if stage not in cleared)[: settings.stages]
    if not stages:
        return f"no dump is possible of {incident.stage}"
    if not settings.enabled:
        return settings.why_not
    spent = _spent(book, settings)
    if spent:
        return spent
    mine = sum(capture.incident == incident.id for capture in book.captures)
    return CaptureOrder(
        id=f"{incident.id}/c{mine + 1}",
        run=incident.run,
        incident=incident.id,
        first_step=step + 1,
        last_step=step + settings.steps,
        stages=stages,
        level=settings.level,
        ranks=None,
        why=f"{incident.kind} since step {incident.opened_at_step}: which module of {' or '.join(stages)}?",
    )


def wait_until(incident: Incident, book: Book, settings: CaptureSettings) -> int | None:
    """Step from which the cool-down allows a capture for this incident; None when it does now or never mattered."""
    others = [
        capture.order.last_step
        for capture in book.captures
        if capture.incident not in (None, incident.id) and capture.state != "cancelled"
    ]
    return max(others) + settings.cool_down_steps if others else None


def _spent(book: Book, settings: CaptureSettings) -> str:
    if book.steps >= settings.most_steps:
        return f"the run's budget of {settings.most_steps} dumped steps is used up"
    if book.bytes >= settings.most_bytes:
        return f"the run's budget of {settings.most_bytes} dumped bytes is used up"
    if book.seconds >= settings.most_seconds:
        return f"the run's budget of {settings.most_seconds:.0f} seconds of dumping is used up"
    return ""


def refused(incident: Incident, step: int, why: str, settings: CaptureSettings) -> CaptureReceipt:
    """The receipt of a capture that was never ordered."""
    return CaptureReceipt(
        first_step=step + 1,
        last_step=step + settings.steps,
        stages=tuple(suspect.stage for suspect in incident.suspects)[: settings.stages],
        ranks=(),
        paths=(),
        bytes=0,
        seconds=0.0,
        outcome="refused",
        why=why,
    )


def entered(book: Book, order: CaptureOrder) -> Book:
    """The book with a new order."""
    capture = Capture(id=order.id, run=order.run, incident=order.incident, state="ordered", order=order)
    return replace(book, captures=(*book.captures, capture), manual=book.manual + (order.incident is None))


def receipted(book: Book, name: str, receipt: CaptureReceipt) -> tuple[Book, Capture | None]:
    """The book with what became of a capture; None for a capture that is not in it.

    A receipt for a capture that has ended (cancelled while it was being written) is kept, and its state stays.
    """
    place = next((place for place, capture in enumerate(book.captures) if capture.id == name), None)
    if place is None:
        return book, None
    old = book.captures[place]
    event = EVENT_OF_OUTCOME.get(receipt.outcome, "failed")
    state = old.state if old.state in ENDED else after(old.state, event)
    capture = replace(old, state=state, receipt=receipt)
    before = old.receipt
    return replace(
        book,
        captures=(*book.captures[:place], capture, *book.captures[place + 1 :]),
        steps=book.steps + _steps(receipt) - _steps(before),
        bytes=book.bytes + receipt.bytes - (before.bytes if before else 0),
        seconds=book.seconds + receipt.seconds - (before.seconds if before else 0.0),
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
