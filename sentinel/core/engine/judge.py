# SPDX-License-Identifier: Apache-2.0
"""A step, judged: frame, regime, look, detectors, suspects, incidents, captures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sentinel.core.catalogue import Catalogue
from sentinel.core.compare import Look, recognise, unbet
from sentinel.core.detect import DETECTORS, ENTROPY, DepartureState, parted, strictly
from sentinel.core.engine.captures import Outcome, ask_for_captures, expire
from sentinel.core.engine.state import EngineSettings, WatchState, warned, with_comparison
from sentinel.core.engine.steps import Arrival, arrival, compared, compatibility
from sentinel.core.frames import SeriesFrame, framed
from sentinel.core.localise import evidence_of, localise, localise_not_finite
from sentinel.core.report.incidents import explained, filed
from sentinel.core.window import remembered
from sentinel.records import Effect, Finding, IncidentChanged, StepReported, Suspect, Warned

RESTARTED = ("departure", "drift", "e_detector", "silence", "limit")
"""Detectors that begin anew when a run is resumed: its weights are the checkpoint's again."""
ENTROPY_OTHERWISE = (
    "actor/entropy is off at the first step, where weights are equal, while the log-probs of the same logits agree: this backend computes it "
    "otherwise; it is no evidence unless the log-probs move with it"
)
UPDATES = frozenset({"actor_grad", "critic_grad"})
"""Groups whose NaN makes the trainer skip an update, so that the weights part from a replayed run's."""


def on_step(state: WatchState, event: StepReported, catalogue: Catalogue, settings: EngineSettings) -> Outcome:
    """Take in one report."""
    came = arrival(state, event)
    effects: list[Effect] = []
    if came.unreadable:
        text = f"no numbers, so they are not watched: {', '.join(came.unreadable[:8])}"
        state, effects = _say(state, effects, "unreadable_values", text)
    if came.how in {"empty", "repeat"}:
        return state, tuple(effects)
    if came.how == "restart":
        text = f"step {event.step} came after step {state.last_step}: the run was resumed or rewound and is judged on as one run"
        state, effects = _say(_rewound(state, event), effects, "step_went_back", text)
    frame = framed(event.step, came.values, _index(state), catalogue)
    state = replace(state, keys=frame.index.keys, index=frame.index)
    if came.how == "fragment":
        return _fragment(state, frame, settings, effects)
    state, more = _whole(state, frame, came, settings)
    effects += more
    return _timed(state, event, came), tuple(effects)


def _index(state: WatchState) -> Any:
    assert state.index is not None, "advance() prepares the state first"
    return state.index


def _say(state: WatchState, effects: list[Effect], code: str, text: str) -> tuple[WatchState, list[Effect]]:
    state, new = warned(state, code, text)
    return state, [*effects, Warned(code, text)] if new else effects


def _rewound(state: WatchState, event: StepReported) -> WatchState:
    memory = {name: kept for name, kept in state.memory.items() if name not in RESTARTED}
    past = tuple(step for step in state.past if step.step < event.step)
    return replace(state, memory=memory, past=past, attempt=max(state.attempt, event.attempt), last_step=event.step)


def _fragment(state: WatchState, frame: SeriesFrame, settings: EngineSettings, effects: list[Effect]) -> Outcome:
    """Keys that came apart from their step: hard rules only, for nothing else of the step is known to be missing."""
    look = compared(state, frame)
    _, findings = DETECTORS["nonfinite"].observe(None, look)
    state, more = _file(state, look, findings, settings)
    return state, (*effects, *more)


def _whole(state: WatchState, frame: SeriesFrame, came: Arrival, settings: EngineSettings) -> Outcome:
    effects: list[Effect] = []
    state, said = compatibility(state, frame)
    effects += [Warned(code, text) for code, text in said]
    if state.baseline is not None and state.comparable is not False:
        state = with_comparison(replace(state, recognition=recognise(state.recognition, frame, state.baseline)))
    state, effects = _beyond_the_baseline(state, frame, effects)
    look = compared(state, frame)
    if "departure" in state.memory:
        look = _without_known_causes(strictly(state.memory["departure"], look), state.memory["departure"])
    if look.lag:
        state, effects = _say(state, effects, "learns_slower" if look.lag > 0 else "learns_faster", _learns(look))
    state, findings = _observed(state, look, settings)
    if "departure" in state.memory and state.memory["departure"].otherwise:
        state, effects = _say(state, effects, "entropy_computed_otherwise", ENTROPY_OTHERWISE)
    state, more = _file(state, look, findings, settings)
    effects += more
    if came.how != "late":
        state = replace(state, past=remembered(state.past, frame, settings.past_steps), look=look, lag=look.lag)
        state, more = expire(state, frame.step, settings)
        effects += more
    state = replace(state, steps_seen=state.steps_seen + 1)
    return state, tuple(effects)


def _without_known_causes(look: Look, known: DepartureState) -> Look:
    """The look without bets on what has a reason: an entropy that is computed otherwise, weights that parted from the replayed run's."""
    if look.regime == "replayed" and known.since is not None:
        return replace(look, bets=None)
    return unbet(look, (ENTROPY,)) if known.otherwise else look


def _learns(look: Look) -> str:
    step = look.frame.step
    return (
        f"in all metrics that trend, step {step} of this run is where the baseline's seeds are at step {step - look.lag}, and it goes on learning: "
        "where that lasts, the run is judged by progress as well as by step"
    )


def _beyond_the_baseline(
    state: WatchState, frame: SeriesFrame, effects: list[Effect]
) -> tuple[WatchState, list[Effect]]:
    baseline = state.baseline
    if baseline is None or frame.step <= baseline.last_step:
        return state, effects
    text = f"the baseline ends at step {baseline.last_step}: from here on only the rules apply that need none"
    return _say(state, effects, "baseline_shorter", text)


def _observed(state: WatchState, look: Look, settings: EngineSettings) -> tuple[WatchState, tuple[Finding, ...]]:
    memory: dict[str, Any] = dict(state.memory)
    findings: list[Finding] = []
    for name in settings.detectors:
        detector = DETECTORS[name]
        kept = memory[name] if name in memory else detector.initial()
        memory[name], found = detector.observe(kept, look)
        findings += found
    if _update_skipped(look) and "departure" in memory:
        memory["departure"] = parted(memory["departure"], look.frame.step)
    return replace(state, memory=memory), tuple(findings)


def _update_skipped(look: Look) -> bool:
    frame = look.frame
    bad = np.flatnonzero(frame.present & ~frame.finite)
    return any(frame.index.entries[row].group in UPDATES for row in bad)


def _file(state: WatchState, look: Look, findings: tuple[Finding, ...], settings: EngineSettings) -> Outcome:
    """Findings into incidents, and incidents into orders."""
    step = look.frame.step
    docket, changes = filed(
        state.docket, state.run, step, findings, lambda: _suspects(look, findings), settings=settings.incidents
    )
    docket, changes = explained(docket, changes, _checklist(state))
    state = replace(state, docket=docket)
    effects: tuple[Effect, ...] = tuple(IncidentChanged(change.incident, change.change) for change in changes)
    state, more = ask_for_captures(state, step, settings)
    return state, (*effects, *more)


def _checklist(state: WatchState) -> tuple[str, ...]:
    """What differs from the baseline by the alignment checklist, as the run and its workers said it."""
    return tuple(f"{code}: {text}" for code, text in state.warned if code.startswith("checklist."))


def _suspects(look: Look, findings: tuple[Finding, ...]) -> tuple[Suspect, ...]:
    broken = tuple(finding for finding in findings if finding.kind == "non_finite")
    if broken:
        groups = {key: entry.group for key, entry in zip(look.frame.index.keys, look.frame.index.entries, strict=True)}
        return localise_not_finite(broken, groups)
    if all(finding.detector == "silence" for finding in findings):
        # What is missing says nothing about what moved.
        return localise({}, findings)
    return localise(evidence_of(look, findings), findings, replayed=look.regime == "replayed")


def _timed(state: WatchState, event: StepReported, came: Arrival) -> WatchState:
    if came.how == "late":
        return state
    before, now = state.last_at_seconds, event.at_seconds
    smoothed = state.step_seconds
    if before is not None and now - before > 0:
        gap = now - before
        smoothed = gap if smoothed == 0 else smoothed + 0.2 * (gap - smoothed)
    return replace(
        state,
        last_step=event.step,
        last_at_seconds=now,
        step_seconds=smoothed,
        ended="",
        attempt=max(state.attempt, event.attempt),
    )
