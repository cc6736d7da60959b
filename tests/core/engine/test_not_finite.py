# SPDX-License-Identifier: Apache-2.0
"""NaN and Inf: found at once, staged, one incident, and said when they do not come back."""

import math

import pytest

from sentinel.records import OrderCapture, WorkerSaid
from tests.support.runs import (
    a_grpo_run,
    a_reference,
    an_engine,
    changed,
    changes,
    incidents,
    repeated,
    replaced,
    scaled,
    watched,
)

RUN = a_grpo_run(steps=16)
REFERENCE = a_reference(RUN, twins=(repeated(RUN, seed=3),))
NAN = math.nan


def one_nan(at, until=None, **values):
    return changed(RUN, at=at, until=until, change=replaced(**(values or {"actor__grad_norm": NAN})))


@pytest.mark.parametrize("reference", [None, REFERENCE], ids=["alone", "replayed"])
def test_a_nan_gradient_is_the_update_and_is_dumped_at_the_next_step(reference):
    state, effects = watched(an_engine(), one_nan(5), reference)

    (incident,) = incidents(state)
    assert (incident.kind, incident.stage, incident.opened_at_step, incident.severity) == (
        "non_finite",
        "actor_update",
        5,
        "critical",
    )
    (order,) = [effect.order for effect in effects if isinstance(effect, OrderCapture)]
    assert (order.first_step, order.stages) == (6, ("actor_update",))


def test_one_step_of_nan_is_said_not_to_have_come_back():
    state, effects = watched(an_engine(), one_nan(5, until=5), REFERENCE)

    (incident,) = incidents(state)
    assert (incident.state, incident.closed_at_step) == ("closed", 6)
    assert any("did not come back at step 6; verl skips a non-finite update" in note for note in incident.notes)
    assert changes(effects)[0] == ("opened", 5)
    assert ("closed", 5) in changes(effects)


def test_three_steps_of_nan_are_one_incident():
    state, _ = watched(an_engine(), one_nan(5, until=7), REFERENCE)

    (incident,) = incidents(state)
    assert (incident.opened_at_step, incident.last_seen_step, incident.closed_at_step) == (5, 7, 8)


def test_nan_that_comes_back_opens_the_same_incident_again():
    run = changed(one_nan(5, until=5), at=9, until=9, change=replaced(actor__grad_norm=NAN))

    state, _ = watched(an_engine(), run, REFERENCE)

    (incident,) = incidents(state)
    assert (incident.opened_at_step, incident.last_seen_step) == (5, 9)
    assert "Came back at step 9." in incident.notes


def test_after_a_skipped_update_the_parted_weights_are_no_trouble_of_their_own():
    skipped = repeated(one_nan(5, until=5), noise=2e-3, seed=8)
    run = (*one_nan(5, until=5)[:5], *skipped[5:])

    state, _ = watched(an_engine(), run, REFERENCE)

    (incident,) = incidents(state)
    assert (incident.closed_at_step, {finding.kind for finding in incident.findings}) == (6, {"non_finite"})


def test_nor_do_they_add_up_beside_twins():
    run = a_grpo_run(steps=40)
    reference = a_reference(run, twins=tuple(repeated(run, noise=1e-4, seed=seed) for seed in (1, 2, 3, 4)))
    nan = changed(run, at=5, until=5, change=replaced(actor__grad_norm=NAN))
    shifted = changed(nan, at=6, change=scaled("actor/entropy", 1.004, "rollout_corr/training_log_ppl", 1.004))

    (incident,) = incidents(watched(an_engine(), shifted, reference)[0])

    assert {finding.kind for finding in incident.findings} == {"non_finite"}


def test_a_jump_after_a_skipped_update_is_found_all_the_same():
    skipped = repeated(one_nan(5, until=5), noise=2e-3, seed=8)
    run = changed((*one_nan(5, until=5)[:5], *skipped[5:]), at=12, change=scaled("actor/kl_loss", 3.0))

    state, _ = watched(an_engine(), run, REFERENCE)

    assert [(incident.kind, incident.opened_at_step) for incident in incidents(state)] == [
        ("non_finite", 5),
        ("drift", 12),
    ]


def test_garbled_rollouts_after_a_nan_belong_to_it():
    run = changed(one_nan(5, until=6), at=6, change=replaced(response_length__mean=255.0, critic__score__mean=0.0))

    state, _ = watched(an_engine(), run, a_reference(*[a_grpo_run(steps=16, seed=seed) for seed in (2, 3, 4)]))

    assert [(incident.kind, incident.opened_at_step) for incident in incidents(state)] == [("non_finite", 5)]


@pytest.mark.parametrize(
    ("bad", "stage"),
    [
        (
            ("critic/score/mean", "critic/rewards/mean", "critic/advantages/mean", "actor/pg_loss", "actor/grad_norm"),
            "compute_rm_score",
        ),
        (
            ("rollout_corr/training_log_ppl", "actor/ppo_kl", "actor/pg_loss", "actor/grad_norm"),
            "actor_compute_log_prob",
        ),
        (("actor/kl_loss", "actor/loss", "actor/grad_norm"), "ref_compute_log_prob"),
        (("actor/kl_loss", "actor/pg_loss", "actor/ppo_kl", "actor/loss", "actor/grad_norm"), "actor_update"),
        (("critic/values/mean", "critic/vf_loss", "critic/advantages/mean", "actor/pg_loss"), "compute_values"),
        (("critic/vf_loss", "critic/vpred_mean", "critic/grad_norm"), "critic_update"),
        (("critic/advantages/mean", "critic/advantages/max", "actor/pg_loss", "actor/grad_norm"), "advantage"),
    ],
)
def test_the_first_stage_that_is_not_finite_is_named(bad, stage):
    run = changed(a_grpo_run(steps=6, critic=True), at=4, change=lambda metrics: metrics | dict.fromkeys(bad, NAN))

    state, _ = watched(an_engine(), run)

    assert incidents(state)[0].stage == stage


def test_infinities_count():
    state, _ = watched(an_engine(), one_nan(5, actor__grad_norm=math.inf))

    assert "actor/grad_norm is Inf at step 5" in incidents(state)[0].because


def test_nan_of_a_comparison_without_tokens_is_no_alarm():
    run = one_nan(5, training__rollout_probs_diff_mean=NAN, training__rollout_probs_diff_valid=0.0)

    state, _ = watched(an_engine(), run)

    assert incidents(state) == []


def test_nan_that_the_replayed_run_has_too_is_no_alarm():
    reference = a_reference(one_nan(5, until=5), twins=(repeated(one_nan(5, until=5), seed=3),))

    state, _ = watched(an_engine(), one_nan(5, until=5), reference)

    assert incidents(state) == []


def test_nan_in_a_timing_is_no_alarm():
    state, _ = watched(an_engine(), one_nan(5, timing_s__gen=NAN))

    assert incidents(state) == []


def test_a_workers_word_opens_an_incident_of_the_next_step():
    engine = an_engine()
    state, _ = watched(engine, RUN[:4], REFERENCE)

    state, _ = engine.advance(state, WorkerSaid(code="worker_non_finite", text="WARN: grad_norm is not finite"))

    (incident,) = incidents(state)
    assert (incident.stage, incident.opened_at_step) == ("actor_update", 5)
