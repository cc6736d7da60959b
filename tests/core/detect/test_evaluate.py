# SPDX-License-Identifier: Apache-2.0
"""The score: what counts as found, how late, and how sure the numbers are."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.detect.evaluate import (
    Alarm,
    Outcome,
    PlantedFault,
    delay,
    finding_alarm,
    quantile,
    rate,
    row_to_plain,
    score,
    share,
    strength_class,
)


def fault(onset=10, strength=20.0, visible_from=10, stage="rollout"):
    return PlantedFault(
        kind="weights_stale", stage=stage, magnitude="middle", onset=onset, strength=strength, visible_from=visible_from
    )


def outcome(*alarms, planted=None, regime="replayed", steps=80, run="r"):
    return Outcome(run=run, regime=regime, steps=steps, fault=planted, alarms=tuple(alarms))


def at(step, *stages):
    return Alarm(step=step, stages=stages)


@pytest.mark.parametrize(
    ("strength", "name"),
    [
        (math.inf, "strong"),
        (10.01, "strong"),
        (10.0, "medium"),
        (3.01, "medium"),
        (3.0, "subtle"),
        (1.0, "subtle"),
        (0.99, "invisible"),
        (math.nan, "invisible"),
    ],
)
def test_strengths_are_cut_at_one_three_and_ten(strength, name):
    assert strength_class(strength) == name


def test_an_alarm_before_the_onset_does_not_find_the_fault():
    early = outcome(at(9, "rollout"), planted=fault(onset=10))

    assert finding_alarm(early) is None
    assert delay(early) == math.inf


def test_the_first_alarm_at_or_after_the_onset_finds_it_whatever_came_before():
    one = outcome(at(30), at(4), at(12), planted=fault(onset=10))

    assert finding_alarm(one) == at(12)
    assert delay(one) == 2


def test_delay_counts_from_the_first_visible_step_and_is_never_negative():
    assert delay(outcome(at(14), planted=fault(onset=10, visible_from=13))) == 1
    assert delay(outcome(at(11), planted=fault(onset=10, visible_from=13))) == 0
    assert delay(outcome(at(11), planted=fault(onset=10, visible_from=None))) == 1


def test_every_alarm_on_a_clean_run_is_false_and_early_ones_are_counted_apart():
    rows = score(
        [
            outcome(at(3), at(50)),
            outcome(),
            outcome(at(2), at(10, "rollout"), planted=fault()),
        ]
    )

    assert len(rows) == 1
    assert rows[0].clean_steps == 160
    assert rows[0].false_alarms.value == pytest.approx(1000 * 2 / 160)
    assert rows[0].early_alarms == 1


def test_stage_shares_are_of_found_faults_only():
    rows = score(
        [
            outcome(at(10, "rollout", "advantage"), planted=fault(stage="rollout")),
            outcome(at(10, "advantage", "rollout"), planted=fault(stage="rollout")),
            outcome(at(10, "advantage", "config", "rollout"), planted=fault(stage="rollout")),
            outcome(planted=fault(stage="rollout")),
        ]
    )

    assert rows[0].recall.value == 0.75
    assert rows[0].stage_top1.value == pytest.approx(1 / 3)
    assert rows[0].stage_top2.value == pytest.approx(2 / 3)


def test_a_detector_that_names_no_stage_has_none():
    row = score([outcome(at(10), planted=fault())])[0]

    assert row.stage_top1 is None
    assert row_to_plain(row)["stage_top1"] is None


def test_there_is_a_row_for_each_regime_and_strength_that_occurs_in_fixed_order():
    rows = score(
        [
            outcome(planted=fault(strength=0.5), regime="free"),
            outcome(planted=fault(strength=5), regime="free"),
            outcome(planted=fault(strength=50)),
        ]
    )

    assert [(row.regime, row.strength) for row in rows] == [
        ("replayed", "strong"),
        ("free", "medium"),
        ("free", "invisible"),
    ]


def test_misses_push_the_quantiles_to_infinity():
    found = [outcome(at(10), planted=fault()) for _ in range(90)]
    missed = [outcome(planted=fault()) for _ in range(10)]

    row = score(found + missed)[0]

    assert row.delay_median.value == 0
    assert row.delay_p95.value == math.inf
    assert row.within == (0.9, 0.9, 0.9, 0.9)


def test_wilson_interval_of_a_textbook_case():
    estimate = share(81, 263)

    assert estimate.value == pytest.approx(0.308, abs=1e-3)
    assert (estimate.low, estimate.high) == pytest.approx((0.2553, 0.3662), abs=1e-4)


def test_perfect_and_empty_shares_stay_inside_zero_and_one():
    assert share(20, 20).high == 1
    assert 0.8 < share(20, 20).low < 0.9
    assert share(0, 20).low == 0
    assert math.isnan(share(0, 0).value)
    assert (share(0, 0).low, share(0, 0).high) == (0, 1)


@pytest.mark.parametrize(("events", "low", "high"), [(0, 0.0, 3.6889), (1, 0.0253, 5.5716), (10, 4.7954, 18.3904)])
def test_poisson_interval_is_the_exact_one(events, low, high):
    estimate = rate(events, 1000)

    assert estimate.value == events
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=2e-4)


def test_no_clean_steps_say_nothing():
    estimate = rate(0, 0)

    assert math.isnan(estimate.value)
    assert estimate.high == math.inf


@given(st.lists(st.floats(0, 100) | st.just(math.inf), min_size=1, max_size=200), st.sampled_from([0.5, 0.95]))
def test_a_quantile_lies_in_its_interval_and_in_the_sample(sample, level):
    ordered = sorted(sample)

    estimate = quantile(ordered, level)

    assert estimate.value in ordered
    assert estimate.low <= estimate.value <= estimate.high
    assert sum(one <= estimate.value for one in ordered) >= level * len(ordered)


@given(st.integers(0, 400), st.integers(1, 400))
def test_a_share_lies_in_its_interval(hits, of):
    estimate = share(min(hits, of), of)

    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


def test_the_plain_form_has_the_fields_of_the_command_line():
    plain = row_to_plain(score([outcome(at(10, "rollout"), planted=fault())])[0])

    assert {
        "regime",
        "strength",
        "faults",
        "clean_steps",
        "recall",
        "delay",
        "false_alarms",
        "stage_top1",
        "stage_top2",
    } <= set(plain)
    assert set(plain["delay"]) == {"median", "p95"}
    assert set(plain["recall"]) == {"value", "low", "high"}
