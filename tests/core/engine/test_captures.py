# SPDX-License-Identifier: Apache-2.0
"""From an incident to an order, a receipt, a triage and its answer."""

from dataclasses import replace

import pytest

from sentinel.core.capture.policy import CaptureSettings
from sentinel.records import (
    AskTriage,
    CancelCapture,
    CaptureCancelled,
    CaptureOrder,
    CaptureReceipt,
    CaptureReported,
    CaptureRequested,
    Comparable,
    Divergence,
    OrderCapture,
    StepReported,
    Triage,
    TriageArrived,
)
from tests.support.runs import (
    a_grpo_run,
    a_reference,
    an_engine,
    changed,
    incidents,
    repeated,
    replaced,
    scaled,
    shifted,
    watched,
)

RUN = a_grpo_run(steps=30)
REFERENCE = a_reference(RUN, twins=(repeated(RUN, seed=3),))
BAD = changed(RUN, at=5, change=scaled("actor/kl_loss", 1.5))
RECEIPT = CaptureReceipt(
    first_step=6,
    last_step=7,
    stages=("ref_compute_log_prob",),
    ranks=(0,),
    paths=("/d/step_6/ref_compute_log_prob", "/d/step_7/ref_compute_log_prob"),
    bytes=1000,
    seconds=0.5,
    outcome="complete",
)
FIRST = Divergence(
    stage="ref_compute_log_prob",
    name="Module.model.layers.1.mlp.gate_proj.Linear.forward.0",
    module="model.layers.1.mlp.gate_proj",
    direction="forward",
    position="output.0",
    why="norm 2.4 where the golden has 2.0, its inputs equal",
    target={},
    golden={},
)
ANSWER = Triage(
    verdict="diverged", comparable=Comparable(step=True, rows=True, weights=True), first=FIRST, compared=40, step=6
)


def at_the_fault(steps=5, **capture):
    engine = an_engine(capture=CaptureSettings(**capture))
    state, effects = watched(engine, BAD[:steps], REFERENCE)
    return engine, state, effects


def orders(effects):
    return [effect.order for effect in effects if isinstance(effect, OrderCapture)]


def test_the_decision_on_a_step_orders_the_next_one():
    _, state, effects = at_the_fault()

    (order,) = orders(effects)
    assert (order.id, order.first_step, order.last_step, order.level, order.ranks) == ("run:1/c1", 6, 7, "L0", None)
    assert order.stages[0] == "ref_compute_log_prob"
    assert incidents(state)[0].capture == order


def test_a_receipt_asks_triage_of_the_dumped_stages():
    engine, state, _ = at_the_fault()

    state, effects = engine.advance(state, CaptureReported(capture="run:1/c1", receipt=RECEIPT))

    (ask,) = [effect for effect in effects if isinstance(effect, AskTriage)]
    assert (ask.incident, ask.capture, ask.stages, ask.non_finite) == (
        "run:1",
        "run:1/c1",
        ("ref_compute_log_prob",),
        False,
    )
    assert incidents(state)[0].receipt == RECEIPT
    assert engine.snapshot(state).captures[0].state == "done"


def test_the_dump_outweighs_the_metrics():
    engine, state, _ = at_the_fault()
    state, _ = engine.advance(state, CaptureReported(capture="run:1/c1", receipt=RECEIPT))
    elsewhere = replace(ANSWER, first=replace(FIRST, stage="actor_update"))

    state, _ = engine.advance(state, TriageArrived(incident="run:1", capture="run:1/c1", triage=elsewhere))

    (incident,) = incidents(state)
    assert incident.stage == "actor_update"
    assert incident.suspects[0].stage == "actor_update"
    assert "model.layers.1.mlp.gate_proj" in incident.because
    assert sum(suspect.confidence for suspect in incident.suspects) <= 1.0


def test_an_answer_cancels_what_is_still_to_be_dumped():
    engine, state, _ = at_the_fault()
    early = replace(RECEIPT, last_step=6, paths=RECEIPT.paths[:1], outcome="recording")
    state, _ = engine.advance(state, CaptureReported(capture="run:1/c1", receipt=early))

    state, effects = engine.advance(state, TriageArrived(incident="run:1", capture="run:1/c1", triage=ANSWER))

    assert CancelCapture("run:1/c1") in effects
    assert engine.snapshot(state).captures[0].state == "cancelled"


def test_a_later_nothing_does_not_take_an_answer_back():
    engine, state, _ = at_the_fault()
    state, _ = engine.advance(state, TriageArrived(incident="run:1", capture="run:1/c1", triage=ANSWER))

    state, _ = engine.advance(
        state, TriageArrived(incident="run:1", capture="run:1/c1", triage=replace(ANSWER, verdict="same", first=None))
    )

    assert incidents(state)[0].triage == ANSWER


def test_an_open_question_is_asked_once_more_and_no_further():
    engine, state, _ = at_the_fault(steps=7)
    nothing = replace(ANSWER, verdict="same", first=None)
    state, _ = engine.advance(state, CaptureReported(capture="run:1/c1", receipt=RECEIPT))

    state, effects = engine.advance(state, TriageArrived(incident="run:1", capture="run:1/c1", triage=nothing))
    again = orders(effects)
    state, _ = engine.advance(state, CaptureReported(capture="run:1/c2", receipt=RECEIPT))
    state, effects = engine.advance(state, TriageArrived(incident="run:1", capture="run:1/c2", triage=nothing))

    assert [(order.id, order.first_step, order.stages) for order in again] == [
        ("run:1/c2", 9, ("actor_compute_log_prob", "actor_update"))
    ]
    assert orders(effects) == []


def test_a_clean_dump_after_a_nan_is_noted():
    engine = an_engine()
    state, _ = watched(
        engine, changed(RUN, at=5, until=5, change=replaced(actor__grad_norm=float("nan")))[:6], REFERENCE
    )
    state, effects = engine.advance(
        state, CaptureReported(capture="run:1/c1", receipt=replace(RECEIPT, stages=("actor_update",)))
    )

    assert [effect.non_finite for effect in effects if isinstance(effect, AskTriage)] == [True]

    clean = Triage(verdict="clean", comparable=None, first=None, compared=40, step=6)
    state, effects = engine.advance(state, TriageArrived(incident="run:1", capture="run:1/c1", triage=clean))

    assert orders(effects) == []
    assert "The dump of step 6 holds no NaN or Inf: it did not come back there." in incidents(state)[0].notes


def test_a_dump_that_begins_late_is_accepted_and_said():
    engine, state, _ = at_the_fault()
    late = replace(RECEIPT, first_step=7, paths=RECEIPT.paths[1:], why="the order came after the boundary")

    state, _ = engine.advance(state, CaptureReported(capture="run:1/c1", receipt=late))

    assert any("begins at step 7, later than the step 6" in note for note in incidents(state)[0].notes)


@pytest.mark.parametrize("outcome", ["failed", "skipped", "refused"])
def test_a_capture_that_failed_is_said_with_its_reason(outcome):
    engine, state, _ = at_the_fault()
    none = replace(RECEIPT, paths=(), bytes=0, outcome=outcome, why="no space left on the device")

    state, effects = engine.advance(state, CaptureReported(capture="run:1/c1", receipt=none))

    assert not [effect for effect in effects if isinstance(effect, AskTriage)]
    assert f"Capture run:1/c1 {outcome}: no space left on the device." in incidents(state)[0].notes
    assert engine.snapshot(state).captures[0].state == "failed"


def test_a_trainer_that_never_answers_is_given_up():
    _, state, effects = at_the_fault(steps=12)

    assert CancelCapture("run:1/c1") in effects
    assert incidents(state)[0].receipt.outcome == "expired"


def test_without_a_trainer_the_receipt_says_refused():
    _, state, effects = at_the_fault(enabled=False, why_not="no trainer is attached")

    (incident,) = incidents(state)
    assert orders(effects) == []
    assert incident.capture is None
    assert (incident.receipt.outcome, incident.receipt.why) == ("refused", "no trainer is attached")


def test_a_mismatch_is_no_matter_for_a_dump():
    engine = an_engine()
    state, effects = watched(engine, changed(RUN, at=5, change=shifted("prompt_length/mean", 1.0))[:6], REFERENCE)

    assert orders(effects) == []
    assert incidents(state)[0].receipt.outcome == "refused"


def test_what_cannot_be_dumped_is_said():
    engine = an_engine()
    moved = scaled("training/rollout_probs_diff_mean", 3, "rollout_corr/kl", 3, "rollout_corr/rollout_log_ppl", 1.01)
    gap = changed(RUN, at=5, change=moved)
    state, effects = watched(engine, gap[:6], REFERENCE)

    assert orders(effects) == []
    assert "no dump is possible of rollout" in incidents(state)[0].receipt.why


def test_a_second_incident_waits_for_the_cool_down():
    engine = an_engine(capture=CaptureSettings(cool_down_steps=4))
    nan = replaced(actor__grad_norm=float("nan"))
    run = changed(changed(RUN, at=5, change=scaled("actor/kl_loss", 1.5)), at=8, until=14, change=nan)

    state, effects = watched(engine, run[:14], REFERENCE)

    assert [(order.id, order.first_step) for order in orders(effects)] == [("run:1/c1", 6), ("run:2/c1", 12)]
    assert "No capture before step 12: cool-down after the last one." in incidents(state)[1].notes


def test_the_budget_of_a_run_is_kept():
    engine, state, _ = at_the_fault(most_bytes=500, cool_down_steps=0)
    state, _ = engine.advance(state, CaptureReported(capture="run:1/c1", receipt=RECEIPT))

    for step in (6, 7):
        values = {**RUN[step - 1].metrics, "actor/grad_norm": float("nan")}
        state, effects = engine.advance(state, StepReported(step=step, values=values))

    assert orders(effects) == []
    assert incidents(state)[1].receipt.why == "the run's budget of 500 dumped bytes is used up"


def test_a_capture_by_hand_is_numbered_passed_on_and_can_be_ended():
    engine, state, _ = at_the_fault(steps=3)
    order = CaptureOrder(
        id="",
        run="",
        incident=None,
        first_step=5,
        last_step=6,
        stages=("actor_update",),
        level="mix",
        ranks=(0,),
        why="by hand",
    )

    state, effects = engine.advance(state, CaptureRequested(order=order))
    state, same = engine.advance(state, CaptureRequested(order=replace(order, id="run:m1")))
    state, ended = engine.advance(state, CaptureCancelled(capture="run:m1"))

    assert [(given.id, given.run) for given in orders(effects)] == [("run:m1", "run")]
    assert same == ()
    assert ended == (CancelCapture("run:m1"),)


def test_a_receipt_for_a_cancelled_capture_is_kept_and_looked_at():
    engine, state, _ = at_the_fault()
    state, _ = engine.advance(state, CaptureCancelled(capture="run:1/c1"))

    state, effects = engine.advance(state, CaptureReported(capture="run:1/c1", receipt=RECEIPT))

    assert engine.snapshot(state).captures[0].state == "done"
    assert engine.snapshot(state).captures[0].receipt == RECEIPT
    assert [effect for effect in effects if isinstance(effect, AskTriage)]
