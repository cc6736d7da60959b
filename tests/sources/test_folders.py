# SPDX-License-Identifier: Apache-2.0
"""Folders of tracked runs: the best file is read, the next one where it tells nothing."""

from __future__ import annotations

import json

import pytest

from sentinel.errors import UnreadableLog
from sentinel.sources import read_file

STEP = "step:1 - actor/loss:0.5 - actor/grad_norm:1.5\n"


def test_the_log_of_a_wandb_folder_is_read(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "output.log").write_text(STEP)
    (tmp_path / "files" / "wandb-summary.json").write_text('{"_step": 9, "actor/loss": 0.1}')

    assert read_file(tmp_path).format == "verl_console"


def test_a_log_without_metrics_gives_way_to_the_summary(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "output.log").write_text("nothing of interest\n")
    (tmp_path / "files" / "wandb-summary.json").write_text('{"_step": 9, "actor/loss": 0.1}')

    assert read_file(tmp_path).format == "wandb_summary"


def test_a_checkpoint_of_the_trainer_is_read(tmp_path):
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": [{"step": 1, "loss": 0.5}]}))

    assert read_file(tmp_path).format == "hf_trainer_state"


def test_an_mlflow_run_is_read(tmp_path):
    (tmp_path / "meta.yaml").write_text("run_id: x\n")
    (tmp_path / "metrics" / "actor").mkdir(parents=True)
    (tmp_path / "metrics" / "actor" / "loss").write_text(
        "1700000000000 0.5 1\n1700000000001 nan 2\n1700000000002 0.25 2\n"
    )
    (tmp_path / "metrics" / "val-core_at_1").write_text("1700000000000 1.0 2\nbroken\n")

    result = read_file(tmp_path)

    assert result.format == "mlflow"
    assert [(r.step, dict(r.metrics)) for r in result.steps] == [
        (1, {"actor/loss": 0.5}),
        (2, {"actor/loss": 0.25, "val-core_at_1": 1.0}),
    ]


def test_a_folder_of_other_things_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")

    with pytest.raises(UnreadableLog, match="without event files"):
        read_file(tmp_path)
