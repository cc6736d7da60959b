# SPDX-License-Identifier: Apache-2.0
"""verl consoles beyond the zoo: precision, steps, prose, damage, and what a live reader holds back."""

from __future__ import annotations

import math

import pytest

from sentinel.sources.reader import TextReader
from sentinel.sources.verl_console import VerlConsole
from sentinel.sources.verl_fields import end_of_list, parse_fields
from tests.sources.logs import read


def console(*lines: str, end: str = "\n"):
    return read("verl_console", (end.join(lines) + end).encode())


def test_three_decimals_are_a_resolution():
    assert console("step:1 - a/b:0.125 - a/c:17 - a/d:-0.000").resolution == 0.001
    assert console("step:1 - a/b:0.125 - a/c:0.5").resolution is None
    assert console("step:1 - a/b:0.125 - a/c:1e-06").resolution == 0.001
    assert console("step:1 - a/b:3 - a/c:17").resolution is None


def test_one_exact_value_ends_low_precision_for_good():
    result = console("step:1 - a/b:0.125", "step:2 - a/b:0.1251", "step:3 - a/b:0.125")

    assert result.resolution is None
    assert "low_precision" not in result.warnings


def test_a_step_of_numpy_is_a_step():
    result = console("step:0 - a/b:1.5 - training/global_step:np.int64(4)")

    assert [(r.step, dict(r.metrics)) for r in result.steps] == [(4, {"a/b": 1.5, "training/global_step": 4.0})]


@pytest.mark.parametrize("told", ["nan", "1.5", "inf"])
def test_a_global_step_that_is_no_whole_number_is_not_believed(told):
    assert console(f"step:3 - a/b:1.5 - training/global_step:{told}").steps[0].step == 3


@pytest.mark.parametrize(
    "line",
    [
        "step:8 - speed in km/h:30 of nanometres - total:90",
        "step:8 - km/h:30 on average",
        "step:8 - we multiply 3/4:2 and get 5",
        "step:8 - rate:30",
        "step:8",
        "step:8 - ",
        "In step:8 - a/b:1.0 - c/d:2.0 - e/f:3.0",
        "'critic/score/mean': 0.9",
    ],
)
def test_prose_is_no_step(line):
    assert console(line).steps == ()


def test_foreign_text_may_hold_separators():
    result = console("step:1 - a/b:1.5 - c/d:2.5 - e/f:3.5(TaskRunner pid=7) 2031-02-03 - root - INFO - g/h:9")

    assert dict(result.steps[0].metrics) == {"a/b": 1.5, "c/d": 2.5, "e/f": 3.5}
    assert result.warnings == ("glued_text",)


@pytest.mark.parametrize(
    "glued", ["Dumped generations to /data/1.jsonl", "Saved 3 files", "已保存到 /data/1", " [2031] x", "INFO 2"]
)
def test_a_word_right_behind_the_last_value_is_foreign(glued):
    result = console(f"step:1 - a/b:1.5 - c/d:2.5 - e/f:123.77891455290568{glued}")

    assert result.steps[0].metrics["e/f"] == 123.77891455290568
    assert result.warnings == ("glued_text",)


@pytest.mark.parametrize("damage", ["x", "x7", "ab8", "~", "Q"])
def test_a_letter_right_behind_the_last_value_is_damage(damage):
    result = console(f"step:1 - a/b:1.5 - c/d:2.5 - e/f:123.7789{damage}")

    assert "e/f" not in result.steps[0].metrics
    assert result.warnings == ("value_cut",)


def test_a_damaged_field_costs_only_itself():
    result = console("step:1 - a/b:1.5 - c/d:2.x5 - e/f:3.5 - g/h:4.5")

    assert dict(result.steps[0].metrics) == {"a/b": 1.5, "e/f": 3.5, "g/h": 4.5}
    assert result.warnings == ("value_cut",)


def test_a_number_alone_below_a_step_line_leaves_its_last_value_open():
    result = console("step:1 - a/b:1.5 - c/d:412.3", "75", "step:2 - a/b:1.5 - c/d:2.5")

    assert dict(result.steps[0].metrics) == {"a/b": 1.5}
    assert "value_cut" in result.warnings


def test_a_tail_without_its_step_is_said():
    assert console("5 - a/b:1.5 - c/d:2.5", "step:1 - a/b:1.5").warnings == ("orphan_fragment",)
    assert console("stXp:1 - a/b:1.5 - c/d:2.5", "step:1 - a/b:1.5").warnings == ("orphan_fragment",)


def test_bursts_of_complaints_are_counted_once_between_steps():
    reader = TextReader(VerlConsole)
    complaint = "(WorkerDict pid=1) WARN: grad_norm is not finite: nan\n" * 4
    reader.feed((complaint + "step:1 - a/b:1.0\n" + complaint).encode())

    assert [code for code, _ in reader.notes.drain()] == ["worker_non_finite"] * 2


def test_a_live_reader_gives_a_whole_line_out_and_holds_a_half_one():
    reader = TextReader(VerlConsole)

    assert reader.feed(b"step:1 - a/b:1.5\n") == []
    assert [r.step for r in reader.settle()] == [1]
    assert reader.feed(b"step:2 - a/b:1.5 - c/d:412.\n") == []
    assert reader.settle() == []  # no number ends in a point: it goes on
    assert [dict(r.metrics) for r in reader.feed(b"375 - e/f:2\nx\n")] == [{"a/b": 1.5, "c/d": 412.375, "e/f": 2.0}]


def test_in_a_wrapped_log_a_live_reader_waits_for_the_next_line():
    reader = TextReader(VerlConsole)
    reader.feed(b"step:1 - a/b:1.5 - c/d:412.\n375 - e/f:2\n")

    assert reader.settle() == []
    assert len(reader.feed(b"next\n")) == 1


def test_quoted_keys_belong_to_the_step_line_of_their_process_only():
    result = console(
        "(A pid=1) step=3 - training/global_step:3", "(B pid=2) 'x/y': 1.0", "(A pid=1) 'a/b': 2.0", "'c/d': 3.0"
    )

    assert dict(result.steps[0].metrics) == {"training/global_step": 3.0, "a/b": 2.0}


@pytest.mark.parametrize(
    "value", ["0.1", "1e-323", "1.7976931348623157e+308", "5e-324", "123456789012345678", "-0.0", "9007199254740993"]
)
def test_the_quick_way_reads_numbers_as_python_does(value):
    got = parse_fields(f"a/b:{value} - c/d:1").metrics["a/b"]

    assert got == float(value)
    assert math.copysign(1, got) == math.copysign(1, float(value))


@pytest.mark.parametrize(
    "text", ['a"b/c:1', "a\\b/c:1", "a/b:1e400", "a/b:1_0", "a/b:null", "a/b:true", ":1", "a/b:0x1"]
)
def test_the_quick_way_takes_only_what_it_should(text):
    fields = parse_fields(text)

    assert all(math.isfinite(v) or text.endswith("e400") for v in fields.metrics.values())
    assert fields.metrics in ({}, {text.rpartition(":")[0]: 1.0}, {"a/b": math.inf})


def test_a_key_may_end_in_step():
    assert end_of_list("timing_s/step:51 - perf/time_per_step:12 - a/b:1") == len(
        "timing_s/step:51 - perf/time_per_step:12 - a/b:1"
    )
    assert end_of_list("a/b:0.5step:3 - c/d:1") == 7


def test_keys_of_validation_may_hold_blanks():
    result = console("step:1 - val-core/my data/acc/mean@1:0.5 - val-aux/x/y:np.float64(1.5)")

    assert result.steps[0].kind == "val"
    assert dict(result.steps[0].metrics) == {"val-core/my data/acc/mean@1": 0.5, "val-aux/x/y": 1.5}


@pytest.mark.parametrize("value", [1, 2, 7])
@pytest.mark.parametrize("key", ["perf/time_per_step", "timing_s/step", "val-core/x/per_step"])
def test_a_key_that_was_wrapped_before_its_step_is_no_step_of_its_own(key, value):
    """The next line then reads like the next step: `step:2 - `."""
    head = f"step:1 - actor/entropy:0.5 - {key.removesuffix('step')}"

    found = console(head, f"step:{value} - critic/score/mean:0.25", "step:2 - actor/entropy:0.4 - a/b:1")

    assert {reading.step: dict(reading.metrics) for reading in found.steps} == {
        1: {"actor/entropy": 0.5, key: value, "critic/score/mean": 0.25},
        2: {"actor/entropy": 0.4, "a/b": 1},
    }
