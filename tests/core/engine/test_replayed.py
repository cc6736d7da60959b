# SPDX-License-Identifier: Apache-2.0
"""A replayed run beside the run that it replays: silent while healthy, one incident at the very step of a fault."""

import pytest

from tests.support.runs import (
    a_grpo_run,
    a_reference,
    an_engine,
    changed,
    incidents,
    repeated,
    scaled,
    shifted,
    watched,
)

RUN = a_grpo_run(steps=20)
REFERENCE = a_reference(RUN, twins=(repeated(RUN, seed=3),))
OLD_LOG_PROBS = scaled(
    "actor/entropy", 1.002, "training/rollout_probs_diff_mean", 1.2, "rollout_corr/training_log_ppl", 1.002
)
OLD_AND_NEW = shifted("actor/ppo_kl", 2e-3, "actor/pg_loss", 1e-3, "rollout_corr/kl", 1e-3)


def test_a_healthy_repeat_is_silent():
    state, effects = watched(an_engine(), repeated(RUN, seed=11), REFERENCE)

    assert effects == []
    assert state.regime == "replayed"


def test_a_bit_identical_repeat_is_silent():
    state, effects = watched(an_engine(), RUN, REFERENCE)

    assert effects == []
    assert state.regime == "replayed"


def test_the_regime_is_recognised_at_the_first_step():
    state, _ = watched(an_engine(), RUN[:1], REFERENCE)

    assert state.regime == "replayed"


@pytest.mark.parametrize("at", [1, 2, 9])
def test_a_fault_of_the_old_log_probs_is_found_at_its_step_in_its_stage(at):
    bad = changed(RUN, at=at, change=lambda metrics: OLD_AND_NEW(OLD_LOG_PROBS(metrics)))

    state, _ = watched(an_engine(), bad, REFERENCE)

    (incident,) = incidents(state)
    assert incident.opened_at_step == at
    assert incident.stage == "actor_compute_log_prob"
    assert incident.kind == "drift"


def test_a_fault_of_the_reference_moves_only_its_distance():
    bad = changed(RUN, at=6, change=scaled("actor/kl_loss", 1.01))

    state, _ = watched(an_engine(), bad, REFERENCE)

    (incident,) = incidents(state)
    assert (incident.opened_at_step, incident.stage) == (6, "ref_compute_log_prob")


def test_a_fault_of_the_update_leaves_the_old_log_probs_alone():
    bad = changed(
        RUN,
        at=6,
        change=shifted("actor/ppo_kl", 1e-3, "actor/pg_loss", 1e-3, "actor/kl_loss", 1e-4, "actor/grad_norm", 0.05),
    )

    state, _ = watched(an_engine(), bad, REFERENCE)

    (incident,) = incidents(state)
    assert (incident.opened_at_step, incident.stage) == (6, "actor_update")


def test_a_gradient_that_moves_alone_is_the_backward_pass():
    bad = changed(RUN, at=6, change=scaled("actor/grad_norm", 1.3))

    state, _ = watched(an_engine(), bad, REFERENCE)

    (incident,) = incidents(state)
    assert (incident.opened_at_step, incident.stage) == (6, "actor_update")


def test_the_gap_that_moves_with_the_engines_own_numbers_is_the_rollout_engine():
    moved = scaled("training/rollout_probs_diff_mean", 3, "rollout_corr/kl", 3, "rollout_corr/rollout_log_ppl", 1.01)
    bad = changed(RUN, at=6, change=moved)

    state, _ = watched(an_engine(), bad, REFERENCE)

    (incident,) = incidents(state)
    assert (incident.opened_at_step, incident.stage) == (6, "rollout")


def test_a_gap_to_recorded_log_probs_is_the_trainers_side():
    """The recorded rollout log-probs come from the baseline, so what moved against them is the actor."""
    bad = changed(RUN, at=6, change=scaled("training/rollout_probs_diff_mean", 3, "rollout_corr/kl", 3))

    state, _ = watched(an_engine(), bad, REFERENCE)

    assert incidents(state)[0].stage == "actor_compute_log_prob"


def test_other_prompts_are_data_and_no_matter_of_precision():
    bad = changed(RUN, at=6, change=lambda metrics: OLD_LOG_PROBS(shifted("prompt_length/mean", 1.0)(metrics)))

    state, _ = watched(an_engine(), bad, REFERENCE)

    (incident,) = incidents(state)
    assert (incident.kind, incident.stage, incident.opened_at_step) == ("mismatch", "data", 6)
    assert {finding.detector for finding in incident.findings if finding.step == 6} == {"mismatch"}


def test_another_score_for_the_same_text_is_the_reward():
    bad = changed(RUN, at=6, change=scaled("critic/score/mean", 1.1, "critic/rewards/mean", 1.1, "actor/pg_loss", 1.4))

    state, _ = watched(an_engine(), bad, REFERENCE)

    (incident,) = incidents(state)
    assert (incident.kind, incident.stage, incident.opened_at_step) == ("mismatch", "compute_rm_score", 6)
    assert {finding.detector for finding in incident.findings if finding.step == 6} == {"mismatch"}


def test_another_learning_rate_is_a_matter_of_configuration():
    state, _ = watched(an_engine(), changed(RUN, at=1, change=scaled("actor/lr", 2)), REFERENCE)

    (incident,) = incidents(state)
    assert (incident.kind, incident.stage, incident.opened_at_step) == ("mismatch", "config", 1)


def test_a_shift_that_stays_is_found_where_single_steps_are_noise():
    noisy = a_reference(RUN, twins=tuple(repeated(RUN, noise=1e-2, seed=seed) for seed in range(4)))
    calm, _ = watched(an_engine(), repeated(RUN, noise=1e-2, seed=33), noisy)
    bad = changed(repeated(RUN, noise=1e-2, seed=33), at=8, change=scaled("actor/entropy", 1.2))

    state, _ = watched(an_engine(), bad, noisy)

    assert incidents(calm) == []
    assert 8 <= incidents(state)[0].opened_at_step <= 12


def test_with_bit_identical_twins_a_small_documented_floor_holds():
    reference = a_reference(RUN, twins=(RUN,))
    silent, _ = watched(an_engine(), repeated(RUN, noise=3e-7, seed=5), reference)
    bad, _ = watched(an_engine(), changed(RUN, at=4, change=scaled("actor/entropy", 1.002)), reference)

    assert incidents(silent) == []
    assert incidents(bad)[0].opened_at_step == 4


def test_without_twins_the_catalogue_says_what_is_far():
    reference = a_reference(RUN)
    silent, _ = watched(an_engine(), repeated(RUN, noise=1e-4, seed=5), reference)
    bad, _ = watched(an_engine(), changed(RUN, at=4, change=scaled("actor/entropy", 1.05)), reference)

    assert incidents(silent) == []
    assert incidents(bad)[0].opened_at_step == 4


def test_without_twins_a_run_that_was_bit_identical_is_held_to_rounding():
    bad = changed(RUN, at=6, change=scaled("actor/kl_loss", 1.002))
    parted = changed(RUN, at=1, change=scaled("actor/entropy", 1.0 + 1e-7))

    identical, _ = watched(an_engine(), bad, a_reference(RUN))
    never, _ = watched(an_engine(), changed(parted, at=6, change=scaled("actor/kl_loss", 1.002)), a_reference(RUN))

    assert [(incident.opened_at_step, incident.stage) for incident in incidents(identical)] == [
        (6, "ref_compute_log_prob")
    ]
    assert incidents(never) == []


def test_a_file_of_three_decimals_is_not_compared_to_the_ninth():
    rounded = changed(RUN, at=1, change=lambda metrics: {key: round(value, 3) for key, value in metrics.items()})
    bare = a_reference(RUN, twins=(repeated(RUN, seed=3),))
    coarse = type(bare)(name="b", runs=tuple(type(run)(**{**_fields(run), "resolution": 0.001}) for run in bare.runs))

    state, _ = watched(an_engine(), rounded, coarse, regime="replayed")

    assert incidents(state) == []


def _fields(run):
    return {"source": run.source, "readings": run.readings, "twin": run.twin}


def test_the_replayed_seed_is_found_among_several():
    other = a_grpo_run(steps=20, seed=2)
    reference = a_reference(other, RUN, twins=(repeated(RUN, seed=3),))

    state, effects = watched(an_engine(), repeated(RUN, seed=11), reference)

    assert effects == []
    assert (state.regime, state.recognition.seed) == ("replayed", 1)


def test_steps_that_were_not_recorded_are_judged_as_free():
    reference = a_reference(RUN, twins=(repeated(RUN, seed=3),), rollout_steps=tuple(range(1, 11)))
    half = (*RUN[:10], *a_grpo_run(steps=20, seed=5)[10:])

    state, _ = watched(an_engine(), half, reference)

    assert not [incident for incident in incidents(state) if incident.kind == "mismatch"]


def test_a_run_that_was_bit_identical_beside_coarse_twins_is_held_to_rounding():
    coarse = a_reference(RUN, twins=(repeated(RUN, noise=1e-3, seed=3),))
    slight = scaled("actor/kl_loss", 1.002)

    late, _ = watched(an_engine(), changed(RUN, at=6, change=slight), coarse)
    never, _ = watched(an_engine(), changed(repeated(RUN, noise=1e-4, seed=5), at=6, change=slight), coarse)

    assert [(found.opened_at_step, found.stage) for found in incidents(late)] == [(6, "ref_compute_log_prob")]
    assert incidents(never) == []


def test_other_prompts_from_the_first_step_on_are_a_fault_of_a_replay_and_no_free_run():
    change = shifted("prompt_length/mean", 1.0, "global_seqlen/mean", 1.0, "critic/score/mean", -0.05)

    state, _ = watched(an_engine(), changed(RUN, at=1, change=change), REFERENCE)

    assert state.regime == "replayed"
    assert [(found.kind, found.stage, found.opened_at_step) for found in incidents(state)] == [("mismatch", "data", 1)]


def test_one_step_of_few_tokens_is_no_alarm_and_many_are():
    once = changed(RUN, at=6, until=6, change=scaled("critic/advantages/max", 3.0))
    stays = changed(repeated(RUN, seed=5), at=6, change=scaled("critic/advantages/max", 3.0))
    noisy = a_reference(RUN, twins=tuple(repeated(RUN, noise=1e-2, seed=seed) for seed in range(4)))

    silent, _ = watched(an_engine(), repeated(once, seed=5), noisy)
    found, _ = watched(an_engine(), stays, noisy)

    assert incidents(silent) == []
    assert 7 <= incidents(found)[0].opened_at_step <= 12
