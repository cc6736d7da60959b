# SPDX-License-Identifier: Apache-2.0
"""Signs of life that are not metrics: time going by, the trainer leaving, a worker's words."""

from __future__ import annotations

from dataclasses import replace

from sentinel.core.engine.captures import Outcome, ask_for_captures
from sentinel.core.engine.state import EngineSettings, WatchState, warned
from sentinel.core.report.incidents import filed
from sentinel.records import Effect, Finding, IncidentChanged, Suspect, Tick, TrainerLeft, Warned, WorkerSaid

SLOW = 10.0
"""Usual step times without a step that count as silence."""
NON_FINITE_CODES = frozenset({"worker_non_finite", "grad_norm_not_finite"})

MISMATCH_CODE = "mismatch"
"""The workers of one run differ among each other: no matter of precision, and worth knowing before one is sought."""


def on_tick(state: WatchState, event: Tick, settings: EngineSettings) -> Outcome:
    """Notice a run that has gone silent; the step that ends the silence lets the incident close like any other."""
    if state.last_at_seconds is None or state.last_step is None or state.ended:
        return state, ()
    silent = event.at_seconds - state.last_at_seconds
    if silent < max(settings.silent_after_seconds, SLOW * state.step_seconds):
        return state, ()
    if any(tracked.incident.state == "open" and tracked.incident.kind == "silence" for tracked in state.docket):
        return state, ()
    finding = Finding(
        detector="silence",
        metric="",
        step=state.last_step,
        value=silent,
        expected=None,
        because=f"No step came for {silent:.0f} s after step {state.last_step}; steps took {state.step_seconds:.0f} s.",
        kind="silence",
    )
    suspect = Suspect(stage="unknown", confidence=0.0)
    return _filed(state, finding, suspect, settings)


def on_leave(state: WatchState, event: TrainerLeft) -> Outcome:
    """The trainer said goodbye, or was given up."""
    state = replace(state, ended="finished" if event.finished else "left")
    if event.finished:
        return state, ()
    text = f"the trainer went without a goodbye after step {state.last_step}"
    state, new = warned(state, "trainer_left", text)
    return state, ((Warned("trainer_left", text),) if new else ())


def on_said(state: WatchState, event: WorkerSaid, settings: EngineSettings) -> Outcome:
    """A worker's line about a gradient that is not finite opens an incident; other lines are warnings."""
    if event.code == MISMATCH_CODE:
        return _mismatch(state, event, settings)
    if event.code not in NON_FINITE_CODES:
        state, new = warned(state, event.code, event.text)
        return state, ((Warned(event.code, event.text),) if new else ())
    step = 1 if state.last_step is None else state.last_step + 1
    finding = Finding(
        detector="nonfinite",
        metric="actor/grad_norm",
        step=step,
        value=float("nan"),
        expected=None,
        because=f'A worker said "{event.text}" after step {step - 1}.',
        stage="actor_update",
        kind="non_finite",
        score=1000.0,
    )
    return _filed(
        state,
        finding,
        Suspect(stage="actor_update", confidence=0.6, because="workers say it where gradients are applied"),
        settings,
    )


def _mismatch(state: WatchState, event: WorkerSaid, settings: EngineSettings) -> Outcome:
    finding = Finding(
        detector="checklist",
        metric="",
        step=max(1, state.last_step or 1),
        value=float("nan"),
        expected=None,
        because=event.text,
        stage="config",
        kind="mismatch",
        score=100.0,
    )
    return _filed(state, finding, Suspect(stage="config", confidence=0.9, because="the workers say so"), settings)


def _filed(state: WatchState, finding: Finding, suspect: Suspect, settings: EngineSettings) -> Outcome:
    docket, changes = filed(
        state.docket, state.run, finding.step, (finding,), lambda: (suspect,), settings=settings.incidents
    )
    effects: tuple[Effect, ...] = tuple(IncidentChanged(change.incident, change.change) for change in changes)
    state, more = ask_for_captures(replace(state, docket=docket), finding.step, settings)
    return state, (*effects, *more)
