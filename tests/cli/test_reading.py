# SPDX-License-Identifier: Apache-2.0
"""`sentinel read`: forms and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sentinel.cli import main

ZOO = Path(__file__).parent.parent / "data" / "formats"


def run(capsys, *args: str):
    code = main(["read", *args])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_the_document_has_steps_and_warnings_and_words_for_what_is_not_finite(capsys):
    code, out, err = run(capsys, str(ZOO / "verl_console" / "number_spellings.log"), "--json")
    document = json.loads(out)

    assert (code, err) == (0, "")
    assert document["format"] == "verl_console"
    assert document["steps"][1]["metrics"]["actor/ppo_kl"] == "-inf"
    assert document["steps"][0]["kind"] == "train"
    assert document["warnings"] == []


def test_people_see_the_last_value_of_each_metric_and_the_warnings(capsys):
    code, out, _ = run(capsys, str(ZOO / "verl_console" / "key_vanishes.log"))

    assert code == 0
    assert "verl_console: 5 steps, 1 to 5" in out
    assert "warning: key_vanished" in out
    assert next(line for line in out.splitlines() if "actor/kl_loss" in line).split()[1] == "3"


def test_a_run_without_a_step_is_not_healthy(capsys):
    code, out, _ = run(capsys, str(ZOO / "verl_console" / "no_step_line_yet.log"))

    assert code == 1
    assert "no metrics yet" in out


@pytest.mark.parametrize("name", ["other/binary.log", "other/empty.log", "other/not_a_log.txt", "nothing"])
def test_what_is_refused_is_one_line_and_exit_code_2(capsys, name):
    code, out, err = run(capsys, str(ZOO / name), "--json")

    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert name in err
