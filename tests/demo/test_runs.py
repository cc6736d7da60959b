# SPDX-License-Identifier: Apache-2.0
"""A run's command line says everything that the run needs, and its failure says why."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sentinel.demo.assets import Assets
from sentinel.demo.kit.faults import VARIABLE, Fault
from sentinel.demo.runs import Run, RunError, RunSettings, launch, overrides, run_environment

ASSETS = Assets(
    folder=Path("/a"), model=Path("/a/model"), train=Path("/a/train.parquet"), validation=Path("/a/v.parquet"), loss=0.1
)
FAULT = Fault(stage="actor_update", module="model.norm", kind="scale", size=1.5, step=4)


class FakeCluster:
    address = "127.0.0.1:6379"

    def access(self):
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/t/it's"}

    def environment(self):
        return {"RAY_ADDRESS": self.address}


def table(settings, cluster=None, folder=Path("/r")):
    run = Run(name=settings.name, folder=folder, seconds=0)
    pairs = [line.lstrip("+").split("=", 1) for line in overrides(settings, run, ASSETS, cluster)]
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), "an override is given twice"
    return dict(pairs)


def test_the_defaults_are_one_mini_batch_and_one_micro_batch_a_step():
    given = table(RunSettings(name="x"))

    rows = int(given["data.train_batch_size"]) * int(given["actor_rollout_ref.rollout.n"])
    assert int(given["actor_rollout_ref.actor.ppo_mini_batch_size"]) == int(given["data.train_batch_size"])
    assert int(given["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"]) == rows
    assert float(given["actor_rollout_ref.actor.optim.lr"]) <= 1e-5
    assert given["trainer.use_v1"] == "False"
    assert given["actor_rollout_ref.rollout.calculate_log_probs"] == "True"


def test_ranks_and_micro_batches_share_the_rows():
    given = table(RunSettings(name="x", ranks=2, micro_batches=2))

    assert given["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"] == "8"
    assert given["trainer.n_gpus_per_node"] == "2"


def test_a_replay_lists_its_steps_because_verl_replays_no_other():
    v0 = table(RunSettings(name="x", steps=3, rollouts=Path("/rec")))
    v1 = table(RunSettings(name="x", steps=3, rollouts=Path("/rec"), trainer="v1"))

    assert v0["skip.rollout.steps"] == "[1,2,3]"
    assert v1["skip.rollout_tq.steps"] == "[1,2,3]"
    assert "skip.rollout.steps" not in v1


def test_a_critic_comes_with_gae():
    given = table(RunSettings(name="x", critic=True))

    assert given["algorithm.adv_estimator"] == "gae"
    assert given["critic.model.path"] == "/a/model"
    assert "critic.model.path" not in table(RunSettings(name="x"))


def test_workers_of_a_given_cluster_learn_the_runs_environment_through_ray():
    settings = RunSettings(name="x", environment={"SENTINEL_RUN": "7"}, fault=FAULT)

    given = table(settings, FakeCluster())

    base = "ray_kwargs.ray_init.runtime_env.env_vars."
    assert given["ray_kwargs.ray_init.address"] == "'127.0.0.1:6379'"
    assert given[base + "SENTINEL_RUN"] == "'7'"
    assert given[base + "RAY_AUTH_TOKEN_PATH"] == r"'/t/it\'s'"
    assert json.loads(given[base + VARIABLE].strip("'"))["module"] == "model.norm"
    assert "ray_kwargs.ray_init.num_cpus" not in given


def test_without_a_cluster_a_run_starts_a_private_one():
    given = table(RunSettings(name="x"))

    assert given["ray_kwargs.ray_init.address"] == "local"


def test_only_the_kit_is_told_of_the_fault():
    plain = RunSettings(name="x")
    run = Run(name="x", folder=Path("/r"), seconds=0)

    told = run_environment(replace(plain, fault=FAULT), run).items() - run_environment(plain, run).items()

    assert {key for key, _ in told} == {VARIABLE}


def test_further_overrides_come_last():
    lines = overrides(
        RunSettings(name="x", overrides=["a.b=1"]), Run(name="x", folder=Path("/r"), seconds=0), ASSETS, None
    )

    assert lines[-1] == "a.b=1"


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
