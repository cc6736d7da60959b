# SPDX-License-Identifier: Apache-2.0
"""Strength is the fixed definition, worked out by hand."""

import numpy as np
import pytest

from bench.corpus.strength import clean_band, strength

METRICS = ["actor/entropy", "actor/grad_norm", "critic/score/mean"]


def clean(runs=9, steps=30, seed=0):
    rng = np.random.default_rng(seed)
    return 1 + 0.1 * rng.standard_normal((runs, steps, len(METRICS)))


def test_a_shift_of_five_scales_over_ten_steps_has_strength_five():
    band = clean_band(METRICS, clean())
    values = band.middle.copy()
    values[11:, 1] += 5 * band.scale[11:, 1]

    assert strength(values, band, "actor_update", 12) == (pytest.approx(5), 12)


def test_only_the_stages_own_metrics_count():
    band = clean_band(METRICS, clean())
    values = band.middle.copy()
    values[11:, 2] += 50 * band.scale[11:, 2]

    assert strength(values, band, "actor_update", 12) == (0, None)
    assert strength(values, band, "compute_rm_score", 12)[0] == pytest.approx(50)


def test_the_median_over_ten_steps_forgives_four_and_not_six():
    band = clean_band(METRICS, clean())
    four, six = band.middle.copy(), band.middle.copy()
    four[11:15, 0] = np.nan
    six[11:17, 0] = np.nan

    assert strength(four, band, "actor_update", 12) == (0, 12)
    assert strength(six, band, "actor_update", 12) == (np.inf, 12)


def test_nothing_before_the_onset_counts():
    band = clean_band(METRICS, clean())
    values = band.middle.copy()
    values[:11] += 100

    assert strength(values, band, "actor_update", 12) == (0, None)


def test_visible_is_the_first_step_of_strength_one():
    band = clean_band(METRICS, clean())
    values = band.middle.copy()
    values[15:, 0] += 2 * band.scale[15:, 0]

    assert strength(values, band, "actor_update", 12)[1] == 16


def test_eight_clean_runs_are_needed():
    with pytest.raises(ValueError, match="7 clean runs"):
        clean_band(METRICS, clean(runs=7))


def test_runs_that_agree_exactly_have_the_floor_and_those_that_mostly_agree_their_deviation():
    exact = np.full((9, 30, 3), 6.0)
    mostly = exact.copy()
    mostly[0, ::3] = 7.0

    assert clean_band(METRICS, exact).scale.max() == pytest.approx(6e-4)
    assert clean_band(METRICS, mostly).scale.min() > 0.1


def test_a_run_may_end_before_the_clean_ones():
    band = clean_band(METRICS, clean())

    assert strength(band.middle[:15], band, "actor_update", 12) == (0, None)
