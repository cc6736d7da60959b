# SPDX-License-Identifier: Apache-2.0
"""Record, replay and verdict on real verl, the default V1 trainer, through `sentinel stub`. V0: tests/live/test_demo.py."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("verl", reason="a real verl run needs verl")
pytest.importorskip("msprobe", reason="captures are msprobe's")

from sentinel.cli import main
from sentinel.demo.kit.faults import Fault
from sentinel.demo.kit.rollout_faults import VARIABLE
from sentinel.demo.runs import RunSettings, launch

pytestmark = pytest.mark.live

STEPS = 4
FAULT = Fault(stage="actor_compute_log_prob", module="model.layers.1.self_attn.q_proj", kind="scale", size=1.1, step=3)


def said(capsys, *words):
    code = main([*map(str, words), "--json"])
    out = capsys.readouterr()
    assert code in {0, 1}, out.err
    return code, json.loads(out.out)


def script(run, path):
    """The launch script of a run, as a user has it."""
    words = (run.folder / "command.txt").read_text().splitlines()
    path.write_text("python -m verl.trainer.main_ppo \\\n" + " \\\n".join(f"  {word!r}" for word in words[3:]) + "\n")
    return path


@pytest.mark.timeout(1200)
def test_v1_records_replays_and_the_answer_is_read_off(tmp_path, capsys, assets):
    # A weight that moves fast, so that an engine that keeps the old ones is seen within a step.
    plain = RunSettings(name="gpu", trainer="v1", steps=STEPS, learning_rate=1e-3)
    code, plan = said(
        capsys, "stub", "record", "--trainer", "v1", "--steps", f"1-{STEPS}", "--dump-dir", tmp_path / "dump"
    )
    assert code == 0
    gpu = launch(replace(plain, overrides=plan["overrides"]), tmp_path / "gpu", assets)

    # The other side has another name: without laying the recording out under it, verl would generate in silence.
    other = ("trainer.experiment_name=npu",)
    sketch = launch(
        replace(plain, name="generates", overrides=other, environment={VARIABLE: "unsynchronised=3"}),
        tmp_path / "own",
        assets,
    )
    code, plan = said(
        capsys, "stub", "replay", "--trainer", "v1", "--launch", script(sketch, tmp_path / "npu.sh"),
        "--from", tmp_path / "dump", "--into", tmp_path / "into",
    )  # fmt: skip
    assert (code, plan["problems"]) == (0, [])
    assert plan["recording"]["layout"] == "v1"
    npu = replace(plain, name="npu", overrides=(*other, *plan["overrides"]))
    healthy = launch(npu, tmp_path / "npu", assets)
    broken = launch(replace(npu, name="broken", fault=FAULT), tmp_path / "broken", assets)

    def judged(run):
        return said(capsys, "replay", run.metrics_file, "--baseline", gpu.metrics_file)[1]

    assert "Injected" in healthy.log.read_text(errors="replace")
    assert judged(healthy)["verdict"] == "healthy"
    assert judged(healthy)["decision"]["side"] == "inference"
    assert (judged(broken)["decision"]["side"], judged(broken)["decision"]["stage"]) == ("training", FAULT.stage)
    assert judged(sketch)["incidents"][0]["stage"] == "rollout"
    _, text = said(capsys, "rollout", "check", healthy.rollout_data, "--against", gpu.rollout_data)
    assert text["verdict"] == "healthy"
    assert text["against"]["identical_rows"] == text["against"]["rows"]
