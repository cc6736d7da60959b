# SPDX-License-Identifier: Apache-2.0
"""A run that learns more slowly, or faster, than every seed is no fault; one that stopped learning is."""

import json

import pytest

from sentinel.core.engine import from_plain, to_plain
from tests.support.runs import a_grpo_run, a_reference, an_engine, changed, events, incidents, scaled, watched

STEPS = 65
SEEDS = a_reference(*[a_grpo_run(steps=80, seed=seed) for seed in (2, 3, 4, 5, 6)])


def at_pace(pace, seed=9):
    return a_grpo_run(steps=STEPS, seed=seed, progress=lambda step: step if step <= 20 else 20 + pace * (step - 20))


def watch(run):
    return watched(an_engine(), run, SEEDS)[0]


def codes(state):
    return [code for code, _ in state.warned]


@pytest.mark.parametrize(("pace", "code"), [(0.8, "learns_slower"), (1.2, "learns_faster")])
def test_another_pace_is_said_and_is_no_incident(pace, code):
    state = watch(at_pace(pace))

    assert incidents(state) == []
    assert codes(state).count(code) == 1


def test_one_metric_alone_at_another_pace_is_an_incident():
    """The same deviation in one metric that trends, the others on their course: no pace explains it."""
    slow, usual = at_pace(0.8), at_pace(1.0)
    mixed = tuple(
        type(reading)(step=reading.step, metrics={**reading.metrics, "actor/entropy": late.metrics["actor/entropy"]})
        for reading, late in zip(usual, slow, strict=True)
    )

    state = watch(mixed)

    assert incidents(state)[0].findings[0].metric == "actor/entropy"
    assert codes(state) == []


def test_a_run_that_stopped_learning_is_an_incident():
    state = watch(a_grpo_run(steps=STEPS, seed=9, progress=lambda step: min(step, 30)))

    assert 30 < incidents(state)[0].opened_at_step <= 45


@pytest.mark.parametrize("pace", [0.5, 0.0])
def test_a_run_that_falls_ever_further_behind_has_no_pace(pace):
    engine = an_engine()
    state, lags = engine.initial("run", SEEDS), []
    run = a_grpo_run(steps=STEPS, seed=9, progress=lambda step: min(step, 35) + pace * max(0, step - 35))
    for event in events(run):
        state, _ = engine.advance(state, event)
        lags.append(state.look.lag)

    assert set(lags[-10:]) == {0}
    assert incidents(state)


def test_one_that_goes_back_is_an_incident():
    state = watch(a_grpo_run(steps=STEPS, seed=9, progress=lambda step: step if step <= 40 else 20 + step - 40))

    assert 40 < incidents(state)[0].opened_at_step <= 42


@pytest.mark.parametrize("metric", ["actor/grad_norm", "actor/entropy", "rollout_corr/kl"])
def test_a_fault_in_a_slow_run_is_still_one(metric):
    run = changed(at_pace(0.8), at=50, change=scaled(metric, 4.0))

    (incident, *_) = incidents(watch(run))

    assert 50 <= incident.opened_at_step <= 52


def test_a_usual_run_is_never_laid_elsewhere():
    for seed in range(20, 30):
        assert codes(watch(a_grpo_run(steps=STEPS, seed=seed))) == []


def test_a_watch_that_was_stored_goes_on_at_the_same_pace():
    engine = an_engine()
    state = engine.initial("run", SEEDS)
    stored = state
    for event in events(at_pace(0.8)):
        state, _ = engine.advance(state, event)
        stored, _ = engine.advance(stored, event)
        assert stored.look.lag == state.look.lag
        stored = from_plain(json.loads(json.dumps(to_plain(stored))), SEEDS)

    assert state.lag > 0
    assert to_plain(stored) == to_plain(state)
