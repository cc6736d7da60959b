# SPDX-License-Identifier: Apache-2.0
"""Orders, receipts and triage: the part of the engine that asks for dumps and takes in what they showed."""

from __future__ import annotations

from dataclasses import replace

from sentinel.core.capture.machine import ENDED
from sentinel.core.capture.policy import cancelled, entered, expired, overdue, plan, receipted, refused, wait_until
from sentinel.core.engine.state import EngineSettings, WatchState
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
    Suspect,
    Triage,
)

Outcome = tuple[WatchState, tuple[Effect, ...]]
ANSWERS = frozenset({"diverged", "non_finite"})
PROVEN = 0.95
"""Confidence in a stage that a comparable dump showed to part first."""


def ask_for_captures(state: WatchState, step: int, settings: EngineSettings) -> Outcome:
    """Order a capture for each open incident whose question is not settled yet."""
    effects: list[Effect] = []
    for place, tracked in enumerate(state.docket):
        if tracked.asked or tracked.incident.state != "open":
            continue
        state, more = _ask(state, place, step, settings)
        effects += more
    return state, tuple(effects)


def _ask(state: WatchState, place: int, step: int, settings: EngineSettings) -> Outcome:
    incident = state.docket[place].incident
    free_from = wait_until(incident, state.book, settings.capture)
    if free_from is not None and step < free_from:
        waiting = noted(incident, f"No capture before step {free_from + 1}: cool-down after the last one.")
        return replace(state, docket=put(state.docket, place, waiting)), ()
    order = plan(incident, step, state.book, settings.capture)
    if isinstance(order, str):
        receipt = refused(incident, step, order, settings.capture)
        incident = noted(replace(incident, receipt=receipt), f"Nothing is captured: {order}.")
        return replace(state, docket=put(state.docket, place, incident, asked=True)), (
            IncidentChanged(incident, "evidence"),
        )
    return _ordered(state, place, order)


def _ordered(state: WatchState, place: int, order: CaptureOrder) -> Outcome:
    steps = (
        f"step {order.first_step}"
        if order.first_step == order.last_step
        else f"steps {order.first_step} to {order.last_step}"
    )
    incident = noted(
        replace(state.docket[place].incident, capture=order),
        f"Ordered a dump of {' and '.join(order.stages)} at {steps}, level {order.level}.",
    )
    state = replace(state, docket=put(state.docket, place, incident, asked=True), book=entered(state.book, order))
    return state, (OrderCapture(order), IncidentChanged(incident, "evidence"))


def expire(state: WatchState, step: int, settings: EngineSettings) -> Outcome:
    """Give up captures of which nothing was heard."""
    effects: list[Effect] = []
    for capture in overdue(state.book, step, settings.receipt_grace_steps):
        state, more = on_receipt(state, capture.id, expired(capture))
        effects += [CancelCapture(capture.id), *more]
    return state, tuple(effects)


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


def on_receipt(state: WatchState, name: str, receipt: CaptureReceipt) -> Outcome:
    """Take in what was really dumped, and ask what it shows."""
    book, capture = receipted(state.book, name, receipt)
    if capture is None:
        return state, ()
    state = replace(state, book=book)
    place = None if capture.incident is None else find(state.docket, capture.incident)
    if place is None:
        return state, ()
    incident = replace(state.docket[place].incident, receipt=receipt)
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
    if receipt.first_step > order.first_step:
        notes.append(
            f"The dump begins at step {receipt.first_step}, later than the step {order.first_step} that was ordered. {receipt.why}".rstrip()
        )
    return notes


def on_triage(state: WatchState, incident_id: str, name: str, triage: Triage, settings: EngineSettings) -> Outcome:
    """Take in what a dump showed: it outweighs the metrics. An answered question ends its capture, an open one gets one more."""
    place = find(state.docket, incident_id)
    if place is None:
        return state, ()
    incident = told(state.docket[place].incident, triage)
    state = replace(state, docket=put(state.docket, place, incident))
    effects: list[Effect] = [IncidentChanged(incident, "evidence")]
    if incident.triage is not None and incident.triage.verdict in ANSWERS:
        for capture in state.book.captures:
            if capture.incident == incident_id and capture.state not in ENDED:
                state, more = on_cancel(state, capture.id)
                effects += more
        return state, tuple(effects)
    state, more = _extended(state, place, name, triage.verdict, settings)
    return state, (*effects, *more)


def _extended(state: WatchState, place: int, name: str, verdict: str, settings: EngineSettings) -> Outcome:
    """One more order where the last one answered nothing and the trouble goes on; stages that were cleared are left out."""
    incident = state.docket[place].incident
    mine = [capture for capture in state.book.captures if capture.incident == incident.id]
    running = any(capture.state not in ENDED for capture in mine)
    if incident.state != "open" or running or len(mine) > settings.capture.extensions or state.last_step is None:
        return state, ()
    if mine and mine[-1].id != name:
        return state, ()
    dumped = mine[-1].receipt.stages if mine and mine[-1].receipt is not None else ()
    cleared = frozenset(dumped if verdict == "same" else ())
    order = plan(incident, state.last_step, state.book, settings.capture, cleared)
    return (state, ()) if isinstance(order, str) else _ordered(state, place, order)


def told(incident: Incident, triage: Triage) -> Incident:
    """The incident with what a dump showed; an answer is not replaced by a later "nothing to see"."""
    incident = noted(incident, _told(triage))
    if incident.triage is not None and incident.triage.verdict in ANSWERS:
        return incident
    incident = replace(incident, triage=triage)
    first = triage.first
    if triage.verdict not in ANSWERS or first is None:
        return incident
    others = tuple(suspect for suspect in incident.suspects if suspect.stage != first.stage)
    rest = sum(suspect.confidence for suspect in others)
    scaled = tuple(
        replace(suspect, confidence=round(suspect.confidence * (1 - PROVEN) / max(rest, 1.0), 3)) for suspect in others
    )
    proven = Suspect(stage=first.stage, confidence=PROVEN, because=f"the dump shows {first.module} first: {first.why}")
    lead = incident.because.rstrip()
    return replace(
        incident,
        stage=first.stage,
        suspects=(proven, *scaled),
        because=f"{lead} The dump of {_at(triage)} shows {first.module} ({first.direction}, {first.position}) of {first.stage} first: {first.why}",
    )


def _at(triage: Triage) -> str:
    return "the run" if triage.step is None else f"step {triage.step}"


def _told(triage: Triage) -> str:
    where = _at(triage)
    if triage.verdict == "clean":
        return f"The dump of {where} holds no NaN or Inf: it did not come back there."
    if triage.verdict == "same":
        return f"The dump of {where} equals the golden dump in {triage.compared} entries."
    if triage.verdict == "not_comparable":
        return f"The dump of {where} cannot be compared with a golden one: {'; '.join(triage.notes) or 'step, rows or weights differ'}."
    module = "" if triage.first is None else f": {triage.first.module} first"
    return f"Triage of the dump of {where}: {triage.verdict}{module}."
