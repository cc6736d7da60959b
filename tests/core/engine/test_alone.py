# SPDX-License-Identifier: Apache-2.0
"""A run without a baseline: the rules that need none."""

import math

from tests.support.runs import a_grpo_run, an_engine, changed, incidents, replaced, scaled, watched, without

RUN = a_grpo_run(steps=40, seed=4, critic=True)


def test_a_healthy_run_is_silent():
    for seed in range(6):
        state, effects = watched(an_engine(), a_grpo_run(steps=60, seed=seed, critic=True))

        assert effects == []
        assert state.regime == "alone"


def test_a_gradient_norm_that_no_healthy_run_has_alarms_from_step_one():
    state, _ = watched(an_engine(), changed(RUN, at=1, change=replaced(actor__grad_norm=2955012562.8)))

    (incident,) = incidents(state)
    assert (incident.opened_at_step, incident.stage, incident.severity) == (1, "actor_update", "critical")


def test_a_far_step_from_the_own_past_is_a_spike():
    state, _ = watched(an_engine(), changed(RUN, at=30, until=30, change=scaled("actor/grad_norm", 40)))

    (incident,) = incidents(state)
    assert (incident.kind, incident.opened_at_step, incident.stage) == ("spike", 30, "actor_update")


def test_rollout_against_trainer_has_limits_of_its_own():
    state, _ = watched(an_engine(), changed(RUN, at=1, change=replaced(training__rollout_probs_diff_mean=0.02)))

    (incident,) = incidents(state)
    assert (incident.kind, incident.opened_at_step) == ("self_inconsistent", 2)


def test_a_single_step_over_such_a_limit_is_no_alarm():
    twice = changed(RUN, at=5, until=5, change=replaced(training__rollout_probs_diff_mean=0.02))
    apart = changed(twice, at=15, until=15, change=replaced(training__rollout_probs_diff_mean=0.02))

    assert incidents(watched(an_engine(detectors=("limit",)), apart)[0]) == []


def test_far_beyond_such_a_limit_one_step_is_enough():
    state, _ = watched(an_engine(), changed(RUN, at=1, change=replaced(training__rollout_probs_diff_mean=0.8)))

    assert incidents(state)[0].opened_at_step == 1


def test_a_reference_of_other_weights_shows_at_step_one():
    state, _ = watched(an_engine(), changed(RUN, at=1, until=1, change=replaced(actor__kl_loss=0.4)))

    (incident,) = incidents(state)
    assert (incident.opened_at_step, incident.stage, incident.kind) == (1, "ref_compute_log_prob", "self_inconsistent")


def test_a_metric_that_vanishes_is_missed():
    state, _ = watched(an_engine(), changed(RUN, at=9, change=without("actor/kl_loss")))

    (incident,) = incidents(state)
    assert (incident.kind, incident.opened_at_step, incident.stage) == ("vanished", 9, "ref_compute_log_prob")
    assert math.isnan(incident.findings[0].value)


def test_a_fragment_of_a_step_lacks_nothing():
    few = changed(RUN, at=9, until=9, change=lambda metrics: {"actor/entropy": metrics["actor/entropy"]})

    state, _ = watched(an_engine(), few)

    assert incidents(state) == []


def test_a_number_that_stands_still_is_no_measurement():
    state, _ = watched(an_engine(), changed(RUN, at=9, change=replaced(actor__entropy=0.31)))

    (incident,) = incidents(state)
    assert (incident.kind, incident.opened_at_step) == ("vanished", 14)


def test_text_that_no_longer_ends_is_a_collapse():
    state, _ = watched(an_engine(), changed(RUN, at=20, change=replaced(response_length__clip_ratio=1.0)))

    (incident,) = incidents(state)
    assert (incident.kind, incident.stage, incident.opened_at_step) == ("collapse", "rollout", 20)


def test_a_gradient_of_zero_that_advantages_do_not_explain_is_a_collapse():
    dead = changed(RUN, at=20, until=20, change=replaced(actor__grad_norm=0.0))
    explained = changed(
        RUN,
        at=20,
        until=20,
        change=replaced(actor__grad_norm=0.0, critic__advantages__max=0.0, critic__advantages__mean=0.0),
    )

    found, _ = watched(an_engine(), dead)
    silent, _ = watched(an_engine(), explained)

    assert incidents(found)[0].stage == "actor_update"
    assert incidents(silent) == []


def test_a_share_that_was_zero_so_far_may_become_a_small_one():
    """Seen on a real verl run: response_length/clip_ratio 0 for nine steps, then 1 of 16 responses."""
    run = changed(RUN, at=1, change=replaced(response_length__clip_ratio=0.0))

    state, _ = watched(an_engine(), changed(run, at=15, change=replaced(response_length__clip_ratio=0.0625)))

    assert incidents(state) == []
