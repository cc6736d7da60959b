# SPDX-License-Identifier: Apache-2.0
"""Small grammars beyond the zoo: units, cuts, tails; Megatron's wraps and fields."""

from __future__ import annotations

import pytest

from tests.sources.logs import read


def metrics(format_name: str, text: str):
    result = read(format_name, text.encode())
    return [dict(r.metrics) for r in result.steps], set(result.warnings)


@pytest.mark.parametrize(
    ("format_name", "text", "want", "codes"),
    [
        (
            "torchtitan",
            "step:  1  loss: 0.5  memory: 28.50GiB(30.02%)  mfu: 3.95%\n",
            {"loss": 0.5, "memory": 28.5, "mfu": 3.95},
            {"unit_suffix"},
        ),
        ("torchtitan", "step:  1  loss: 0.5  tps: 1,2", {"loss": 0.5}, {"truncated_line", "value_cut"}),
        ("torchtitan", "step:  1  loss: 0.5  grad_norm: oops  tps: 3\n", {"loss": 0.5, "tps": 3.0}, {"value_cut"}),
        (
            "nanotron",
            "iteration: 7 / 90 | a: 1.5T | b: 2K | c: -3M\n",
            {"a": 1.5e12, "b": 2e3, "c": -3e6},
            {"unit_suffix"},
        ),
        ("nanotron", "iteration: 7 / 90 | a: 1.5 | b: 2", {"a": 1.5}, {"truncated_line", "value_cut"}),
        ("nanotron", "iteration: 7 / 90 | a: 1.5 | b", {"a": 1.5}, {"truncated_line"}),
        ("nanotron", "iteration: 7 / 90 | a: 1.5.2 | b: 2\n", {"b": 2.0}, {"value_cut"}),
        (
            "mmengine",
            "Iter(train) [ 7/90]  loss: 0.5  eta: 1 day, 2:39:58  lr: 1e-05\n",
            {"loss": 0.5, "lr": 1e-5},
            set(),
        ),
        ("mmengine", "Iter(train) [ 7/90]  loss: 0.5  lr: 1e", {"loss": 0.5}, {"truncated_line", "value_cut"}),
        (
            "slime",
            "step 7: {'train/loss': 0.5, 'train/kl': nan}\n",
            {"train/loss": 0.5, "train/kl": float("nan")},
            set(),
        ),
        ("slime", "step 7: {'train/loss': 0.5x}\n", None, {"corrupt_line", "no_metrics_yet"} - {"no_metrics_yet"}),
        ("slime", "step 7: {'train/loss': 0.5", None, {"truncated_line"}),
        (
            "megatron",
            " iteration 7/ 90 | lm loss: 1.5E+00 | grad norm: 0.5 |\n",
            {"lm loss": 1.5, "grad norm": 0.5},
            set(),
        ),
        (
            "megatron",
            " iteration 7/ 90 | lm loss: 1.5E+00 | grad norm: 0.",
            {"lm loss": 1.5},
            {"truncated_line", "value_cut"},
        ),
        ("megatron", " iteration 7/ 90 | lm loss: 1.5E+00 | grad norm: 0.\nnoise\n", {"lm loss": 1.5}, {"value_cut"}),
        ("megatron", " iteration 7/ 90 | lm loss: 1.5/1.25 | mem: 1GB/2GB/3GB |\n", {"lm loss": 1.5}, {"value_pair"}),
        ("megatron", " iteration 7/ 90 | lm loss: 1.\n5E+00 | a: 2 |\n", {"lm loss": 1.5, "a": 2.0}, {"wrapped_line"}),
        ("megatron", " iteration 7/ 90 | lm\nloss: 1.5E+00 | a: 2 |\n", {"lm loss": 1.5, "a": 2.0}, {"wrapped_line"}),
        ("megatron", " iteration 7/ 90 | a: 1 |\n b: 2 | c: 3 |\n", {"a": 1.0, "b": 2.0, "c": 3.0}, {"wrapped_line"}),
        ("megatron", " iteration 7/ 90 | a: 1 |\ntime (ms) | forward: 71.5 | b: 9.5\n", {"a": 1.0}, set()),
    ],
)
def test_a_record(format_name, text, want, codes):
    got, warned = metrics(format_name, text)

    assert str(got) == str([] if want is None else [want])
    assert warned - {"no_metrics_yet"} == codes


def test_a_record_that_does_not_begin_its_line_is_left_out_aloud():
    for format_name, text in [
        ("megatron", "x iteration 7/ 90 | a: 1 |\n"),
        ("nanotron", "x iteration: 7 / 90 | a: 1\n"),
        ("mmengine", "x Iter(train) [ 7/90]  loss: 0.5\n"),
        ("slime", "x{ step 7: {'train/loss': 0.5}\n"),
    ]:
        got, warned = metrics(format_name, text)
        assert (got, "rejected_line" in warned) == ([], True), format_name


def test_a_key_that_was_seen_decides_how_a_wrap_is_joined():
    lines = [" iteration 1/ 90 | grad norm: 0.5 | a: 1 |", " iteration 2/ 90 | grad no", "rm: 0.25 | a: 1 |"]
    got, _ = metrics("megatron", "\n".join(lines) + "\n")

    assert [m["grad norm"] for m in got] == [0.5, 0.25]


def test_a_validation_line_of_an_iteration_is_merged_under_a_prefix():
    text = (
        " iteration 7/ 90 | lm loss: 1.5 |\n validation loss at iteration 7 on validation set | lm loss value: 2.5 |\n"
    )

    assert metrics("megatron", text)[0] == [{"lm loss": 1.5, "validation/lm loss value": 2.5}]
