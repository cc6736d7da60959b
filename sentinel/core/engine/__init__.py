# SPDX-License-Identifier: Apache-2.0
"""The engine: what happened goes in, what to do comes out; one engine for live runs, replays, evaluation and tests.

    state = engine.initial("my-run", reference)
    state, effects = engine.advance(state, StepReported(step=1, values={...}))

`advance` never raises on bad data, reads no clock and changes nothing: the state is a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sentinel.core.catalogue import Catalogue
from sentinel.core.compare import Recognition
from sentinel.core.engine.captures import Outcome, on_cancel, on_described, on_receipt, on_request, on_triage
from sentinel.core.engine.evidence import on_evidence
from sentinel.core.engine.judge import on_step
from sentinel.core.engine.persist import from_plain, to_plain
from sentinel.core.engine.show import charts_of, snapshot_of
from sentinel.core.engine.signs import on_leave, on_said, on_tick
from sentinel.core.engine.state import REGIMES, EngineSettings, WatchState, prepared
from sentinel.errors import SettingsError
from sentinel.records import (
    CaptureCancelled,
    CaptureReported,
    CaptureRequested,
    Chart,
    Event,
    EvidenceFound,
    Reference,
    RunSnapshot,
    StepReported,
    Tick,
    TrainerDescribed,
    TrainerLeft,
    TriageArrived,
    WorkerSaid,
)

__all__ = ["Engine", "EngineSettings", "WatchState", "from_plain", "to_plain"]


class Engine:
    """Settings and catalogue in force; holds no run."""

    def __init__(self, settings: EngineSettings, catalogue: Catalogue) -> None:
        self.settings = settings
        self.catalogue = catalogue.with_overrides(settings.metrics, settings.presets)

    def initial(self, run: str, reference: Reference | None, regime: str = "auto") -> WatchState:
        """A watch that has seen nothing. `regime` is auto (recognised), replayed or free.

        Raises:
            SettingsError: `regime` is none of the three.
        """
        if regime not in REGIMES:
            raise SettingsError(f"regime {regime!r} is none of {', '.join(REGIMES)}")
        recognition = Recognition(wanted=regime, regime="unknown" if regime == "auto" else regime)
        with np.errstate(all="ignore"):
            return prepared(WatchState(run=run, reference=reference, recognition=recognition), self.catalogue)

    def revived(self, plain: Mapping[str, Any], blank: WatchState) -> WatchState:
        """The watch that `to_plain` wrote, with what `blank` has learned of the same baseline: many runs learn it once.

        Raises:
            ValueError: another version of the format.
            KeyError: a field is missing.
        """
        stored = from_plain(plain, blank.reference)
        stored = replace(stored, baseline=blank.baseline, pairing=blank.pairing, bands=blank.bands)
        with np.errstate(all="ignore"):
            return prepared(stored, self.catalogue)

    def advance(self, state: WatchState, event: Event) -> Outcome:
        """The state after the event, and what shells shall do about it."""
        with np.errstate(all="ignore"):
            return self._advanced(prepared(state, self.catalogue), event)

    def _advanced(self, state: WatchState, event: Event) -> Outcome:
        match event:
            case StepReported():
                outcome = on_step(state, event, self.catalogue, self.settings)
            case CaptureReported():
                outcome = on_receipt(state, event.capture, event.receipt, event.at_seconds)
            case CaptureRequested():
                outcome = on_request(state, event.order)
            case CaptureCancelled():
                outcome = on_cancel(state, event.capture)
            case TriageArrived():
                outcome = on_triage(state, event.incident, event.capture, event.triage, self.settings)
            case Tick():
                outcome = on_tick(state, event, self.settings)
            case TrainerDescribed():
                outcome = on_described(state, event)
            case TrainerLeft():
                outcome = on_leave(state, event)
            case WorkerSaid():
                outcome = on_said(state, event, self.settings)
            case EvidenceFound():
                outcome = on_evidence(state, event, self.settings)
        return outcome

    def snapshot(self, state: WatchState) -> RunSnapshot:
        """The run as shells show it."""
        with np.errstate(all="ignore"):
            return snapshot_of(prepared(state, self.catalogue))

    def charts(self, state: WatchState, metrics: Iterable[str]) -> tuple[Chart, ...]:
        """The recent past of some metrics beside the baseline."""
        with np.errstate(all="ignore"):
            return charts_of(prepared(state, self.catalogue), metrics)

    def carried_over(self, state: WatchState, fresh: WatchState) -> WatchState:
        """The watch as `fresh` begins it, with the incidents, captures and counts of `state`; what it had learned goes.

        Numbers of incidents and captures go on, so that no id is given twice. Rows belong to keys, and a baseline's keys
        come first: detectors begin anew.
        """
        return replace(
            fresh,
            run=state.run,
            docket=state.docket,
            book=state.book,
            warned=state.warned,
            steps_seen=state.steps_seen,
            attempt=state.attempt,
            last_step=state.last_step,
            last_at_seconds=state.last_at_seconds,
            step_seconds=state.step_seconds,
        )
