# SPDX-License-Identifier: Apache-2.0
"""Runs for engine tests: a GRPO run as verl reports it, made of numbers that behave like the real ones.

run = a_grpo_run(steps=20)                       # deterministic
twin = repeated(run, noise=1e-6, seed=3)         # a clean repeat on the same rollouts
bad = changed(run, at=7, change=scaled("actor/entropy", 1.01))
"""

from __future__ import annotations

import math

import numpy as np

from sentinel.core.engine import Engine, EngineSettings
from sentinel.daemon.metric_catalogue import load_catalogue
from sentinel.records import IncidentChanged, Reading, Reference, ReferenceRun, StepReported

SAMPLED = ("response_length/", "critic/score/", "global_seqlen/", "rollout_corr/rollout_")


def an_engine(**settings):
    """An engine with the shipped catalogue."""
    return Engine(EngineSettings(**settings), load_catalogue())


def a_grpo_run(*, steps=20, seed=1, critic=False, progress=lambda step: step):
    """A run of the recipe; another seed samples other responses and learns a little otherwise.

    `progress`: how far the run has come at a step, in steps of a usual run.
    """
    rng = np.random.default_rng(seed)
    return tuple(
        Reading(step=step, metrics={**_step(progress(step), rng, critic), "training/global_step": float(step)})
        for step in range(1, steps + 1)
    )


def _step(step, rng, critic):
    length = 200 - 0.5 * step + 6 * rng.normal()
    score = 0.5 + 0.01 * step + 0.03 * rng.normal()
    log_ppl = 0.30 - 0.002 * step + 0.005 * rng.normal()
    entropy = 0.40 - 0.004 * step + 0.006 * rng.normal()
    gap = 1e-3 * (1 + 0.1 * rng.normal())
    values = {
        "prompt_length/mean": 60.0,
        "prompt_length/max": 90.0,
        "response_length/mean": length,
        "response_length/max": 255.0 + rng.integers(2),
        "response_length/clip_ratio": 0.02 + 0.01 * rng.integers(3),
        "global_seqlen/mean": 60.0 + length,
        "critic/score/mean": score,
        "critic/score/max": 1.0,
        "critic/rewards/mean": score,
        "critic/advantages/mean": 0.01 * rng.normal(),
        "critic/advantages/max": 1.8 + 0.1 * rng.normal(),
        "actor/entropy": entropy,
        "training/rollout_probs_diff_mean": gap,
        "training/rollout_actor_probs_pearson_corr": 0.999 - 1e-4 * abs(rng.normal()),
        "rollout_corr/training_log_ppl": log_ppl,
        "rollout_corr/rollout_log_ppl": log_ppl + 1e-4 * rng.normal(),
        "rollout_corr/kl": 2e-4 * (1 + 0.2 * rng.normal()),
        "actor/ppo_kl": 1e-4 * rng.normal(),
        "actor/pg_loss": 0.01 * rng.normal(),
        "actor/kl_loss": 1e-3 * step * (1 + 0.05 * rng.normal()),
        "actor/loss": 0.01 * rng.normal(),
        "actor/grad_norm": math.exp(0.15 * rng.normal() - 1.0),
        "actor/lr": 1e-6,
        "timing_s/gen": 5.0 + rng.normal(),
        "training/global_step": step,
    }
    if critic:
        values |= {
            "critic/values/mean": 0.5 + 0.02 * rng.normal(),
            "critic/vf_loss": 0.1 * math.exp(0.1 * rng.normal()),
            "critic/vpred_mean": 0.5 + 0.02 * rng.normal(),
            "critic/grad_norm": 110 * math.exp(0.1 * rng.normal()),
            "critic/vf_explained_var": 0.3 + 0.03 * rng.normal(),
        }
    return {key: float(value) for key, value in values.items()}


def repeated(run, *, noise=1e-6, seed=7):
    """A clean repeat on the same rollouts: what was sampled is equal, all else parts a little more each step."""
    rng = np.random.default_rng(seed)
    return tuple(
        Reading(
            step=reading.step,
            metrics={
                key: value
                if key.startswith(("prompt_length", "actor/lr", "training/global_step", *SAMPLED))
                else _parted(value, noise, reading.step, rng)
                for key, value in reading.metrics.items()
            },
        )
        for reading in run
    )


def _parted(value, noise, step, rng):
    return value + noise * (abs(value) + 1e-3) * (1 + 0.1 * step) * rng.normal()


def changed(run, *, at, change, until=None):
    """The run with `change(metrics)` applied from one step on (up to `until`, included)."""
    last = math.inf if until is None else until
    return tuple(
        Reading(step=reading.step, metrics=change(dict(reading.metrics))) if at <= reading.step <= last else reading
        for reading in run
    )


def scaled(*pairs):
    """A change that multiplies metrics: scaled("a", 1.1, "b", 2)."""
    factors = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return lambda metrics: {key: value * factors.get(key, 1.0) for key, value in metrics.items()}


def shifted(*pairs):
    """A change that adds to metrics."""
    amounts = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return lambda metrics: {key: value + amounts.get(key, 0.0) for key, value in metrics.items()}


def replaced(**values):
    """A change that sets metrics; keys with `__` for `/`."""
    given = {key.replace("__", "/"): value for key, value in values.items()}
    return lambda metrics: metrics | given


def without(*keys):
    """A change that takes metrics away."""
    return lambda metrics: {key: value for key, value in metrics.items() if key not in keys}


def a_reference(*seeds, twins=(), **more):
    """A reference of these runs."""
    runs = [ReferenceRun(source=f"seed{place}", readings=run) for place, run in enumerate(seeds)]
    runs += [ReferenceRun(source=f"twin{place}", readings=run, twin=True) for place, run in enumerate(twins)]
    return Reference(name="baseline", runs=tuple(runs), **more)


def events(run, **more):
    """The run as the engine is told of it."""
    return [
        StepReported(step=reading.step, values=reading.metrics, kind=reading.kind, attempt=reading.attempt, **more)
        for reading in run
    ]


def watched(engine, run, reference=None, regime="auto", name="run"):
    """Walk the engine over a run; the final state and all effects."""
    state, effects = engine.initial(name, reference, regime), []
    for event in events(run):
        state, more = engine.advance(state, event)
        effects += more
    return state, effects


def incidents(state):
    """The incidents of a state."""
    return [tracked.incident for tracked in state.docket]


def changes(effects):
    """(change, step opened) of every incident effect."""
    return [
        (effect.change, effect.incident.opened_at_step) for effect in effects if isinstance(effect, IncidentChanged)
    ]
