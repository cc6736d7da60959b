# SPDX-License-Identifier: Apache-2.0
"""Bands from seeds."""

import numpy as np
import pytest

from sentinel.core.compare import learn, learn_bands
from sentinel.core.compare.free import CUSUM_CLIP, CUSUM_LIMIT, LONE_FACTOR, SPIKE, cusum_step, whitened
from sentinel.daemon.metric_catalogue import load_catalogue
from sentinel.records import Reading
from tests.support.runs import a_reference

CATALOGUE = load_catalogue()


def a_noisy_run(seed, *, steps=200, sigma=0.2, phi=0.0, trend=0.0, key="actor/grad_norm"):
    rng, state, out = np.random.default_rng(seed), 0.0, []
    for step in range(1, steps + 1):
        state = phi * state + np.sqrt(1 - phi**2) * rng.normal()
        out.append(Reading(step=step, metrics={key: float(np.exp(trend * step + sigma * state))}))
    return tuple(out)


def bands(*runs):
    return learn_bands(learn(a_reference(*runs), CATALOGUE))


def test_the_scale_is_the_scatter_of_the_seeds_in_logarithms():
    learned = bands(*[a_noisy_run(seed) for seed in range(5)])

    assert learned.log.tolist() == [True]
    assert np.median(learned.scale) == pytest.approx(0.2, rel=0.3)


def test_one_seed_is_widened_by_the_stated_factor():
    learned = bands(a_noisy_run(1))

    assert np.median(learned.scale) == pytest.approx(LONE_FACTOR * 0.2, rel=0.3)


def test_the_centre_follows_a_trend_up_to_its_ends():
    learned = bands(*[a_noisy_run(seed, sigma=0.01, trend=0.02) for seed in range(5)])

    np.testing.assert_allclose(learned.centre[:, 0], 0.02 * np.arange(1, 201), atol=0.03)


def test_memory_of_the_residuals_is_learned_and_taken_out():
    learned = bands(*[a_noisy_run(seed, phi=0.8) for seed in range(5)])

    assert learned.phi[0] == pytest.approx(0.8, abs=0.12)


def test_thresholds_are_never_below_the_nominal_ones():
    learned = bands(*[a_noisy_run(seed, key="actor/entropy") for seed in range(5)])

    assert learned.spike[0] >= SPIKE
    assert learned.cusum[0] >= CUSUM_LIMIT


def test_bursts_that_a_seed_shows_raise_the_threshold():
    calm = bands(*[a_noisy_run(seed, key="actor/entropy") for seed in range(5)])
    wild = list(a_noisy_run(9, key="actor/entropy"))
    wild[50] = Reading(step=51, metrics={"actor/entropy": 20.0})

    assert (
        bands(*[a_noisy_run(seed, key="actor/entropy") for seed in range(4)], tuple(wild)).spike[0] > 2 * calm.spike[0]
    )


def test_white_residuals_have_no_memory_and_unit_variance():
    rng, before, white = np.random.default_rng(3), np.array([np.nan]), []
    state = rng.normal()
    for _ in range(20_000):
        state = 0.9 * state + np.sqrt(1 - 0.81) * rng.normal()
        white.append(whitened(np.array([state]), before, np.array([0.9]))[0])
        before = np.array([state])

    assert np.std(white) == pytest.approx(1.0, rel=0.03)
    assert abs(np.corrcoef(white[1:], white[:-1])[0, 1]) < 0.03


def test_the_cusum_takes_one_outlier_for_no_drift_and_rests_over_gaps():
    high, low = cusum_step(np.zeros(1), np.zeros(1), np.array([1e9]))
    rested = cusum_step(high, low, np.array([np.nan]))

    assert high[0] == CUSUM_CLIP - 0.5
    assert rested[0] == high


def test_normal_residuals_hardly_ever_reach_the_limit():
    rng = np.random.default_rng(4)
    high, low, reached = np.zeros(500), np.zeros(500), 0
    for _ in range(400):
        high, low = cusum_step(high, low, rng.normal(size=500))
        reached += int((np.maximum(high, low) > CUSUM_LIMIT).sum())

    assert reached == 0
