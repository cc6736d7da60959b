# SPDX-License-Identifier: Apache-2.0
"""Findings gathered into incidents."""

from sentinel.core.report.incidents import MOST_FINDINGS, IncidentSettings, filed
from sentinel.records import Finding, Suspect

SETTINGS = IncidentSettings(close_after_steps=3, reopen_within_steps=4)


def a_finding(step, metric="actor/entropy", kind="spike", *, score=2.0, detector="spike", stage="actor_update"):
    return Finding(
        detector=detector,
        metric=metric,
        step=step,
        value=1.0,
        expected=None,
        because=f"{metric} at step {step}.",
        stage=stage,
        kind=kind,
        score=score,
    )


SUSPECTS = (Suspect(stage="actor_update", confidence=0.9),)


def after(*steps, suspects=SUSPECTS):
    """The docket and the changes after steps with these findings each."""
    docket, said = (), []
    for step, findings in enumerate(steps, 1):
        docket, changes = filed(docket, "run", step, findings, lambda: suspects, settings=SETTINGS)
        said += [(step, change.change, change.incident.id) for change in changes]
    return [tracked.incident for tracked in docket], said


def test_an_incident_opens_grows_and_closes():
    incidents, said = after([a_finding(1)], [a_finding(2, "actor/pg_loss")], [], [], [])

    assert said == [(1, "opened", "run:1"), (2, "grew", "run:1"), (5, "closed", "run:1")]
    assert (incidents[0].opened_at_step, incidents[0].last_seen_step, incidents[0].closed_at_step) == (1, 2, 5)


def test_the_same_finding_again_is_no_news():
    incidents, said = after([a_finding(1)], [a_finding(2)], [a_finding(3)])

    assert said == [(1, "opened", "run:1")]
    assert incidents[0].last_seen_step == 3


def test_the_same_metric_soon_after_closing_opens_it_again():
    incidents, said = after([a_finding(1)], [], [], [], [a_finding(5)])

    assert said[-1] == (5, "opened", "run:1")
    assert (incidents[0].state, incidents[0].closed_at_step) == ("open", None)


def test_another_metric_after_closing_is_another_incident():
    incidents, _ = after([a_finding(1)], [], [], [], [a_finding(5, "critic/vf_loss")])

    assert [incident.id for incident in incidents] == ["run:1", "run:2"]


def test_the_same_metric_long_after_closing_is_another_incident():
    incidents, _ = after([a_finding(1)], [], [], [], [], [], [], [], [], [a_finding(10)])

    assert [incident.opened_at_step for incident in incidents] == [1, 10]


def test_a_nan_beside_an_open_drift_has_an_incident_of_its_own():
    incidents, _ = after([a_finding(1, kind="drift")], [a_finding(2, "actor/grad_norm", "non_finite")], [a_finding(3)])

    assert [(incident.kind, incident.last_seen_step) for incident in incidents] == [("drift", 1), ("non_finite", 3)]


def test_a_spike_that_stays_becomes_a_drift():
    incidents, said = after([a_finding(1)], [a_finding(2, kind="drift", detector="drift")])

    assert incidents[0].kind == "drift"
    assert said[-1] == (2, "grew", "run:1")


def test_far_findings_and_grave_kinds_are_critical():
    mild, _ = after([a_finding(1)])
    far, _ = after([a_finding(1, score=50.0)])
    grave, _ = after([a_finding(1, kind="mismatch")])
    grown, _ = after([a_finding(1)], [a_finding(2, "actor/pg_loss", score=50.0)])

    assert [incidents[0].severity for incidents in (mild, far, grave, grown)] == [
        "warning",
        "critical",
        "critical",
        "critical",
    ]


def test_the_sentence_is_the_strongest_finding_of_the_suspected_stage():
    incidents, _ = after(
        [a_finding(1, "x", score=9.0, stage="rollout"), a_finding(1, "y", score=3.0), a_finding(1, "z", score=5.0)]
    )

    assert incidents[0].because == "z at step 1."


def test_findings_are_kept_up_to_a_number():
    incidents, _ = after([a_finding(1, f"m{number}") for number in range(MOST_FINDINGS + 9)])

    assert len(incidents[0].findings) == MOST_FINDINGS


def test_suspects_are_asked_for_only_when_an_incident_opens():
    def never():
        """Fail when asked."""
        raise AssertionError("asked")

    docket, _ = filed((), "run", 1, [a_finding(1)], lambda: (), settings=SETTINGS)

    docket, _ = filed(docket, "run", 2, [a_finding(2)], never, settings=SETTINGS)

    assert docket[0].incident.stage == "unknown"


def test_a_weak_alarm_does_not_swallow_a_mismatch_that_begins_later():
    weak = [[a_finding(step, kind="drift", score=1.2)] for step in (1, 2, 3, 4)]

    incidents, said = after(*weak, [a_finding(5, kind="drift"), a_finding(5, "actor/lr", "mismatch")])

    assert [(incident.kind, incident.opened_at_step) for incident in incidents] == [("drift", 1), ("mismatch", 5)]
    assert said[-1] == (5, "opened", "run:2")


def test_evidence_far_beyond_all_that_an_open_incident_showed_is_of_something_else():
    weak = [[a_finding(step, kind="drift", score=1.2)] for step in (1, 2, 3, 4)]

    jumped, _ = after(*weak, [a_finding(5, kind="drift", score=20.0)])
    grown, _ = after(*weak, [a_finding(5, kind="drift", score=8.0)], [a_finding(6, kind="drift", score=50.0)])

    assert [incident.opened_at_step for incident in jumped] == [1, 5]
    assert [incident.opened_at_step for incident in grown] == [1]


def test_what_follows_within_two_steps_is_a_consequence():
    incidents, _ = after([a_finding(1, kind="drift", score=1.2)], [], [a_finding(3, kind="drift", score=1e6)])

    assert [incident.opened_at_step for incident in incidents] == [1]


def test_an_incident_that_is_back_speaks_of_the_step_at_which_it_is():
    incidents, said = after([a_finding(1)], [], [], [], [a_finding(5)])

    assert said[-1] == (5, "opened", "run:1")
    assert incidents[0].because.startswith("actor/entropy at step 5.")
    assert "first seen at step 1" in incidents[0].because
