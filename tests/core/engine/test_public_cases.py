# SPDX-License-Identifier: Apache-2.0
"""Faults from public reports, with the numbers that were printed there."""

import math

from sentinel.records import Reading
from tests.support.runs import a_reference, an_engine, incidents, watched


def readings(**columns):
    names = [name.replace("__", "/") for name in columns]
    return tuple(
        Reading(step=step, metrics=dict(zip(names, values, strict=True)))
        for step, values in enumerate(zip(*columns.values(), strict=True), 1)
    )


def test_trl_5312_stale_sampler_weights_alarm_at_step_3():
    """trl#5312: sampling_logp_difference/mean 0.010, 0.018, then 0.201 where the good run has 0.015."""
    good = readings(
        sampling__sampling_logp_difference__mean=[0.010, 0.018, 0.015, 0.014, 0.016, 0.015],
        loss=[0.01, 0.02, 0.01, 0.0, 0.01, 0.02],
    )
    bad = readings(
        sampling__sampling_logp_difference__mean=[0.010, 0.018, 0.201, 0.22, 0.25, 0.3],
        loss=[0.01, 0.02, 0.01, 0.0, 0.01, 0.02],
    )

    state, _ = watched(an_engine(), bad, a_reference(good))

    (incident,) = incidents(state)
    assert incident.opened_at_step == 3
    assert incident.findings[0].metric == "sampling/sampling_logp_difference/mean"
    assert incident.stage == "rollout"


def test_nemo_rl_3412_is_the_critic_alone():
    """NeMo-RL#3412: critic/grad_norm up to 700 against 110, explained_var -5.28 against -0.72, policy metrics identical."""
    policy = {
        "actor__entropy": [0.5, 0.49, 0.48, 0.47],
        "actor__grad_norm": [0.4, 0.41, 0.39, 0.4],
        "actor__pg_loss": [0.01, -0.01, 0.02, 0.0],
    }
    good = readings(
        **policy, critic__grad_norm=[104.0, 108.0, 110.54, 109.0], critic__explained_var=[-0.70, -0.72, -0.71, -0.72]
    )
    bad = readings(
        **policy, critic__grad_norm=[104.0, 108.0, 700.22, 690.0], critic__explained_var=[-0.70, -0.72, -5.28, -5.1]
    )

    state, _ = watched(an_engine(), bad, a_reference(good))

    (incident,) = incidents(state)
    assert (incident.opened_at_step, incident.stage) == (3, "critic_update")
    assert not [finding for finding in incident.findings if finding.metric.startswith("actor/")]


def test_prorl_40_a_gradient_norm_of_3e9_beside_a_healthy_loss():
    """ProRL-Agent#40: train/grad_norm 2955012562.8 with loss 0.102 at step 1."""
    bad = readings(
        train__loss=[0.102, 0.1],
        train__grad_norm=[2955012562.8, 2.9e9],
        train__train_rollout_logprob_abs_diff=[0.030, 0.031],
    )

    state, _ = watched(an_engine(), bad)

    (incident,) = incidents(state)
    assert (incident.opened_at_step, incident.stage) == (1, "actor_update")


def test_verl_2708_only_grad_norm_is_nan():
    """verl#2708: the loss stays normal, grad_norm is NaN for ever."""
    bad = readings(
        actor__pg_loss=[0.01] * 6,
        actor__entropy=[0.5, 0.49, 0.48, 0.47, 0.46, 0.45],
        actor__grad_norm=[0.4, 0.4, math.nan, math.nan, math.nan, math.nan],
    )

    state, _ = watched(an_engine(), bad)

    (incident,) = incidents(state)
    assert (incident.opened_at_step, incident.stage, incident.state) == (3, "actor_update", "open")


def test_verl_498_a_critic_of_nan_beside_finite_values():
    """verl#498: vf_loss, vpred_mean and critic/grad_norm NaN; values and the actor finite."""
    bad = readings(
        critic__vf_loss=[0.3, math.nan],
        critic__vpred_mean=[-2.0, math.nan],
        critic__grad_norm=[1.0, math.nan],
        critic__values__mean=[-2.0, -2.047],
        actor__grad_norm=[9.0, 9.819],
    )

    state, _ = watched(an_engine(), bad)

    assert incidents(state)[0].stage == "critic_update"


def test_exp_17_a_destroyed_actor_side_behind_a_healthy_reward():
    """EXP-17: entropy 5.67, rollout_probs_diff_mean 0.81, Pearson 0.047 while the score looks healthy."""
    bad = readings(
        actor__entropy=[0.3, 5.67, 5.7, 5.6],
        training__rollout_probs_diff_mean=[0.0034, 0.81, 0.83, 0.82],
        training__rollout_actor_probs_pearson_corr=[0.9996, 0.047, 0.05, 0.04],
        rollout_corr__training_log_ppl=[0.31, 17.4, 17.2, 17.3],
        rollout_corr__rollout_log_ppl=[0.25, 0.39, 0.38, 0.4],
        critic__score__mean=[0.5, 0.53, 0.55, 0.56],
    )

    state, _ = watched(an_engine(), bad)

    assert incidents(state)[0].opened_at_step == 2
    assert incidents(state)[0].stage in {"actor_compute_log_prob", "rollout"}
