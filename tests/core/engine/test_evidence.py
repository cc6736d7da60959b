# SPDX-License-Identifier: Apache-2.0
"""What a part outside the engine found becomes an incident like any finding, with notes, and can be switched off."""

from sentinel.core.detect import DETECTORS
from sentinel.records import EvidenceFound, Finding, Suspect
from tests.support.runs import a_grpo_run, an_engine, changes, events, incidents


def evidence(step=3, kind="collapse"):
    finding = Finding(
        detector="rollout_text", metric="rollout/bad_text_share", step=step, value=0.9, expected=None,
        because=f"7 of 8 rollouts of step {step} are garbled.", stage="rollout", kind=kind,
    )  # fmt: skip
    return EvidenceFound(finding, (Suspect("rollout", 0.8, "weight sync"),), ("What to compare: the weights.",))


def watched(*more, **settings):
    engine = an_engine(**settings)
    state, effects = engine.initial("run", None), ()
    for event in (*events(a_grpo_run(steps=4)), *more):
        state, new = engine.advance(state, event)
        effects = (*effects, *new)
    return state, effects


def test_evidence_opens_an_incident_of_its_stage_with_its_notes():
    state, effects = watched(evidence())
    (incident,) = incidents(state)
    assert (incident.kind, incident.stage, incident.opened_at_step) == ("collapse", "rollout", 3)
    assert incident.severity == "critical"
    assert "What to compare: the weights." in incident.notes
    assert [change for change in changes(effects) if change[0] in {"opened", "grew"}] == [("opened", 3)]


def test_the_same_evidence_again_changes_nothing_but_keeps_the_incident_open():
    state, effects = watched(evidence(3), evidence(4))
    (incident,) = incidents(state)
    assert incident.last_seen_step == 4
    assert [change for change in changes(effects) if change[0] in {"opened", "grew"}] == [("opened", 3)]


def test_a_detector_that_is_switched_off_takes_its_kind_of_evidence_with_it():
    state, effects = watched(evidence(), detectors=tuple(name for name in DETECTORS if name != "collapse"))
    assert incidents(state) == []
    assert effects == ()
