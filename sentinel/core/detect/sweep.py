# SPDX-License-Identifier: Apache-2.0
"""A detector with a threshold, at every threshold: its ROC curve, and the point that compares it with another detector.

The unit is a run with its score per step. False alarms are counted as the score of a detector counts them (episodes on clean
runs per 1,000 steps), the finds as shares of faults found within a delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sentinel.core.detect.evaluate import WITHIN, Outcome, PlantedFault, delay, strength_class
from sentinel.core.detect.references import episodes

VISIBLE = ("strong", "medium", "subtle")
POINTS = 24
"""Thresholds on a curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """A run and what a rule's score was at each step."""

    run: str
    regime: str
    fault: PlantedFault | None
    scores: NDArray[np.float64]

    def outcome(self, threshold: float) -> Outcome:
        """What the rule says at a threshold."""
        alarms = episodes(self.scores, threshold)
        return Outcome(run=self.run, regime=self.regime, steps=len(self.scores), fault=self.fault, alarms=alarms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One threshold."""

    threshold: float
    false_alarms: float
    """Per 1,000 clean steps."""
    within: tuple[float, ...]
    """Share of the visible faults found with a delay of at most 0, 1, 3, 10 steps."""
    recall: float
    """Share of the visible faults found at all."""


def point(outcomes: Sequence[Outcome], threshold: float) -> Point:
    """Where a detector stands, over strong, medium and subtle faults together."""
    clean = [outcome for outcome in outcomes if outcome.fault is None]
    steps = sum(outcome.steps for outcome in clean)
    visible = [o for o in outcomes if o.fault is not None and strength_class(o.fault.strength) in VISIBLE]
    delays = np.array([delay(outcome) for outcome in visible])
    return Point(
        threshold=threshold,
        false_alarms=1000 * sum(len(outcome.alarms) for outcome in clean) / steps if steps else float("nan"),
        within=tuple(float(np.mean(delays <= limit)) if len(delays) else float("nan") for limit in WITHIN),
        recall=float(np.mean(np.isfinite(delays))) if len(delays) else float("nan"),
    )


def curve(runs: Sequence[ScoredRun]) -> tuple[Point, ...]:
    """The points of a rule in one regime, from silent to talkative.

    Thresholds are the largest scores of the clean runs and quantiles of all scores: between them the count of
    false alarms hardly moves.
    """
    tops = [run.scores.max() for run in runs if run.fault is None and len(run.scores)]
    every = np.concatenate([run.scores for run in runs]) if runs else np.zeros(0)
    finite = every[np.isfinite(every)]
    marks = [value for value in tops if np.isfinite(value)]
    if not len(finite):
        return ()
    # Just under each mark, so that a score equal to it alarms.
    levels = np.quantile(finite, np.linspace(0.9, 1.0, POINTS))
    high = np.quantile(marks, np.linspace(0.0, 1.0, POINTS)) if marks else np.zeros(0)
    thresholds = sorted({*levels.tolist(), *high.tolist()}, reverse=True)
    return tuple(point([run.outcome(threshold) for run in runs], threshold) for threshold in thresholds)


def at_most(points: Sequence[Point], false_alarms: float) -> Point | None:
    """The point of highest recall (then the earliest finds) with at most so many false alarms per 1,000 steps."""
    allowed = [one for one in points if one.false_alarms <= false_alarms]
    return max(allowed, key=lambda one: (one.recall, one.within), default=None)
