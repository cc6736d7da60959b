# SPDX-License-Identifier: Apache-2.0
"""`sentinel demo` refuses in one line, draws what it was asked to draw, and prints the form of the contract."""

import io
import json
import os
import subprocess
import sys
from argparse import Namespace

import pytest
from rich.console import Console

from sentinel.cli import main
from sentinel.cli.demo import Terminal, print_result, show, wanted_faults
from sentinel.demo.course import Finished
from sentinel.demo.kit.faults import Fault
from sentinel.demo.places import claim
from sentinel.demo.scenarios import HEALTHY, Scenario, judge

FAULT = Fault(stage="actor_update", module="model.norm", kind="scale", size=1.5, step=4)


@pytest.mark.timeout(60)
def test_without_verl_the_demo_ends_with_one_line(tmp_path):
    """The interpreter is told to find no verl; nothing is made and nothing started."""
    hide = "import sys; sys.modules['verl'] = None; from importlib import util; real = util.find_spec; "
    hide += "util.find_spec = lambda name, *a: None if name == 'verl' else real(name, *a); "
    code = hide + "from sentinel.cli import main; sys.exit(main(['demo', '--out', sys.argv[1]]))"

    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "demo")],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": os.getcwd()},
    )  # fmt: skip

    assert ended.returncode == 2
    assert "verl is not installed" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--fault", "foo"], "not of the form"),
        (["--random", "-1"], "cannot be negative"),
        (["--random", "many"], "invalid int value"),
    ],
)
def test_a_bad_plan_is_one_line_and_nothing_is_made(words, says, tmp_path, capsys):
    code = main(["demo", "--out", str(tmp_path / "demo"), *words])

    said = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert len(said) == 1
    assert says in said[0]
    assert not (tmp_path / "demo").exists()


def test_faults_that_are_asked_for_come_before_those_that_are_drawn():
    faults = wanted_faults(["actor_update:model.norm:scale=1.5@4"], 2, 7)

    assert faults[0] == FAULT
    assert len(faults) == 3
    assert faults[1:] == wanted_faults([], 2, 7)
    assert faults[1:] != wanted_faults([], 2, 8)


def finished(tmp_path, outcomes):
    return Finished(outcomes=outcomes, places=claim(tmp_path / "demo"), endpoint=None, seconds=1.0)


def test_the_json_has_the_form_of_the_contract(capsys, tmp_path):
    show(Namespace(json=True), finished(tmp_path, (judge(HEALTHY, []),)))

    (scenario,) = json.loads(capsys.readouterr().out)["scenarios"]
    assert {"name", "planted", "found", "ok", "report"} <= scenario.keys()


def test_people_see_planted_beside_found_and_where_to_look_on(tmp_path):
    out = Console(file=io.StringIO(), width=160)
    missed = judge(Scenario(name="run-1", title="planted", fault=FAULT), [])

    print_result(out, finished(tmp_path, (judge(HEALTHY, []), missed)))

    text = out.file.getvalue()
    assert "scale 1.5 from step 4" in text
    assert "WRONG" in text
    assert "nothing was reported" in text
    assert "sentinel up --config" in text


def test_progress_is_told_in_lines_where_there_is_no_terminal():
    out = Console(file=io.StringIO(), width=160)
    audience = Terminal(out)

    for step in range(4):
        audience.phase("run-b", "training", step, 8)
    audience.phase("run-b", "asking Sentinel", 8, 8)
    audience.outcome(judge(HEALTHY, []))
    audience.close()

    lines = out.file.getvalue().splitlines()
    assert lines[0] == "run-b: training, step 0 of 8"
    assert "run-b: asking Sentinel, step 8 of 8" in lines
    assert len(lines) == 3, "a line for every step would be noise"


def test_a_terminal_gets_bars():
    out = Console(file=io.StringIO(), width=160, force_terminal=True)
    audience = Terminal(out)

    audience.phase("run-a", "training", 3, 8)
    audience.outcome(judge(HEALTHY, []))
    audience.close()

    assert "run-a" in out.file.getvalue()
