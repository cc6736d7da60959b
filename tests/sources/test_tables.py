# SPDX-License-Identifier: Apache-2.0
"""Exports as tables: W&B, MLflow, TensorBoard, plain; and text with commas that is none."""

from __future__ import annotations

import pytest

from sentinel.errors import UnreadableLog
from sentinel.sources import Follower, read_file


def table(tmp_path, text):
    path = tmp_path / "export.csv"
    path.write_text(text)
    return read_file(path)


def steps(result):
    return [(r.attempt, r.step, dict(r.metrics)) for r in result.steps]


def test_a_plain_table_has_a_column_a_metric(tmp_path):
    result = table(tmp_path, "step,actor/loss,actor/grad_norm,note\n1,0.5,1.5,ok\n2,nan,,late\n")

    assert result.format == "csv"
    assert str(steps(result)) == str(
        [(1, 1, {"actor/loss": 0.5, "actor/grad_norm": 1.5}), (1, 2, {"actor/loss": float("nan")})]
    )


def test_an_export_of_wandb_loses_run_name_and_bounds(tmp_path):
    result = table(
        tmp_path,
        '"Step","run-7 - actor/loss","run-7 - actor/loss__MIN","run-7 - actor/loss__MAX"\n"1","0.5","0.5","0.5"\n"2","0.25","0.25","0.25"\n',
    )

    assert steps(result) == [(1, 1, {"actor/loss": 0.5}), (1, 2, {"actor/loss": 0.25})]


def test_an_export_of_several_runs_is_refused(tmp_path):
    with pytest.raises(UnreadableLog):
        table(tmp_path, '"Step","one - loss","two - loss"\n1,0.5,0.25\n')


def test_a_long_table_has_a_row_a_value(tmp_path):
    result = table(tmp_path, "run_id,metric,value,step,timestamp\nr,loss,0.5,1,9\nr,kl,0.1,1,9\nr,loss,0.25,2,9\n")

    assert steps(result) == [(1, 1, {"loss": 0.5, "kl": 0.1}), (1, 2, {"loss": 0.25})]


def test_a_long_table_that_is_sorted_by_metric_is_one_attempt(tmp_path):
    rows = "".join(f"{key},{step},{step / 4}\n" for key in ("a/b", "c/d") for step in range(1, 2000))
    result = table(tmp_path, "key,step,value\n" + rows)

    assert steps(result) == [(1, step, {"a/b": step / 4, "c/d": step / 4}) for step in range(1, 2000)]
    assert result.warnings == ()


@pytest.mark.parametrize("delimiter", ["\t", ";"])
def test_other_delimiters(tmp_path, delimiter):
    assert steps(table(tmp_path, f"step{delimiter}a/b\n1{delimiter}0.5\n")) == [(1, 1, {"a/b": 0.5})]


def test_a_row_that_does_not_fit_is_left_out_aloud(tmp_path):
    result = table(tmp_path, "step,a/b,c/d\n1,0.5,1\n2,0.5\nx,1,2\n3,0.5,1\n")

    assert [step for _, step, _ in steps(result)] == [1, 3]
    assert "corrupt_line" in result.warnings


def test_a_cut_row_is_left_out(tmp_path):
    result = table(tmp_path, "step,a/b\n1,0.5\n2,0.2")

    assert [step for _, step, _ in steps(result)] == [1]
    assert "truncated_line" in result.warnings


@pytest.mark.parametrize("text", ["name,age\nann,7\n", "a b, c d\n1, 2\n", "1,2,3\n4,5,6\n", "step\n1\n"])
def test_other_tables_are_refused(tmp_path, text):
    with pytest.raises(UnreadableLog):
        table(tmp_path, text)


def test_a_growing_table_is_followed(tmp_path):
    path = tmp_path / "export.csv"
    path.write_text("step,a/b\n1,0.5\n")
    follower = Follower(path)
    got = list(follower.poll(1.0).readings)
    with path.open("a") as stream:
        stream.write("2,0.25\n")
    got += follower.poll(2.0).readings

    assert [(r.step, dict(r.metrics)) for r in got] == [(1, {"a/b": 0.5}), (2, {"a/b": 0.25})]
