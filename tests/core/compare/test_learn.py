# SPDX-License-Identifier: Apache-2.0
"""Reference runs on one grid."""

import math

import numpy as np

from sentinel.core.compare import learn
from sentinel.daemon.metric_catalogue import load_catalogue
from sentinel.records import Reading, Reference, ReferenceRun
from tests.support.runs import a_grpo_run, a_reference, repeated

CATALOGUE = load_catalogue()


def a_run(*readings):
    return tuple(
        Reading(step=step, metrics={"actor/entropy": value}, attempt=attempt) for step, value, attempt in readings
    )


def entropies(reference):
    baseline = learn(reference, CATALOGUE)
    return dict(zip(baseline.steps, baseline.seeds[0, :, 0].tolist(), strict=True))


def test_a_later_attempt_replaces_the_earlier_one_from_its_first_step_on():
    resumed = a_run((1, 0.1, 1), (2, 0.2, 1), (3, 0.3, 1), (4, 0.4, 1), (3, 0.35, 2))

    assert entropies(a_reference(resumed)) == {1: 0.1, 2: 0.2, 3: 0.35}


def test_steps_of_all_runs_are_on_one_axis():
    baseline = learn(a_reference(a_run((1, 0.1, 1)), a_run((3, 0.3, 1))), CATALOGUE)

    assert baseline.steps == (1, 3)
    np.testing.assert_equal(baseline.seeds[:, :, 0], [[0.1, np.nan], [np.nan, 0.3]])


def test_what_is_not_finite_is_remembered_and_not_computed_with():
    baseline = learn(a_reference(a_run((1, 0.1, 1), (2, math.inf, 1))), CATALOGUE)

    assert baseline.not_finite[:, 0].tolist() == [False, True]
    assert np.isnan(baseline.seeds[0, 1, 0])


def test_twins_alone_are_clean_runs_too():
    reference = Reference(name="b", runs=(ReferenceRun(source="t", readings=a_run((1, 0.1, 1)), twin=True),))

    assert entropies(reference) == {1: 0.1}


def test_a_reference_without_steps_is_none():
    assert learn(a_reference(()), CATALOGUE) is None
    assert learn(Reference(name="dumps only", runs=()), CATALOGUE) is None


def test_a_validation_step_says_nothing_about_what_a_step_holds():
    run = a_grpo_run(steps=4)
    probe = Reading(step=0, metrics={"val-core/acc": 0.5}, kind="val")
    baseline = learn(a_reference((probe, *run)), CATALOGUE)

    assert baseline.present[baseline.index.rows["actor/entropy"]] == 1.0


def test_the_coarsest_file_sets_the_resolution():
    coarse = ReferenceRun(source="c", readings=a_run((1, 0.1, 1)), resolution=0.001)
    fine = ReferenceRun(source="f", readings=a_run((1, 0.1, 1)))

    assert learn(Reference(name="b", runs=(fine, coarse)), CATALOGUE).resolution == 0.0005


def test_equal_lengths_are_weak_evidence_where_the_baseline_agrees_with_itself_by_chance():
    varied = learn(a_reference(a_grpo_run(steps=20)), CATALOGUE)
    flat = tuple(
        Reading(
            step=r.step,
            metrics={
                **r.metrics,
                "response_length/mean": 16.0,
                "global_seqlen/mean": 76.0,
                "response_length/clip_ratio": 1.0,
            },
        )
        for r in a_grpo_run(steps=20)
    )

    assert varied.lengths.bans > 2.0
    assert learn(a_reference(flat), CATALOGUE).lengths.bans < 0.01


def test_a_twin_is_held_against_the_seed_that_it_repeats():
    from sentinel.core.compare import learn_pairing

    one, other = a_grpo_run(steps=12, seed=1), a_grpo_run(steps=12, seed=2)
    baseline = learn(a_reference(one, other, twins=(repeated(other, noise=1e-6),)), CATALOGUE)

    assert learn_pairing(baseline, 1).calibrated
    assert not learn_pairing(baseline, 0).calibrated
    row = baseline.index.rows["actor/entropy"]
    assert learn_pairing(baseline, 1).unit[:, row].max() < 1e-3
