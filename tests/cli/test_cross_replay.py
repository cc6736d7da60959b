# SPDX-License-Identifier: Apache-2.0
"""The 2x2 of two trainers and two sources of rollouts, and what it says."""

import json

import pytest

from sentinel.cli import main
from tests.support.runs import a_grpo_run, changed, repeated, scaled


def write(path, run):
    path.write_text("".join(json.dumps({"step": r.step, "data": dict(r.metrics)}) + "\n" for r in run))
    return str(path)


@pytest.fixture
def files(tmp_path):
    gpu, npu = a_grpo_run(steps=12, seed=1), a_grpo_run(steps=12, seed=2)

    def make(change=lambda run: run):
        return {
            "--gpu-on-gpu": write(tmp_path / "gg", gpu),
            "--npu-on-gpu": write(tmp_path / "ng", change(repeated(gpu, seed=3))),
            "--gpu-on-npu": write(tmp_path / "gn", npu),
            "--npu-on-npu": write(tmp_path / "nn", change(repeated(npu, seed=4))),
        }

    return make


def cross(capsys, files):
    code = main(["rollout", "cross", *(word for pair in files.items() for word in pair), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_trainers_that_agree_on_both_texts_leave_inference(files, capsys):
    code, said = cross(capsys, files())
    assert (code, said["verdict"]) == (0, "inference")
    assert said["columns"]["gpu"]["trainers_agree"]
    assert set(said["cells"]) == {"gpu_on_gpu", "gpu_on_npu", "npu_on_gpu", "npu_on_npu"}


def test_trainers_that_part_on_both_texts_are_at_fault(files, capsys):
    broken = lambda run: changed(run, at=6, change=scaled("actor/grad_norm", 3.0))  # noqa: E731
    code, said = cross(capsys, files(broken))
    assert (code, said["verdict"]) == (1, "training")
    assert said["columns"]["gpu"]["stage"] == "actor_update"


def test_the_table_is_shown_to_people(files, capsys):
    main(["rollout", "cross", *(word for pair in files().items() for word in pair)])
    out = capsys.readouterr().out
    assert "NPU trainer, GPU's rollouts" in out
    assert "on GPU's rollouts the trainers agree" in out
