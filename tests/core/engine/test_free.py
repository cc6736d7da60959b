# SPDX-License-Identifier: Apache-2.0
"""A free run beside the seeds of its recipe."""

import pytest

from tests.support.runs import a_grpo_run, a_reference, an_engine, changed, incidents, scaled, shifted, watched

SEEDS = [a_grpo_run(steps=40, seed=seed) for seed in range(1, 6)]
REFERENCE = a_reference(*SEEDS)


@pytest.mark.parametrize("seed", range(11, 19))
def test_another_seed_is_silent(seed):
    state, effects = watched(an_engine(), a_grpo_run(steps=40, seed=seed), REFERENCE)

    assert effects == []
    assert state.regime == "free"


def test_a_jump_is_found_at_its_step():
    bad = changed(a_grpo_run(steps=40, seed=11), at=17, change=scaled("actor/entropy", 1.5))

    state, _ = watched(an_engine(), bad, REFERENCE)

    assert incidents(state)[0].opened_at_step == 17
    assert "5 seeds" in incidents(state)[0].because


def test_a_fall_is_found_as_well_as_a_rise():
    bad = changed(
        a_grpo_run(steps=40, seed=11), at=17, change=scaled("critic/score/mean", 0.5, "critic/rewards/mean", 0.5)
    )

    state, _ = watched(an_engine(), bad, REFERENCE)

    assert (incidents(state)[0].opened_at_step, incidents(state)[0].stage) == (17, "compute_rm_score")


def test_a_small_shift_that_stays_is_a_drift():
    bad = changed(a_grpo_run(steps=40, seed=11), at=10, change=shifted("actor/entropy", 0.03))

    state, _ = watched(an_engine(), bad, REFERENCE)

    (incident,) = incidents(state)
    assert (incident.kind, incident.findings[0].metric) == ("drift", "actor/entropy")
    assert 12 <= incident.opened_at_step <= 24


def test_one_seed_works_with_a_wider_band_and_says_so():
    lone = a_reference(SEEDS[0])
    calm = [watched(an_engine(), a_grpo_run(steps=40, seed=seed), lone)[0] for seed in range(11, 17)]
    bad = changed(a_grpo_run(steps=40, seed=11), at=17, change=scaled("actor/entropy", 2.0))

    state, _ = watched(an_engine(), bad, lone)

    assert [incidents(quiet) for quiet in calm] == [[]] * 6
    assert incidents(state)[0].opened_at_step == 17
    assert "one seed, with a widened band" in incidents(state)[0].because


def test_beyond_the_baselines_end_only_the_rules_without_one_go_on():
    long = a_grpo_run(steps=60, seed=11)

    state, _ = watched(an_engine(), long, REFERENCE)

    assert incidents(state) == []
    assert "baseline_shorter" in dict(state.warned)


def test_a_metric_that_single_tokens_decide_needs_two_steps():
    once = changed(
        a_grpo_run(steps=40, seed=11),
        at=17,
        until=17,
        change=shifted("training/rollout_actor_probs_pearson_corr", -0.1),
    )
    twice = changed(
        a_grpo_run(steps=40, seed=11),
        at=17,
        until=18,
        change=shifted("training/rollout_actor_probs_pearson_corr", -0.1),
    )

    silent, _ = watched(an_engine(), once, REFERENCE)
    found, _ = watched(an_engine(), twice, REFERENCE)

    assert incidents(silent) == []
    assert incidents(found)[0].opened_at_step == 18


def test_one_seed_has_a_band_that_is_wider_than_its_own_scatter():
    close = changed(a_grpo_run(steps=40, seed=11), at=17, change=scaled("actor/entropy", 1.25))

    five, _ = watched(an_engine(), close, REFERENCE)
    one, _ = watched(an_engine(), close, a_reference(SEEDS[0]))

    assert incidents(five)[0].opened_at_step == 17
    assert not incidents(one) or incidents(one)[0].opened_at_step > 17


def test_a_setting_that_no_seed_has_is_a_mismatch():
    bad = changed(a_grpo_run(steps=40, seed=11), at=1, change=scaled("actor/lr", 3.0))

    state, _ = watched(an_engine(), bad, REFERENCE)

    (incident,) = incidents(state)
    assert (incident.kind, incident.stage, incident.opened_at_step) == ("mismatch", "config", 1)
    assert "3e-06 at step 1 where the baseline has 1e-06" in incident.because


def test_a_score_above_the_rules_bound_is_found_at_once():
    bad = changed(a_grpo_run(steps=40, seed=11), at=9, change=scaled("critic/score/max", 1.03))

    state, _ = watched(an_engine(), bad, REFERENCE)

    assert (incidents(state)[0].opened_at_step, incidents(state)[0].stage) == (9, "compute_rm_score")


def test_prompts_that_no_seed_has_are_another_data_order():
    bad = changed(a_grpo_run(steps=40, seed=11), at=9, change=shifted("prompt_length/mean", 0.5))

    state, _ = watched(an_engine(), bad, REFERENCE)
    lone, _ = watched(an_engine(), bad, a_reference(SEEDS[0]))

    assert [(found.kind, found.stage, found.opened_at_step) for found in incidents(state)] == [("mismatch", "data", 9)]
    assert not [found for found in incidents(lone) if found.kind == "mismatch"]
