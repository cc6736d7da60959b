# SPDX-License-Identifier: Apache-2.0
"""JSON lines beyond the zoo: glued objects, odd values, Sentinel's own recordings."""

from __future__ import annotations

import json
import math

import pytest

from tests.sources.logs import read


def logger(text: str):
    return read("verl_file_logger", text.encode())


def metrics(result):
    return [(r.attempt, r.step, dict(r.metrics)) for r in result.steps]


def test_two_records_on_one_line_are_both_read():
    result = logger('{"step":1,"data":{"a/b":0.5}}{"step":2,"data":{"a/b":0.25}}\n')

    assert metrics(result) == [(1, 1, {"a/b": 0.5}), (1, 2, {"a/b": 0.25})]
    assert result.warnings == ("glued_text",)


def test_foreign_text_behind_a_record_is_removed():
    result = logger('{"step":1,"data":{"a/b":0.5}} WARNING: slow disk\n')

    assert metrics(result) == [(1, 1, {"a/b": 0.5})]
    assert result.warnings == ("glued_text", "corrupt_line")


def test_a_whole_record_without_line_end_counts():
    result = logger('{"step":1,"data":{"a/b":0.5}}')

    assert metrics(result) == [(1, 1, {"a/b": 0.5})]
    assert result.warnings == ()


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("true", 1.0),
        ("false", 0.0),
        ("1e400", math.inf),
        ("-0.0", -0.0),
        ("12345678901234567890", 12345678901234567890.0),
        ('"0.5"', 0.5),
        ("1" * 400, math.inf),
    ],
)
def test_odd_numbers(value, want):
    assert metrics(logger(f'{{"step":1,"data":{{"a/b":{value}}}}}\n')) == [(1, 1, {"a/b": want})]


@pytest.mark.parametrize("value", ['"text"', "[1]", "{}", '"0.13%"', '""'])
def test_what_is_no_number_is_passed_over(value):
    assert metrics(logger(f'{{"step":1,"data":{{"a/b":{value},"c/d":1}}}}\n')) == [(1, 1, {"c/d": 1.0})]


@pytest.mark.parametrize("step", ['"7"', "7.0", "7"])
def test_spellings_of_a_step(step):
    assert logger(f'{{"step":{step},"data":{{"a/b":1}}}}\n').steps[0].step == 7


@pytest.mark.parametrize("step", ["null", "true", "1.5", '"x"', "1e300", "NaN", "[]"])
def test_what_is_no_step_is_a_foreign_record(step):
    result = logger(f'{{"step":{step},"data":{{"a/b":1}}}}\n{{"step":1,"data":{{"a/b":1}}}}\n')

    assert [r.step for r in result.steps] == [1]
    assert "foreign_record" in result.warnings


def test_the_global_step_is_taken_if_it_differs():
    result = logger('{"step":0,"data":{"a/b":1,"training/global_step":1}}\n')

    assert result.steps[0].step == 1
    assert result.warnings == ("step_mismatch",)


def test_a_recording_is_read_and_a_second_start_is_another_attempt():
    step = {"t": "step", "at": 1.0, "unreadable": []}
    lines = [
        {"t": "start", "at": 1.0, "facts": {"verl": "0.9.1"}, "config": None},
        step | {"step": 1, "values": {"actor/loss": 0.5, "actor/grad_norm": math.nan}},
        {"t": "receipt", "capture": "x", "receipt": {}, "at": 1.0},
        {"t": "start", "at": 2.0, "facts": {}, "config": None},
        step | {"step": 2, "values": {"actor/loss": 0.25}},
        {"t": "end", "at": 3.0, "finished": True},
    ]
    result = read("sentinel_recording", "".join(json.dumps(line) + "\n" for line in lines).encode())

    assert str(metrics(result)) == str(
        [(1, 1, {"actor/loss": 0.5, "actor/grad_norm": math.nan}), (2, 2, {"actor/loss": 0.25})]
    )
    assert result.warnings == ("restart_detected",)
