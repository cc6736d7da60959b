# SPDX-License-Identifier: Apache-2.0
"""Everybody can try Sentinel against a real GPU baseline: what the example's page shows works, and says what it says there."""

import json
import re
import shutil
from pathlib import Path

import pytest

from sentinel.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "h200"
BUNDLE = EXAMPLE / "tiny-grpo-fp32.sentinel"
MEGABYTES = 7


def told(capsys, *words):
    code = main([*map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def spoilt(folder, key, first, factor):
    """The healthy run with one metric scaled from a step on."""
    path = folder / "spoilt.jsonl"
    rows = [json.loads(line) for line in (EXAMPLE / "healthy.jsonl").read_text().splitlines()]
    for row in rows:
        if row["step"] >= first:
            row["data"][key] *= factor
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_example_is_small():
    assert sum(path.stat().st_size for path in EXAMPLE.rglob("*") if path.is_file()) < MEGABYTES << 20


@pytest.mark.parametrize(
    ("name", "seeds", "stages"), [("tiny-grpo-fp32", 4, 3), ("tiny-grpo-bf16", 3, 3), ("tiny-gae-fp32", 1, 5)]
)
def test_every_bundle_holds_seeds_twins_golden_dumps_of_every_stage_and_rollouts(capsys, name, seeds, stages):
    code, shown = told(capsys, "baseline", "show", EXAMPLE / f"{name}.sentinel")

    assert code == 0
    assert len(shown["runs"]) == seeds + 2
    assert len({dump["stage"] for dump in shown["dumps"]}) == stages
    assert {dump["step"] for dump in shown["dumps"]} == set(range(2, 25))
    assert len(shown["rollout_steps"]) == max(run["steps"] for run in shown["runs"])
    assert shown["fingerprint"]["facts"]["process"]["hardware"]["gpu_names"] == ["NVIDIA H200"]


def test_another_seed_of_the_gpu_is_healthy_and_a_broken_one_is_not(capsys, tmp_path):
    code, healthy = told(capsys, "replay", EXAMPLE / "healthy.jsonl", "--baseline", BUNDLE)
    assert (code, healthy["verdict"], healthy["regime"]) == (0, "healthy", "free")

    code, wrong = told(capsys, "replay", spoilt(tmp_path, "actor/grad_norm", 40, 30.0), "--baseline", BUNDLE)
    assert (code, wrong["verdict"]) == (1, "diverged")
    assert wrong["incidents"][0]["opened_at_step"] >= 40


def test_the_weights_beside_it_are_those_of_the_gpu(capsys, tmp_path):
    _, same = told(capsys, "preflight", "--baseline", BUNDLE, "--model", EXAMPLE / "assets" / "model")
    shutil.copytree(EXAMPLE / "assets" / "model", tmp_path / "model")
    with (tmp_path / "model" / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\1\2\3\4")
    _, other = told(capsys, "preflight", "--baseline", BUNDLE, "--model", tmp_path / "model")

    weights = [{check["id"]: check["status"] for check in said["checks"]}["weights.files"] for said in (same, other)]
    assert weights == ["pass", "fail"]


@pytest.mark.parametrize("stage", ["actor_update", "ref_compute_log_prob"])
def test_a_healthy_dump_of_a_cpu_agrees_with_the_gpus(capsys, stage):
    code, triage = told(capsys, "triage", EXAMPLE / "cpu" / "step_4" / stage, EXAMPLE / "golden" / "step_4" / stage)

    assert (code, triage["verdict"]) == (0, "same")
    assert triage["comparable"]["rows"] is True
    assert triage["compared"] > 100


def test_a_module_that_computes_two_percent_too_much_is_named(capsys, tmp_path):
    target = tmp_path / "ref_compute_log_prob"
    shutil.copytree(EXAMPLE / "cpu" / "step_4" / "ref_compute_log_prob", target)
    (dump,) = target.rglob("dump.json")
    plain = json.loads(dump.read_text())
    (name,) = [key for key in plain["data"] if ".layers.1.mlp.down_proj." in key]
    for tensor in plain["data"][name]["output"]:
        tensor.update({key: tensor[key] * 1.02 for key in ("Max", "Min", "Mean", "Norm")})
    dump.write_text(json.dumps(plain))

    code, triage = told(capsys, "triage", target, EXAMPLE / "golden" / "step_4" / "ref_compute_log_prob")

    assert (code, triage["verdict"]) == (1, "diverged")
    assert triage["first"]["module"] == "model.layers.1.mlp.down_proj"


def test_no_path_of_the_machines_that_made_it_is_left():
    for path in EXAMPLE.rglob("*"):
        if path.is_file() and path.suffix in {".json", ".jsonl", ".md"}:
            assert not re.search(r"/(?:home|work)/", path.read_text(encoding="utf-8")), path


def test_a_finished_log_can_be_attached_without_a_cluster(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    healthy = ("attach", str(EXAMPLE / "healthy.jsonl"), "--run", "try", "--baseline", str(BUNDLE), "--local")
    assert main(list(healthy)) == 0

    broken = spoilt(tmp_path, "actor/grad_norm", 40, 30.0)
    assert main(["attach", str(broken), "--run", "wrong", "--baseline", str(BUNDLE), "--local"]) == 1
    capsys.readouterr()
