# SPDX-License-Identifier: Apache-2.0
"""What a capture will cost: from what captures cost before, from shapes, from the model's size, or not known."""

from dataclasses import replace

import pytest

from sentinel.core.capture.cost import Bound, Cost, ModelSize, of_today, over_budget, predicted, spent
from sentinel.records import Capture, CaptureOrder, CaptureReceipt

ORDER = CaptureOrder("c1", "r", "i", 5, 6, ("actor_update",), "L0", None, "")
RECEIPT = CaptureReceipt(5, 6, ("actor_update",), (0,), ("/d",), 2000, 4.0, "complete")
DONE = Capture("c1", "r", "i", "done", ORDER, RECEIPT)
ROOM = Bound(over="the run", steps=10, bytes=10_000, seconds=100.0)


def test_the_same_again_costs_what_it_cost():
    cost = predicted(ORDER, [DONE], None)

    assert (cost.steps, cost.bytes, cost.seconds) == (2, 2000, 4.0)
    assert cost.because == "from 1 earlier capture"


def test_stages_and_steps_multiply_and_a_deeper_level_costs_more():
    twice = predicted(replace(ORDER, stages=("actor_update", "ref_compute_log_prob")), [DONE], None)
    mix = predicted(replace(ORDER, level="mix"), [DONE], None)
    narrow = predicted(replace(ORDER, level="mix", modules=("m",)), [DONE], None)

    assert (twice.bytes, twice.seconds) == (4000, 8.0)
    assert mix.bytes > 5 * 2000
    assert mix.seconds > 5 * 4.0
    assert narrow.bytes < 2000


def test_the_dearest_of_the_earlier_ones_counts():
    dear = replace(DONE, id="c2", receipt=replace(RECEIPT, bytes=9000))

    assert predicted(ORDER, [DONE, dear], None).bytes == 9000


def test_captures_that_dumped_nothing_say_nothing():
    failed = replace(DONE, receipt=replace(RECEIPT, paths=(), bytes=0, seconds=0.0))

    assert predicted(ORDER, [failed], None) is None


def test_a_first_capture_is_priced_by_the_models_size():
    small = predicted(ORDER, [], ModelSize(parameters=5e8, tokens=1e4))
    large = predicted(ORDER, [], ModelSize(parameters=7e10, tokens=1e4))

    assert small.bytes == pytest.approx(2 * 1.6e6)
    assert small.bytes < large.bytes < 5 * small.bytes
    assert "5e+08 parameters" in small.because


def test_tensors_are_priced_by_their_shapes_where_those_are_known():
    tensors = replace(ORDER, level="mix", task="tensor", modules=("m",))

    assert predicted(tensors, [DONE], None, tensor_bytes=7_000_000).bytes == 14_000_000


def test_where_nothing_is_known_nothing_is_foretold_and_only_what_is_spent_counts():
    assert predicted(ORDER, [], None) is None
    assert over_budget(Cost(steps=0, bytes=0, seconds=0.0), None, ROOM) == ""
    assert "used up" in over_budget(Cost(steps=10, bytes=0, seconds=0.0), None, ROOM)


@pytest.mark.parametrize(("more", "why"), [(8000, ""), (8001, "has 8e+03 left")])
def test_what_fits_exactly_fits(more, why):
    used, cost = Cost(steps=2, bytes=2000, seconds=4.0), Cost(steps=1, bytes=more, seconds=1.0)

    assert why in over_budget(used, cost, ROOM)
    assert bool(over_budget(used, cost, ROOM)) == bool(why)


def test_a_day_ends():
    captures = [DONE, replace(DONE, id="c2"), replace(DONE, id="c3")]

    today = of_today(captures, {"c1": 0.0, "c2": 100_000.0}, now=100_001.0)

    assert [capture.id for capture in today] == ["c2"]
    assert spent(today) == Cost(steps=2, bytes=2000, seconds=4.0)


@pytest.mark.parametrize("wild", [{"bytes": 10**40}, {"seconds": float("nan")}, {"first_step": 9, "last_step": 1}])
def test_receipts_that_make_no_sense_break_nothing(wild):
    predicted(ORDER, [replace(DONE, receipt=replace(RECEIPT, **wild))], None)
