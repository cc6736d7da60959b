# SPDX-License-Identifier: Apache-2.0
"""What a part outside the engine found about a run (its rollout text, a replay that did not happen), filed like any finding."""

from __future__ import annotations

from dataclasses import replace

from sentinel.core.detect import DETECTORS
from sentinel.core.engine.captures import Outcome, ask_for_captures
from sentinel.core.engine.state import EngineSettings, WatchState
from sentinel.core.report.incidents import filed, find, noted, put
from sentinel.records import Effect, EvidenceFound, IncidentChanged


def on_evidence(state: WatchState, event: EvidenceFound, settings: EngineSettings) -> Outcome:
    """File the finding; its notes go to the incident when it opens or learns of it.

    Nothing is filed where the detector of the same kind is switched off (`engine.detectors`).
    """
    finding = event.finding
    if finding.kind in DETECTORS and finding.kind not in settings.detectors:
        return state, ()
    docket, changes = filed(
        state.docket, state.run, finding.step, (finding,), lambda: event.suspects, settings=settings.incidents
    )
    effects: list[Effect] = []
    for change in changes:
        incident = change.incident
        if change.change in {"opened", "grew"}:
            for note in event.notes:
                incident = noted(incident, note)
            place = find(docket, incident.id)
            assert place is not None, "a change is of an incident of the docket"
            docket = put(docket, place, incident)
        effects.append(IncidentChanged(incident, change.change))
    state, more = ask_for_captures(replace(state, docket=docket), finding.step, settings)
    return state, (*effects, *more)
