# SPDX-License-Identifier: Apache-2.0
"""What one standard deviation of a clean repeat is taken to be, and what twins say of limits that need no baseline."""

import numpy as np
import pytest

from sentinel.core.compare import learn, learn_pairing
from sentinel.daemon.metric_catalogue import load_catalogue
from tests.support.runs import a_grpo_run, a_reference, an_engine, changed, incidents, repeated, scaled, watched

CATALOGUE = load_catalogue()
RUN = a_grpo_run(steps=30)
GAP = "training/rollout_probs_diff_mean"


def unit(*seeds):
    """One standard deviation of the entropy, over the steps, with twins of these seeds."""
    baseline = learn(a_reference(RUN, twins=[repeated(RUN, noise=1e-3, seed=seed) for seed in seeds]), CATALOGUE)
    return learn_pairing(baseline, 0).unit[:, baseline.index.rows["actor/entropy"]]


def test_twins_that_repeat_each_other_count_once():
    """Four different twins tell more than two pairs of equal ones, and those no less than the two alone."""
    four, pairs, two = (np.median(unit(*seeds)) for seeds in ((2, 3, 4, 5), (2, 2, 3, 3), (2, 3)))

    assert pairs > 1.2 * four
    assert pairs == pytest.approx(two, rel=0.25)


def test_twins_that_differ_by_rounding_alone_count_once():
    one = repeated(RUN, noise=1e-3, seed=2)
    twins = [
        one,
        repeated(one, noise=1e-9, seed=8),
        repeated(one, noise=1e-9, seed=9),
        repeated(RUN, noise=1e-3, seed=3),
    ]
    baseline = learn(a_reference(RUN, twins=twins), CATALOGUE)
    found = learn_pairing(baseline, 0).unit[:, baseline.index.rows["actor/entropy"]]

    assert np.median(found) > 1.2 * np.median(unit(2, 3, 4, 5))


def gaps(factor, *twins):
    """What is said of a run whose gap to the rollout engine is so many times the reference's 0.001 in its second half."""
    run = changed(repeated(RUN, seed=11), at=15, change=scaled(GAP, factor))
    reference = a_reference(
        RUN, twins=[changed(repeated(RUN, seed=12), at=15, change=scaled(GAP, one)) for one in twins]
    )
    found = incidents(watched(an_engine(detectors=("limit",)), run, reference)[0])
    return [finding.metric for incident in found for finding in incident.findings]


def test_a_limit_that_needs_no_baseline_yields_to_what_healthy_twins_show():
    assert GAP in gaps(20.0)
    assert GAP in gaps(20.0, 1.0)
    assert gaps(20.0, 1.0, 12.0) == []
    assert GAP in gaps(60.0, 1.0, 12.0)
