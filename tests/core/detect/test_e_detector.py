# SPDX-License-Identifier: Apache-2.0
"""Small deviations that add up over steps, against what healthy runs themselves stand off."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.compare.betting import BETS, LEAST_RUNS, gains, learn_bets
from sentinel.core.detect import DETECTORS
from tests.support.runs import (
    a_grpo_run,
    a_reference,
    an_engine,
    changed,
    incidents,
    repeated,
    shifted,
    watched,
    without,
)

STEPS = 60
SEEDS = a_reference(*[a_grpo_run(steps=STEPS, seed=seed) for seed in (2, 3, 4, 5, 6)])
RUN = a_grpo_run(steps=STEPS, seed=9)
ONSET = 25
# 2.2 of the standard deviations that `a_grpo_run` draws its metrics with.
SLIGHT = {"actor/entropy": 0.0132, "response_length/mean": 13.0, "critic/advantages/max": 0.22}
OTHERS = tuple(name for name in DETECTORS if name != "e_detector")


def slightly(*metrics, until=None):
    return changed(
        RUN, at=ONSET, until=until, change=shifted(*[part for key in metrics for part in (key, SLIGHT[key])])
    )


def opened(run, reference=SEEDS, **settings):
    """Steps at which incidents began, with the e-detector alone unless said otherwise."""
    settings = {"detectors": ("e_detector",)} | settings
    return [incident.opened_at_step for incident in incidents(watched(an_engine(**settings), run, reference)[0])]


def test_what_is_slight_for_every_window_adds_up():
    run = slightly("actor/entropy")

    late = opened(run, detectors=OTHERS)
    (step,) = opened(run)
    assert ONSET < step <= ONSET + 12
    assert all(other >= step + 15 for other in late)


def test_all_that_moved_is_named_with_its_beginning_and_the_odds():
    (incident,) = incidents(watched(an_engine(detectors=("e_detector",)), slightly(*SLIGHT), SEEDS)[0])

    named = {finding.metric: finding.because for finding in incident.findings}
    assert set(named) == set(SLIGHT)
    begun = int(named["actor/entropy"].split("since step ")[1].split(",")[0])
    assert abs(begun - ONSET) <= 3
    assert "stood above what was expected" in named["actor/entropy"]
    assert "the odds are 10^" in named["actor/entropy"]


@pytest.mark.parametrize("seed", range(20, 60))
def test_a_healthy_run_is_none(seed):
    assert opened(a_grpo_run(steps=STEPS, seed=seed)) == []


def test_the_evidence_is_gone_some_steps_after_its_cause():
    state, _ = watched(an_engine(detectors=("e_detector",)), slightly(*SLIGHT, until=ONSET + 15), SEEDS)

    (incident,) = incidents(state)
    assert incident.state == "closed"
    assert incident.closed_at_step <= ONSET + 15 + 20


def test_steps_without_a_metric_are_no_evidence_for_it_or_against_it():
    engine = an_engine(detectors=("e_detector",))
    gap = changed(slightly(*SLIGHT), at=ONSET + 3, until=ONSET + 8, change=without(*SLIGHT))
    before, _ = watched(engine, gap[: ONSET + 2], SEEDS)
    after, _ = watched(engine, gap[: ONSET + 8], SEEDS)

    row = before.index.rows["actor/entropy"]
    assert np.array_equal(before.memory["e_detector"].won[row], after.memory["e_detector"].won[row])
    assert before.memory["e_detector"].won[row].max() > 10


def test_a_run_that_is_resumed_is_bet_on_anew():
    run = slightly(*SLIGHT)
    engine, again = an_engine(detectors=("e_detector",)), a_grpo_run(steps=3, seed=10)
    before, _ = watched(engine, run[: ONSET + 8], SEEDS)

    state, _ = watched(engine, (*run[: ONSET + 8], *again), SEEDS)

    assert before.memory["e_detector"].won.max() > 1e4
    assert state.memory["e_detector"].won.max() < 1e3


def test_fewer_than_three_seeds_tell_no_offset():
    two = replace(SEEDS, runs=SEEDS.runs[: LEAST_RUNS - 1])

    state, _ = watched(an_engine(detectors=("e_detector",)), slightly(*SLIGHT), two)

    assert incidents(state) == []
    assert state.memory["e_detector"].won.size == 0


def test_under_replay_twins_stand_for_the_seeds():
    twins = tuple(repeated(RUN, noise=1e-3, seed=seed) for seed in (1, 2, 3, 4))
    reference = a_reference(RUN, twins=twins)
    slight = changed(
        repeated(RUN, noise=1e-3, seed=8),
        at=ONSET,
        change=lambda metrics: {
            key: value + 2.2e-3 * (1 + 0.1 * metrics["training/global_step"]) * (abs(value) + 1e-3)
            if key in ("actor/entropy", "rollout_corr/training_log_ppl", "actor/kl_loss")
            else value
            for key, value in metrics.items()
        },
    )

    assert opened(repeated(RUN, noise=1e-3, seed=8), reference) == []
    assert opened(slight, reference)[0] >= ONSET


NORMAL = st.floats(-6, 6)


@given(st.lists(st.lists(NORMAL, min_size=60, max_size=60), min_size=3, max_size=6))
def test_whoever_bets_against_a_healthy_run_gains_nothing(cells):
    """On the healthy cells themselves a bet without leeway gains at most 1 on average; with leeway less."""
    healthy = np.array(cells)[:, :, None]
    rows = np.ones(1, dtype=np.bool_)
    fair = learn_bets(healthy, rows, leeway=0.0, odds=1e5)
    careful = learn_bets(healthy, rows, leeway=1.0, odds=1e5)

    gained = np.array([gains(np.array([value]), fair) for value in healthy.ravel()])
    assert (gained.mean(axis=0) <= 1.0 + 1e-9 + 1.0 / fair.cells[0]).all()
    assert (np.array([gains(np.array([value]), careful) for value in healthy.ravel()]) <= gained + 1e-9).all()


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(-5, 5))
def test_a_gain_is_finite_and_grows_with_the_deviation(hostile, value):
    healthy = np.random.default_rng(1).normal(size=(4, 60, 1))
    bets = learn_bets(healthy, np.ones(1, dtype=np.bool_), leeway=1.0, odds=1e5)

    assert np.isfinite(gains(np.array([hostile]), bets)).all()
    here, further = (gains(np.array([x]), bets)[:, 0] for x in (value, value + 0.5))
    assert (further[: BETS // 2] >= here[: BETS // 2]).all()
    assert (further[BETS // 2 :] <= here[BETS // 2 :]).all()
