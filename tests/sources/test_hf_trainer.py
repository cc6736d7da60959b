# SPDX-License-Identifier: Apache-2.0
"""Consoles of the Hugging Face family: steps and attempts that the records do not tell, dicts that are none."""

from __future__ import annotations

import pytest

from sentinel.sources.values import python_dict
from tests.sources.logs import read


def console(*lines: str):
    return read("hf_trainer", ("\n".join(lines) + "\n").encode())


def steps(result):
    return [(r.attempt, r.step) for r in result.steps]


def record(loss: float, **more: object) -> str:
    return str({"loss": loss, "grad_norm": 0.5, **more})


def bar(count: int, total: int) -> str:
    return f"  1%|          | {count}/{total} [00:21<11:01,  7.01s/it]"


def test_the_total_of_the_first_bar_is_the_training_one_if_none_is_announced():
    result = console(bar(1, 60), record(1.0), bar(3, 9), bar(2, 60), bar(9, 9), record(2.0))

    assert steps(result) == [(1, 1), (1, 2)]
    assert result.warnings == ("step_from_bar",)


def test_a_step_field_goes_before_the_bar_and_is_no_metric():
    result = console(bar(9, 60), record(1.0, step=4))

    assert steps(result) == [(1, 4)]
    assert "step" not in result.steps[0].metrics
    assert result.warnings == ()


def test_a_bar_that_falls_back_is_a_restart():
    assert steps(console(bar(5, 9), record(1.0), bar(1, 9), record(2.0))) == [(1, 5), (2, 1)]


def test_falling_tokens_begin_an_attempt_without_steps():
    result = console(record(1.0, num_tokens=10.0), record(1.0, num_tokens=20.0), record(1.0, num_tokens=5.0))

    assert steps(result) == [(1, 1), (1, 2), (2, 1)]


def test_an_evaluation_after_the_closing_record_belongs_to_its_attempt():
    result = console(record(1.0), "{'train_runtime': 9.5, 'train_loss': 0.5}", "{'eval_loss': 0.25}")

    assert steps(result) == [(1, 1)]
    assert result.steps[0].metrics["eval_loss"] == 0.25
    assert result.summary == {"train_runtime": 9.5, "train_loss": 0.5}


def test_a_record_without_its_step_among_others_that_tell_it_is_left_out_aloud():
    result = console(record(1.0, step=400), record(2.0, stp=401), record(3.0, step=402))

    assert steps(result) == [(1, 400), (1, 402)]
    assert "rejected_line" in result.warnings


@pytest.mark.parametrize(
    "line",
    [
        "{'clip_ratio': 0.2, 'grad_clip': 1.0}",
        "{'eos_token_id': 7, 'do_sample': False}",
        "the 'loss': 0.5 is only an example",
        "('loss', 0.5)",
        "{'loss': [0.5, 0.25]}",
        "{'loss': 'good'}",
    ],
)
def test_other_dicts_are_no_records(line):
    assert console(line).steps == ()


def test_nested_values_and_texts_are_passed_over():
    result = console(
        "{'loss': 0.5, 'sizes': [1, 2], 'where': {'a': 1}, 'note': \"it's fine\", 'best': None, 'grad_norm': 1.0}"
    )

    assert dict(result.steps[0].metrics) == {"loss": 0.5, "grad_norm": 1.0}


def test_a_record_at_4096_characters_without_its_end_is_cut():
    start = "{'loss': 0.5, 'grad_norm': 1.0, 'text': '"
    result = console(start + "x" * (4096 - len(start)), record(1.0))

    assert len(result.steps) == 1
    assert "value_cut" in result.warnings


def test_a_wrapped_record_is_joined():
    whole = record(0.5, learning_rate=1e-5, epoch=0.25)
    result = console(whole[:37], whole[37:], record(0.25))

    assert [r.metrics["loss"] for r in result.steps] == [0.5, 0.25]
    assert "wrapped_line" in result.warnings


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("'a': 1, 'b': nan", ["a", "b"]),
        ("'a': np.float64(0.5)", ["a"]),
        ("'a': 1,", ["a"]),
        ("'a': 1 'b': 2", None),
        ("'a': 1x", None),
        ("a: 1", None),
        ("", []),
    ],
)
def test_only_whole_dicts_are_dicts(text, found):
    got = python_dict(text)

    assert (None if got is None else list(got)) == found
