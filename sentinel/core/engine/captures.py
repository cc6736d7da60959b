# SPDX-License-Identifier: Apache-2.0
"""Orders, receipts and triage: the part of the engine that asks for dumps, takes in what they showed, and asks deeper."""

from __future__ import annotations

from dataclasses import replace

from sentinel.core.capture.book import cancelled, entered, expired, overdue, receipted
from sentinel.core.capture.cost import ModelSize
from sentinel.core.capture.escalation import AGAIN, ELSEWHERE, NEXT, RUNGS, SETTLED, answer_of, rung_of
from sentinel.core.capture.machine import ENDED
from sentinel.core.capture.policy import deeper, plan, refused, rerun_of, wait_until
from sentinel.core.engine.moments import HEALTHY, moment, next_golden, reference_order
from sentinel.core.engine.state import EngineSettings, WatchState
from sentinel.core.engine.telling import ANSWERS, told, told_deeper
from sentinel.core.report.incidents import find, noted, put
from sentinel.records import (
    AskTriage,
    CancelCapture,
    Capture,
    CaptureOrder,
    CaptureReceipt,
    Effect,
    Incident,
    IncidentChanged,
    OrderCapture,
    TrainerDescribed,
    Triage,
)

Outcome = tuple[WatchState, tuple[Effect, ...]]


def ask_for_captures(state: WatchState, step: int, settings: EngineSettings) -> Outcome:
    """Order a capture for each open incident whose question is not settled yet."""
    state, effects = _no_longer_healthy(state)
    for place, tracked in enumerate(state.docket):
        if tracked.asked or tracked.incident.state != "open":
            continue
        state, more = _ask(state, place, step, settings)
        effects += more
    return state, tuple(effects)


def _no_longer_healthy(state: WatchState) -> tuple[WatchState, list[Effect]]:
    """Take back the run's own healthy dump if an incident came before it: it would hold the fault, and be in the way."""
    effects: list[Effect] = []
    if not any(tracked.incident.state == "open" for tracked in state.docket):
        return state, effects
    for capture in state.book.captures:
        if capture.id == f"{state.run}:{HEALTHY}" and capture.state not in ENDED:
            state, more = on_cancel(state, capture.id)
            effects += more
    return state, effects


def ask_for_reference(state: WatchState, step: int, settings: EngineSettings) -> Outcome:
    """Order the run's own healthy dump, once, where no golden dump could be compared with at an incident."""
    order = None if state.docket else reference_order(state, step, settings)
    if order is None:
        return state, ()
    return replace(state, book=entered(state.book, order)), (OrderCapture(order),)


def _ask(state: WatchState, place: int, step: int, settings: EngineSettings) -> Outcome:
    incident = state.docket[place].incident
    free_from = wait_until(incident, state.book, settings.capture)
    if free_from is not None and step < free_from:
        waiting = noted(incident, f"No capture before step {free_from + 1}: cool-down after the last one.")
        return replace(state, docket=put(state.docket, place, waiting)), ()
    order = plan(incident, moment(state, step + 1), state.book, settings.capture)
    if isinstance(order, str):
        receipt = refused(incident, step, order, settings.capture)
        incident = noted(replace(incident, receipt=receipt), f"Nothing is captured: {order}.")
        return replace(state, docket=put(state.docket, place, incident, asked=True)), (
            IncidentChanged(incident, "evidence"),
        )
    kept = rerun_of(incident, step, state.book, settings.capture)
    state, effects = _ordered(state, place, order)
    if kept is None:
        return state, effects
    incident = noted(
        state.docket[place].incident, f"Asked to run {kept.stages[0]} of step {step} again on its kept inputs."
    )
    state = replace(state, docket=put(state.docket, place, incident), book=entered(state.book, kept))
    return state, (OrderCapture(kept), *effects)


def _ordered(state: WatchState, place: int, order: CaptureOrder) -> Outcome:
    one = order.first_step == order.last_step
    steps = f"step {order.first_step}" if one else f"steps {order.first_step} to {order.last_step}"
    what = (
        f"{' and '.join(order.modules)} in {' and '.join(order.stages)}"
        if order.modules
        else " and ".join(order.stages)
    )
    manner = order.level if order.task == "statistics" else f"{order.level}, whole tensors"
    incident = state.docket[place].incident
    if not _answered(incident):
        incident = replace(incident, capture=order)
    incident = noted(incident, f"Ordered a dump of {what} at {steps}, level {manner}.")
    state = replace(state, docket=put(state.docket, place, incident, asked=True), book=entered(state.book, order))
    return state, (OrderCapture(order), IncidentChanged(incident, "evidence"))


def _answered(incident: Incident) -> bool:
    """Whether a dump named something: the incident then goes on showing that dump, also while deeper ones are made."""
    return incident.triage is not None and incident.triage.verdict in ANSWERS


def expire(state: WatchState, step: int, settings: EngineSettings) -> Outcome:
    """Give up captures of which nothing was heard; and while nothing is wrong, ask for the run's own healthy dump."""
    effects: list[Effect] = []
    for capture in overdue(state.book, step, settings.receipt_grace_steps):
        state, more = on_receipt(state, capture.id, expired(capture))
        effects += [CancelCapture(capture.id), *more]
    state, more = ask_for_reference(state, step, settings)
    return state, (*effects, *more)


def on_described(state: WatchState, event: TrainerDescribed) -> Outcome:
    """Take in what decides how much a capture costs and what can be asked for."""
    book = state.book
    size = ModelSize(parameters=event.parameters) if event.parameters > 0 else book.size
    ranks = event.ranks or book.ranks
    return replace(
        state, book=replace(book, size=size, ranks=ranks, recorder=event.recorder, stages=event.stages or book.stages)
    ), ()


def on_request(state: WatchState, order: CaptureOrder) -> Outcome:
    """A person's order: numbered, entered, passed on."""
    if not order.id:
        order = replace(order, id=f"{state.run}:m{state.book.manual + 1}", run=state.run)
    if any(capture.id == order.id for capture in state.book.captures):
        return state, ()
    return replace(state, book=entered(state.book, order)), (OrderCapture(order),)


def on_cancel(state: WatchState, name: str) -> Outcome:
    """End a capture."""
    book, changed = cancelled(state.book, name)
    if not changed:
        return state, ()
    return replace(state, book=book), (CancelCapture(name),)


def on_receipt(state: WatchState, name: str, receipt: CaptureReceipt, at_seconds: float = 0.0) -> Outcome:
    """Take in what was really dumped, and ask what it shows."""
    book, capture = receipted(state.book, name, receipt, at_seconds or state.last_at_seconds or 0.0)
    if capture is None:
        return state, ()
    state = replace(state, book=book)
    place = None if capture.incident is None else find(state.docket, capture.incident)
    if place is None:
        return state, ()
    incident = state.docket[place].incident
    if incident.capture is None or incident.capture.id == name:
        incident = replace(incident, receipt=receipt)
    for note in _notes(capture, receipt):
        incident = noted(incident, note)
    state = replace(state, docket=put(state.docket, place, incident))
    effects: list[Effect] = [IncidentChanged(incident, "evidence")]
    if receipt.paths:
        stages = tuple(stage for stage in capture.order.stages if stage in receipt.stages) or receipt.stages
        effects.append(AskTriage(incident.id, name, receipt, incident.kind == "non_finite", stages))
    return state, tuple(effects)


def _notes(capture: Capture, receipt: CaptureReceipt) -> list[str]:
    order = capture.order
    if not receipt.paths:
        return [f"Capture {capture.id} {receipt.outcome}: {receipt.why or 'no reason given'}."]
    notes = [
        f"Dumped {' and '.join(receipt.stages)} at steps {receipt.first_step} to {receipt.last_step}: {receipt.bytes} bytes, {receipt.seconds:.2g} s."
    ]
    if order.rerun:
        return [*notes, f"It was {receipt.why}."]
    if receipt.first_step > order.first_step:
        notes.append(
            f"The dump begins at step {receipt.first_step}, later than the step {order.first_step} that was ordered. {receipt.why}".rstrip()
        )
    return notes


def on_triage(state: WatchState, incident_id: str, name: str, triage: Triage, settings: EngineSettings) -> Outcome:
    """Take in what a dump showed: it outweighs the metrics. Then settle the question, or ask deeper, elsewhere or again."""
    place = find(state.docket, incident_id)
    if place is None:
        return state, ()
    old = state.docket[place].incident
    capture = next((capture for capture in state.book.captures if capture.id == name), None)
    rung = None if capture is None else rung_of(capture.order, non_finite=old.kind == "non_finite")
    narrowed = rung is not None and RUNGS[rung].narrowed
    incident = told_deeper(old, triage, RUNGS[rung].question) if rung and narrowed else told(old, triage)
    state = replace(state, docket=put(state.docket, place, incident))
    effects: list[Effect] = [IncidentChanged(incident, "evidence")]
    following = SETTLED if rung is None else NEXT[rung, answer_of(triage)]
    # A stage that is clean when it is run again may have been sick all the same: the order beside it goes on.
    again = capture is not None and capture.order.rerun
    if triage.verdict in ANSWERS or (following == SETTLED and not again):
        for other in state.book.captures:
            if other.incident == incident_id and other.state not in ENDED and not _deeper(other, capture):
                state, more = on_cancel(state, other.id)
                effects += more
    if capture is None or following == SETTLED:
        return state, tuple(effects)
    state, more = _followed(state, place, capture, triage, settings)
    return state, (*effects, *more)


def _deeper(other: Capture, capture: Capture | None) -> bool:
    """Whether a capture goes deeper than the one that answers: it was ordered because of an earlier answer to that one's question.

    Steps of one order are answered one by one, and the last of them may come when the deeper order is already out.
    """
    if capture is None:
        return False
    mine, its = ((bool(one.order.modules), one.order.task == "tensor") for one in (capture, other))
    return its > mine


def _followed(state: WatchState, place: int, capture: Capture, triage: Triage, settings: EngineSettings) -> Outcome:
    """The order that the table of escalation asks for after an answer, if there is still something to ask."""
    incident = state.docket[place].incident
    mine = [one for one in state.book.captures if one.incident == incident.id and not one.order.rerun]
    running = any(one.state not in ENDED for one in mine)
    if incident.state != "open" or running or state.last_step is None or not _is_last(mine, capture):
        return state, ()
    non_finite = incident.kind == "non_finite"
    rung = rung_of(capture.order, non_finite=non_finite)
    following = NEXT[rung, answer_of(triage)]
    if capture.order.rerun and following in (AGAIN, ELSEWHERE):
        return state, ()  # The order beside it asks that.
    # The reply to the next report carries the order, so it can be obeyed at the step after that one.
    when, bounds = moment(state, state.last_step + 2), settings.capture
    order: CaptureOrder | str
    if following in (AGAIN, ELSEWHERE):
        if sum(rung_of(one.order, non_finite=non_finite) == rung for one in mine) > settings.capture.extensions:
            return state, ()
        dumped = mine[-1].receipt.stages if mine[-1].receipt is not None else ()
        cleared = frozenset(dumped if following == ELSEWHERE else ())
        golden = next_golden(state, capture.order.stages, when.step) if following == AGAIN else None
        if golden is not None:
            when, bounds = replace(when, step=golden), replace(bounds, steps=1)
        order = plan(incident, when, state.book, bounds, cleared)
    else:
        if not settings.capture.escalate:
            return state, ()
        found = _found(incident, capture.order, triage)
        order = deeper(
            capture.order,
            following,
            found,
            moment=when,
            book=state.book,
            settings=settings.capture,
            tensor_bytes=triage.tensor_bytes,
        )
    if isinstance(order, str):
        open_question = RUNGS[following].question if following in RUNGS else RUNGS[rung].question
        return replace(
            state, docket=put(state.docket, place, noted(incident, f"Not asked: {open_question} {order}."))
        ), ()
    return _ordered(state, place, order)


def _is_last(mine: list[Capture], capture: Capture) -> bool:
    """Whether nothing was ordered because of this capture's answer, or after it, yet."""
    if capture.order.rerun:
        return not any(one.order.modules for one in mine)
    return bool(mine) and mine[-1].id == capture.id


def _found(incident: Incident, last: CaptureOrder, triage: Triage) -> tuple[str, str]:
    """Stage and module that a deeper dump is narrowed to: what this dump named, else what an earlier one did."""
    named = triage.first or next(iter(triage.suspects), None)
    if named is not None:
        return named.stage, named.module
    if last.modules:
        return last.stages[0], last.modules[0]
    first = incident.triage.first if incident.triage is not None else None
    return (last.stages[0], "") if first is None else (first.stage, first.module)
