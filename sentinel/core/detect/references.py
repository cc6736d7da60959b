# SPDX-License-Identifier: Apache-2.0
"""Detectors that others publish, rebuilt from their constants, to be scored beside the engine.

Each is a rule that turns a run into one score per step; it alarms where the score is above its threshold. The rules look at
the metrics that their authors name, and, where a rule is general, also at all metrics of the run. One-sided rules stay
one-sided; a value that is not finite never fires a rule whose comparison it makes false, as in the originals.

Runs here may be shorter than a rule's warm-up. Such a rule is kept as published (it then stays silent) and repeated with a
short warm-up, so that its silence is not held against it.

Sources of the constants: the projects' code or documentation as named in each entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from sentinel.core.detect.evaluate import Alarm

Values = NDArray[np.float64]

QUIET_STEPS = 5
"""An episode ends after so many steps without an alarm, so that one long excursion counts once, as an incident does."""

GENERAL = ("actor/*", "critic/*", "training/rollout_*", "rollout_corr/*", "response_length/*", "prompt_length/*")
NORMS = ("actor/grad_norm", "critic/grad_norm")
LOSSES = ("actor/pg_loss", "critic/vf_loss")
REWARDS = ("critic/score/mean", "critic/rewards/mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A run as an array: `values` [steps, metrics]; NaN where the run wrote NaN or the metric was absent."""

    metrics: tuple[str, ...]
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One published detector on one choice of metrics."""

    name: str
    metrics: tuple[str, ...]
    """Patterns of the metrics it looks at."""
    threshold: float
    """The published one; alarms are strictly above it."""
    swept: bool
    """Whether it has a threshold that can be chosen."""
    score: Callable[[Values, Values], Values]
    """Columns of the run and of the baseline (same shape) -> score per step and column."""

    def scores(self, run: Series, baseline: Series) -> Values:
        """Largest score over the rule's metrics, per step; -inf where it says nothing."""
        chosen = [name for name in run.metrics if any(fnmatchcase(name, pattern) for pattern in self.metrics)]
        chosen = [name for name in chosen if name in baseline.metrics]
        if not chosen:
            return np.full(len(run.values), -np.inf)
        ours = run.values[:, [run.metrics.index(name) for name in chosen]]
        theirs = baseline.values[:, [baseline.metrics.index(name) for name in chosen]]
        with np.errstate(all="ignore"):
            scored = self.score(ours, fitted(theirs, len(ours)))
        return np.asarray(np.where(np.isnan(scored), -np.inf, scored).max(axis=1))


def fitted(baseline: Values, steps: int) -> Values:
    """The baseline cut or continued by its last row to so many steps."""
    rows = np.minimum(np.arange(steps), len(baseline) - 1)
    return baseline[rows]


def episodes(scores: Values, threshold: float) -> tuple[Alarm, ...]:
    """One alarm per excursion above the threshold; steps count from 1."""
    alarms: list[Alarm] = []
    last = -np.inf
    for step in (np.flatnonzero(scores > threshold) + 1).tolist():
        if step - last > QUIET_STEPS:
            alarms.append(Alarm(step=step))
        last = step
    return tuple(alarms)


# --------------------------------------------------------------------------- the rules


def window_sigmas(window: int, least: int) -> Callable[[Values, Values], Values]:
    """(x - mean) / std of the `window` values before, silent until there are `least`."""

    def score(run: Values, _baseline: Values) -> Values:
        scores = np.full(run.shape, np.nan)
        for step in range(least, len(run)):
            past = run[max(0, step - window) : step]
            scores[step] = (run[step] - past.mean(axis=0)) / past.std(axis=0)
        return scores

    return score


def zclip(run: Values, _baseline: Values, warm_up: int = 25, alpha: float = 0.97, limit: float = 2.5) -> Values:
    """Z-score against exponential mean and variance; the mean learns a clipped value, as the original does."""
    scores = np.full(run.shape, np.nan)
    if len(run) <= warm_up:
        return scores
    mean, variance = run[:warm_up].mean(axis=0), run[:warm_up].var(axis=0)
    for step in range(warm_up, len(run)):
        deviation = np.sqrt(variance)
        scores[step] = (run[step] - mean) / deviation
        learnt = np.where(scores[step] > limit, mean + limit * deviation, run[step])
        mean = alpha * mean + (1 - alpha) * learnt
        variance = alpha * variance + (1 - alpha) * (learnt - mean) ** 2
    return scores


def times_first_maximum(samples: int) -> Callable[[Values, Values], Values]:
    """X over the largest of the first `samples` values."""

    def score(run: Values, _baseline: Values) -> Values:
        scores = np.full(run.shape, np.nan)
        if len(run) > samples:
            scores[samples:] = run[samples:] / run[:samples].max(axis=0)
        return scores

    return score


def turbulence(run: Values, _baseline: Values, beta: float = 0.99) -> Values:
    """|x| over the exponential mean of |x| before it, less 1."""
    scores = np.full(run.shape, np.nan)
    mean = np.abs(run[0])
    for step in range(1, len(run)):
        scores[step] = np.abs(run[step]) / mean - 1
        mean = beta * mean + (1 - beta) * np.abs(run[step])
    return scores


def density_range(
    run: Values, _baseline: Values, first: int = 30, least: int = 20, of: int = 5, wanted: int = 3
) -> Values:
    """Bandwidths above the range that a kernel density of the first steps covers, reached by 3 of 5 steps in a row.

    The range ends three bandwidths (Silverman's rule) above the largest value seen: there a Gaussian density is spent.
    """
    scores = np.full(run.shape, np.nan)
    seen = run[:first]
    if len(seen) < least:
        return scores
    bandwidth = 1.06 * seen.std(axis=0) * len(seen) ** -0.2
    above = (run - seen.max(axis=0)) / bandwidth - 3
    for step in range(first + of - 1, len(run)):
        scores[step] = np.sort(above[step - of + 1 : step + 1], axis=0)[of - wanted]
    return scores


def mean_relative(run: Values, baseline: Values) -> Values:
    """|mean so far - baseline's mean so far| over the latter's size."""
    steps = np.arange(1, len(run) + 1)[:, None]
    ours, theirs = np.cumsum(run, axis=0) / steps, np.cumsum(baseline, axis=0) / steps
    return np.asarray(np.abs(ours - theirs) / np.abs(theirs))


def step_relative(run: Values, baseline: Values) -> Values:
    """|x - baseline| over the baseline's size, step by step."""
    return np.asarray(np.abs(run - baseline) / np.abs(baseline))


def value(run: Values, _baseline: Values) -> Values:
    """The value itself."""
    return run


def strikes(run: Values, _baseline: Values, wanted: int = 3, absolute: float = 1e6) -> Values:
    """Third largest so far of |x| over its running mean; beyond 1e6 the value itself is a strike.

    The window of 480 minutes is taken as the whole run, the cool-down of 5 minutes as one step.
    """
    size = np.abs(run)
    before = np.cumsum(size, axis=0)[:-1] / np.arange(1, len(run))[:, None]
    ratio = np.vstack([np.zeros((1, run.shape[1])), size[1:] / before])
    ratio = np.where(size > absolute, np.inf, ratio)
    scores = np.full(run.shape, np.nan)
    for step in range(wanted - 1, len(run)):
        scores[step] = np.sort(ratio[: step + 1], axis=0)[-wanted]
    return scores


def not_finite(run: Values, _baseline: Values) -> Values:
    """1 where the value is not finite."""
    return np.where(np.isfinite(run), 0.0, 1.0)


SELF = ("training/rollout_probs_diff_mean",)

RULES = (
    Rule(name="NaN only", metrics=("*",), threshold=0.5, swept=False, score=not_finite),
    Rule(
        name="OLMo-core 6 sigma, window 128",
        metrics=NORMS + LOSSES,
        threshold=6,
        swept=True,
        score=window_sigmas(128, 128),
    ),
    Rule(
        name="OLMo-core 6 sigma, window 32",
        metrics=NORMS + LOSSES,
        threshold=6,
        swept=True,
        score=window_sigmas(32, 16),
    ),
    Rule(
        name="OLMo-core 6 sigma, window 32, all metrics",
        metrics=GENERAL,
        threshold=6,
        swept=True,
        score=window_sigmas(32, 16),
    ),
    Rule(name="ZClip 2.5", metrics=NORMS, threshold=2.5, swept=True, score=zclip),
    Rule(name="ZClip 2.5, all metrics", metrics=GENERAL, threshold=2.5, swept=True, score=zclip),
    Rule(name="Megatron 10x of first 100", metrics=LOSSES, threshold=10, swept=True, score=times_first_maximum(100)),
    Rule(
        name="Megatron 10x of first 20", metrics=NORMS + LOSSES, threshold=10, swept=True, score=times_first_maximum(20)
    ),
    Rule(name="msprobe Turbulence 0.5", metrics=NORMS, threshold=0.5, swept=True, score=turbulence),
    Rule(name="msprobe Turbulence 0.5, all metrics", metrics=GENERAL, threshold=0.5, swept=True, score=turbulence),
    Rule(name="W&B z-score 30", metrics=NORMS + LOSSES + REWARDS, threshold=3, swept=True, score=window_sigmas(30, 30)),
    Rule(name="W&B z-score 30, all metrics", metrics=GENERAL, threshold=3, swept=True, score=window_sigmas(30, 30)),
    Rule(name="rl-insight KDE 3 of 5", metrics=GENERAL, threshold=0, swept=True, score=density_range),
    Rule(name="mean loss 2 %", metrics=LOSSES, threshold=0.02, swept=True, score=mean_relative),
    Rule(name="mean reward 4 %", metrics=REWARDS, threshold=0.04, swept=True, score=mean_relative),
    Rule(name="probs diff within 5 % of the baseline", metrics=SELF, threshold=0.05, swept=True, score=step_relative),
    Rule(name="verl FAQ 0.005", metrics=SELF, threshold=0.005, swept=True, score=value),
    Rule(name="verl FAQ 0.01", metrics=SELF, threshold=0.01, swept=True, score=value),
    Rule(name="torch_npu NPU_ASD, 3 strikes", metrics=NORMS, threshold=100, swept=True, score=strikes),
)
