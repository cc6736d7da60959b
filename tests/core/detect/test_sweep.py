# SPDX-License-Identifier: Apache-2.0
"""The curve of a rule over its thresholds, and the point at which it is compared."""

import numpy as np
import pytest

from sentinel.core.detect.evaluate import PlantedFault
from sentinel.core.detect.sweep import ScoredRun, at_most, curve, point


def planted(strength=20.0):
    return PlantedFault(kind="k", stage="rollout", magnitude="small", onset=11, strength=strength, visible_from=11)


def run(scores, fault=None):
    return ScoredRun(run="r", regime="free", fault=fault, scores=np.array(scores, dtype=float))


def stepwise(high, low=0.0):
    return [low] * 10 + [high] * 10


RUNS = [
    run([1.0] * 20),
    run([2.0] * 20),
    run(stepwise(1.5), planted()),
    run(stepwise(3.0), planted()),
    run(stepwise(9.0), planted(strength=0.2)),
]


def test_a_lower_threshold_finds_more_and_cries_more():
    points = curve(RUNS)

    assert [one.threshold for one in points] == sorted((one.threshold for one in points), reverse=True)
    recalls = [one.recall for one in points]
    assert recalls == sorted(recalls)
    assert min(recalls) == 0
    assert max(recalls) == 1


def test_the_comparison_takes_the_best_recall_within_the_allowed_false_alarms():
    points = curve(RUNS)

    assert at_most(points, 0).recall == 0.5
    assert at_most(points, 25).recall == 1
    assert at_most((), 10) is None


def test_invisible_faults_do_not_count_in_a_point():
    outcomes = [one.outcome(2.5) for one in RUNS]

    assert point(outcomes, 2.5).recall == 0.5
    assert point(outcomes, 2.5).within == (0.5, 0.5, 0.5, 0.5)


def test_false_alarms_are_episodes_per_thousand_clean_steps():
    assert point([one.outcome(0.5) for one in RUNS], 0.5).false_alarms == pytest.approx(1000 * 2 / 40)


def test_a_rule_that_never_speaks_has_no_curve():
    assert curve([run([-np.inf] * 5)]) == ()
