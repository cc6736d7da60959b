# SPDX-License-Identifier: Apache-2.0
"""Evidence that only all numbers of a module together carry, and what clean pairs teach about it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.core.triage import compare
from sentinel.core.triage.calibration import (
    Calibration,
    calibrate,
    calibration_from_plain,
    calibration_to_plain,
    together,
)
from sentinel.core.triage.noise import Noise, bins_of, count, kind_of
from sentinel.daemon.calibrations import shipped
from sentinel.records import LayerStat

UNIT = 2.0**-8
"""Of numbers between one half and one in bf16."""


def row(module, position, order, *, norm=0.8, high=0.75, low=-0.75, direction="forward", mean=0.01):
    name = f"Module.{module}.Linear.{'backward' if direction == 'backward' else 'forward'}.0"
    return LayerStat(name, module, direction, position, order, norm, mean, high, low, "bfloat16", (8, 24, 64))


def dump(*, moved="", by=0):
    """Twelve linear layers in a row; one of them with norm, max, min and mean a little further out."""
    rows = []
    for order in range(12):
        module = f"layers.{order}"
        far = by * UNIT if module == moved else 0.0
        rows.append(row(module, "input.0", order))
        mean = 0.01 + 1e-3 * far
        rows.append(row(module, "output.0", order, norm=0.8 + far, high=0.75 + far, low=-0.75 - far, mean=mean))
    return {"actor_update": {0: tuple(rows)}}


def told(target, calibration):
    return compare(target, dump(), target_step=1, golden_step=1, calibration=calibration)


def test_one_unit_of_all_four_statistics_together_is_named_although_each_alone_is_rounding():
    together_moved = dump(moved="layers.5", by=1)

    answer = told(together_moved, shipped())

    assert (answer.verdict, answer.first.module) == ("diverged", "layers.5")
    assert "together" in answer.first.why
    assert told(together_moved, Calibration()).verdict == "same"


def test_one_unit_of_one_extreme_is_nothing():
    stats = list(dump()["actor_update"][0])
    stats[11] = stats[11]._replace(max=0.75 + UNIT)

    assert told({"actor_update": {0: tuple(stats)}}, shipped()).verdict == "same"


def test_a_pair_that_is_known_to_be_clean_takes_the_evidence_away():
    noisy = dump(moved="layers.5", by=1)
    own = calibrate((noisy, dump()))

    assert told(noisy, together([own] * 3)).verdict == "same"
    assert told(noisy, shipped().merged(together([own] * 30))).verdict == "same"


def test_a_calibration_survives_being_stored():
    own = calibrate((dump(moved="layers.5", by=1), dump()))

    assert calibration_from_plain(calibration_to_plain(own)) == own


@pytest.mark.parametrize("plain", [
    None, [], {}, {"widened": 1}, {"widened": [], "noise": 3}, {"widened": [["output", "a", "b"]], "noise": []},
    {"widened": [], "noise": [["output", 0, 0, 0, 0, 0, 0, 99, 0, 1]]}, {"widened": [], "noise": [[1] * 10]},
    {"widened": [["output", "a", "b", float("nan")]], "noise": []},
])  # fmt: skip
def test_a_calibration_of_another_form_is_refused(plain):
    with pytest.raises((TypeError, ValueError)):
        calibration_from_plain(plain)


numbers = st.floats(-40, 40) | st.just(float("nan"))


@settings(max_examples=200)
@given(st.tuples(numbers, numbers, numbers), st.floats(0, 1) | st.just(float("nan")), st.floats(0, 0.01))
def test_a_row_is_the_rarer_the_further_it_deviates(grown, mean, came):
    kind = kind_of("output", 8, 4096, (came, came, 0.0))
    noise = count([(kind, (0, 0, 0, 0), 0)] * 900 + [(kind, (0, 1, 0, 1), 0)] * 90 + [(kind, (1, 1, 1, 2), 1)] * 10)
    bins, signs = bins_of(grown, mean, 8, came)
    further = (min(9, bins[0] + 1), bins[1], bins[2], bins[3])

    assert 0 <= noise.rarity((kind, bins, signs)) <= noise.rarity((kind, further, signs)) + 1e-9
    assert Noise({}).rarity((kind, bins, signs)) == 0.0


def test_what_came_in_explains_what_goes_out():
    grown = (2.0, 2.0, 2.0)

    assert bins_of(grown, 0.0, 8, 0.0) == ((2, 2, 2, 0), 1)
    assert bins_of(grown, 0.0, 8, 2 * UNIT) == ((0, 0, 0, 0), 0)
