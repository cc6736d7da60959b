# SPDX-License-Identifier: Apache-2.0
"""Bands from seeds."""

import numpy as np
import pytest

from sentinel.core.compare import learn, learn_bands
from sentinel.core.compare.free import LONE_FACTOR, SEEN
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


def test_the_limits_are_the_catalogues():
    learned = bands(*[a_noisy_run(seed, key="actor/entropy") for seed in range(5)])

    assert learned.limits[:, 0].tolist() == list(CATALOGUE.entry("actor/entropy").free_limits)


def test_what_a_seed_did_itself_at_any_step_counts_at_every_step():
    wild = list(a_noisy_run(9, key="actor/entropy"))
    wild[50] = Reading(step=51, metrics={"actor/entropy": 20.0})

    learned = bands(*[a_noisy_run(seed, key="actor/entropy") for seed in range(4)], tuple(wild))

    assert learned.seen[0, 0] == pytest.approx(SEEN * np.log(20.0), rel=0.2)
    assert learned.seen[1, 0] < 1.0
    assert learned.seen[2:, 0].tolist() == [0.0, 0.0, 0.0]


def test_the_scale_at_the_first_steps_is_wider():
    learned = bands(*[a_noisy_run(seed) for seed in range(5)])

    assert learned.scale[0, 0] > 1.3 * learned.scale[5, 0]


def test_prompts_that_all_seeds_share_are_fixed_and_one_seed_fixes_none():
    same = [a_noisy_run(seed, steps=5, key="prompt_length/mean") for seed in (1, 1, 1)]
    other = [a_noisy_run(seed, steps=5, key="prompt_length/mean") for seed in (1, 2, 3)]

    assert bands(*same).fixed.tolist() == [True]
    assert bands(*other).fixed.tolist() == [False]
    assert bands(same[0]).fixed.tolist() == [False]
