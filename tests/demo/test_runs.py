# SPDX-License-Identifier: Apache-2.0
"""A run tells how it goes, and its failure says why."""

from pathlib import Path

import pytest

from sentinel.demo.assets import Assets
from sentinel.demo.runs import RunError, RunSettings, launch

ASSETS = Assets(
    folder=Path("/a"), model=Path("/a/model"), train=Path("/a/train.parquet"), validation=Path("/a/v.parquet"), loss=0.1
)


@pytest.mark.timeout(60)
def test_a_run_that_fails_says_why_in_one_line(tmp_path, monkeypatch):
    module = tmp_path / "verl" / "trainer"
    module.mkdir(parents=True)
    (module / "main_ppo.py").write_text("raise ValueError('no such thing')")
    (module / "__init__.py").write_text("")
    (module.parent / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(RunError) as failure:
        launch(RunSettings(name="broken"), tmp_path / "run", ASSETS)

    assert "ValueError: no such thing" in str(failure.value)
    assert str(tmp_path / "run" / "verl.log") in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.timeout(60)
def test_a_run_past_its_deadline_is_ended(tmp_path, monkeypatch):
    module = tmp_path / "verl" / "trainer"
    module.mkdir(parents=True)
    (module / "main_ppo.py").write_text("import time; time.sleep(60)")
    (module / "__init__.py").write_text("")
    (module.parent / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(RunError, match="deadline"):
        launch(RunSettings(name="slow"), tmp_path / "run", ASSETS, deadline_seconds=0.5)


def test_progress_and_metrics_come_from_the_files_that_verl_writes(tmp_path, monkeypatch):
    module = tmp_path / "verl" / "trainer"
    module.mkdir(parents=True)
    (module / "main_ppo.py").write_text(
        "import os, time\n"
        "print('TaskRunner', flush=True)\n"
        "time.sleep(0.6)\n"
        "f = open(os.environ['VERL_FILE_LOGGER_PATH'], 'w')\n"
        'f.write(\'{"step": 1, "data": {"a": 1.0}}\\n\'); f.flush()\n'
        "time.sleep(0.6)\n"
        'f.write(\'{"step": 2, "data": {"a": null}}\\n\')\n'
    )
    (module / "__init__.py").write_text("")
    (module.parent / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    seen = []

    run = launch(RunSettings(name="x"), tmp_path / "run", ASSETS, progress=lambda *state: seen.append(state))

    assert run.metrics() == {1: {"a": 1.0}, 2: {"a": None}}
    assert ("loading the model", 0) in seen
    assert ("training", 1) in seen
    assert seen[-1] == ("finished", 2)
