# SPDX-License-Identifier: Apache-2.0
"""A run's command line says everything that the run needs, each thing once."""

import json
from dataclasses import replace
from importlib import util
from pathlib import Path

import pytest

from sentinel.demo.assets import Assets
from sentinel.demo.cluster import clean_environment
from sentinel.demo.kit.faults import VARIABLE, Fault
from sentinel.demo.overrides import RunSettings, overrides, run_environment

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
    pairs = [line.lstrip("+").split("=", 1) for line in overrides(settings, folder, ASSETS, cluster)]
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
    run = Path("/r")

    told = run_environment(replace(plain, fault=FAULT), run).items() - run_environment(plain, run).items()

    assert {key for key, _ in told} == {VARIABLE}


def test_further_overrides_come_last():
    lines = overrides(RunSettings(name="x", overrides=["a.b=1"]), Path("/r"), ASSETS, None)

    assert lines[-1] == "a.b=1"


@pytest.mark.parametrize(
    "settings",
    [
        RunSettings(name="grpo"),
        RunSettings(name="v1", trainer="v1", ranks=2, rollouts=Path("/rec")),
        RunSettings(name="gae", critic=True, rollouts=Path("/rec")),
        RunSettings(name="v1-gae", trainer="v1", critic=True),
    ],
    ids=lambda settings: settings.name,
)
@pytest.mark.parametrize("cluster", [None, FakeCluster()], ids=["private", "given"])
def test_the_installed_verl_takes_every_override(settings, cluster):
    hydra = pytest.importorskip("hydra")
    verl = util.find_spec("verl")
    if verl is None:
        pytest.skip("verl is not installed")
    config = Path(verl.submodule_search_locations[0]) / "trainer" / "config"
    lines = [line for line in overrides(settings, Path("/r"), ASSETS, cluster) if not line.startswith("hydra.")]

    with hydra.initialize_config_dir(str(config), version_base=None):
        composed = hydra.compose("ppo_trainer", overrides=lines)

    assert composed.trainer.use_v1 is (settings.trainer == "v1")
    assert composed.actor_rollout_ref.rollout.name == "democpu"


def test_on_a_gpu_verls_own_platform_runs_and_ray_gets_gpus():
    settings = RunSettings(name="x", device="cuda", precision="bf16", seed=43)

    given = table(settings)

    assert given["trainer.device"] == "cuda"
    assert given["ray_kwargs.ray_init.num_gpus"] == "1"
    assert "ray_kwargs.ray_init.resources.NPU" not in given
    assert given["actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype"] == "bf16"
    assert given["actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype"] == "fp32"
    assert given["actor_rollout_ref.rollout.seed"] == "43"
    assert run_environment(settings, Path("/r"))["VERL_PLATFORM"] == "nvidia"


def test_only_a_cpu_run_hides_the_gpus_of_its_machine(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")

    assert clean_environment()["CUDA_VISIBLE_DEVICES"] == ""
    assert clean_environment("cuda")["CUDA_VISIBLE_DEVICES"] == "3"
