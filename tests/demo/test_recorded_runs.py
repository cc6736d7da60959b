# SPDX-License-Identifier: Apache-2.0
"""Metric files of real verl runs of the demo: step and stage of each planted fault, and silence on the healthy run.

Recorded with the demo's kit (V0, replayed rollouts, fp32 on a CPU), two recordings `a` and `b` with a reference and a twin
each; metrics of time and memory are left out.
"""

import json
from pathlib import Path

import pytest

from sentinel.cli import main

RUNS = Path(__file__).parents[1] / "data" / "demo_runs"
PLANTED = json.loads((RUNS / "planted.json").read_text())


def replayed(name, capsys):
    folder = (RUNS / name).parent
    baseline = ["--baseline", str(folder / "reference.jsonl"), "--twin", str(folder / "twin.jsonl")]
    code = main(["replay", str(RUNS / f"{name}.jsonl"), *baseline, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["a/healthy", "b/healthy"])
def test_a_healthy_replay_with_another_kernel_is_silent(name, capsys):
    code, answer = replayed(name, capsys)

    assert (code, answer["verdict"], answer["incidents"]) == (0, "healthy", [])
    assert answer["regime"] == "replayed"


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted["run"])
def test_a_planted_fault_is_found_at_its_step_in_its_stage(planted, capsys):
    code, answer = replayed(planted["run"], capsys)

    first = min(answer["incidents"], key=lambda incident: incident["opened_at_step"])
    assert code == 1
    assert (first["opened_at_step"], first["stage"]) == (planted["step"], planted["stage"])
    assert (first["kind"] == "non_finite") == (planted["kind"] == "nan_grad")


def test_every_kind_of_fault_and_every_stage_is_among_them():
    assert {planted["kind"] for planted in PLANTED} == {"scale", "bias", "mask", "mantissa", "stale", "nan_grad"}
    assert len({planted["stage"] for planted in PLANTED}) == 3
