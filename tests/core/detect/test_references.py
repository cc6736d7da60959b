# SPDX-License-Identifier: Apache-2.0
"""The reference detectors obey their published constants, on series where the answer can be worked out by hand."""

import numpy as np
import pytest

from sentinel.core.detect.references import RULES, Series, episodes

BY_NAME = {rule.name: rule for rule in RULES}
RNG = np.random.default_rng(7)


def series(**columns):
    """Columns by metric, `/` written as `__`."""
    names = tuple(name.replace("__", "/") for name in columns)
    return Series(metrics=names, values=np.array(list(columns.values()), dtype=float).T)


def alarms(name, run, baseline=None):
    rule = BY_NAME[name]
    return [alarm.step for alarm in episodes(rule.scores(run, baseline or run), rule.threshold)]


def noise(count, mean=1.0, deviation=0.1):
    return mean + deviation * RNG.standard_normal(count).clip(-2, 2)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_calm_run_that_equals_its_baseline_is_quiet(rule):
    calm = series(
        actor__grad_norm=noise(160),
        actor__pg_loss=noise(160),
        critic__score__mean=noise(160, 0.5, 0.02),
        training__rollout_probs_diff_mean=noise(160, 0.002, 0.0001),
    )
    if rule.name.startswith(("ZClip", "W&B")):
        # 2.5 and 3 sigma of a two-sigma series: the estimate of sigma from 30 values still crosses it now and then.
        assert len(alarms(rule.name, calm)) <= 12
    else:
        assert alarms(rule.name, calm) == []


def test_nan_only_sees_nan_and_infinity_and_nothing_else():
    run = series(actor__kl_loss=[1, 1, np.nan, 1e30, 1, 1, 1, 1, 1, 1, np.inf])

    assert alarms("NaN only", run) == [3, 11]


def test_olmo_core_is_blind_for_its_whole_window():
    values = noise(200)
    early, late = values.copy(), values.copy()
    early[100], late[150] = 1000, 1000

    assert alarms("OLMo-core 6 sigma, window 128", series(actor__grad_norm=early)) == []
    assert alarms("OLMo-core 6 sigma, window 128", series(actor__grad_norm=late)) == [151]
    assert alarms("OLMo-core 6 sigma, window 32", series(actor__grad_norm=early)) == [101]


def test_olmo_core_does_not_see_a_fall():
    values = noise(80)
    values[60:] = -50

    assert alarms("OLMo-core 6 sigma, window 32", series(actor__grad_norm=values)) == []


def test_zclip_looks_at_gradient_norms_only_unless_told_otherwise():
    values = np.full(60, 1.0) + 0.01 * np.arange(60) % 0.05
    spiky = values.copy()
    spiky[40] = 9

    assert alarms("ZClip 2.5", series(actor__grad_norm=spiky)) == [41]
    assert alarms("ZClip 2.5", series(actor__entropy=spiky)) == []
    assert alarms("ZClip 2.5, all metrics", series(actor__entropy=spiky)) == [41]


def test_megatron_wants_ten_times_the_largest_of_the_first_hundred():
    values = np.full(120, 2.0)
    values[110], values[50] = 20.5, 19

    assert alarms("Megatron 10x of first 100", series(actor__pg_loss=values)) == []
    values[50] = 2
    assert alarms("Megatron 10x of first 100", series(actor__pg_loss=values)) == [111]


def test_turbulence_needs_half_as_much_again_as_the_running_mean_and_no_warm_up():
    assert alarms("msprobe Turbulence 0.5", series(actor__grad_norm=[1, 1.49, 1])) == []
    assert alarms("msprobe Turbulence 0.5", series(actor__grad_norm=[1, 1.51, 1])) == [2]


def test_the_running_mean_of_turbulence_moves_by_a_hundredth_of_each_value():
    # After 1 and 1.4 the mean is 1.004, and the limit 1.506.
    assert alarms("msprobe Turbulence 0.5", series(actor__grad_norm=[1, 1.4, 1.505])) == []
    assert alarms("msprobe Turbulence 0.5", series(actor__grad_norm=[1, 1.4, 1.507])) == [3]


def test_turbulence_is_deaf_for_ever_after_one_nan():
    assert alarms("msprobe Turbulence 0.5", series(actor__grad_norm=[1, np.nan, 1, 100, 1e6])) == []


def test_three_of_five_are_wanted_above_the_range_of_the_density():
    values = noise(60)
    two, three = values.copy(), values.copy()
    two[[40, 42]] = 10
    three[[40, 42, 44]] = 10

    assert alarms("rl-insight KDE 3 of 5", series(actor__entropy=two)) == []
    assert alarms("rl-insight KDE 3 of 5", series(actor__entropy=three)) == [45]


def test_the_two_percent_rule_compares_means_over_the_run_in_both_directions():
    base = series(actor__pg_loss=np.full(50, 2.0))

    assert alarms("mean loss 2 %", series(actor__pg_loss=np.full(50, 2.03)), base) == []
    assert alarms("mean loss 2 %", series(actor__pg_loss=np.full(50, 2.05)), base) == [1]
    assert alarms("mean loss 2 %", series(actor__pg_loss=np.full(50, 1.95)), base) == [1]


def test_a_baseline_shorter_than_the_run_goes_on_with_its_last_row():
    base = series(actor__pg_loss=np.full(10, 2.0))

    assert alarms("mean loss 2 %", series(actor__pg_loss=np.full(50, 2.0)), base) == []


def test_the_limits_of_the_verl_faq_are_absolute():
    run = series(training__rollout_probs_diff_mean=[0.004, 0.006, 0.002, 0.002, 0.002, 0.002, 0.002, 0.011])

    assert alarms("verl FAQ 0.005", run) == [2, 8]
    assert alarms("verl FAQ 0.01", run) == [8]


def test_npu_asd_strikes_out_at_the_third_abnormal_norm():
    values = np.ones(40)
    values[[10, 20, 30]] = 1e7

    assert alarms("torch_npu NPU_ASD, 3 strikes", series(actor__grad_norm=values)) == [31]


def test_a_metric_that_only_one_side_has_is_left_out():
    run, base = series(actor__pg_loss=np.ones(5), actor__kl_loss=np.ones(5)), series(actor__kl_loss=np.ones(5))

    assert alarms("mean loss 2 %", run, base) == []


def test_an_excursion_is_one_episode_until_it_has_been_quiet_for_five_steps():
    scores = np.zeros(40)
    scores[[3, 4, 6, 11, 17, 30]] = 1

    assert [alarm.step for alarm in episodes(scores, 0.5)] == [4, 18, 31]
