# SPDX-License-Identifier: Apache-2.0
"""What a verl run is asked to be, and the hydra overrides and environment that make it so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sentinel.demo.assets import Assets
from sentinel.demo.cluster import Cluster
from sentinel.demo.kit.faults import VARIABLE, Fault

PROJECT = "sentinel-demo"
EXPERIMENT = "tiny"
"""Project and experiment are part of the path of verl's rollout recordings, so they stay the same in every run."""
KIT = "sentinel.demo.kit.plugin"
PLATFORMS = {"cpu": "cpu", "cuda": "nvidia"}
"""Device -> verl's name of its platform."""
METRICS_FILE = "metrics.jsonl"
ROLLOUT_DATA = "rollout_data"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """What is run. The defaults are the demo's: V0, GRPO, one rank, one mini-batch and one micro-batch a step."""

    name: str
    steps: int = 8
    trainer: str = "v0"
    ranks: int = 1
    critic: bool = False
    """GAE with a critic instead of GRPO."""
    device: str = "cpu"
    """`cpu`, or `cuda`: then without a `cluster`, and with one GPU a rank."""
    precision: str = "fp32"
    """What the engines compute with: `fp32` or `bf16`; parameters and their updates are fp32 in both."""
    seed: int = 42
    """Of the rollouts."""
    attention: str = "eager"
    micro_batches: int = 1
    """Micro-batches a step and rank, in the log-probabilities and in the update."""
    prompts: int = 8
    """Prompts a step; each is answered four times."""
    learning_rate: float = 1e-5
    rollouts: Path | None = None
    """Folder of verl's rollout recording: steps that it holds are replayed, the others are generated and recorded."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """For every process of the run, e.g. SENTINEL_RUN."""
    fault: Fault | None = None
    overrides: Sequence[str] = ()
    """Further hydra overrides; they win."""


def run_environment(settings: RunSettings, folder: Path) -> dict[str, str]:
    """What differs from run to run in the environment of its processes."""
    given = {
        "VERL_PLATFORM": PLATFORMS[settings.device],
        "VERL_USE_EXTERNAL_MODULES": KIT,
        "VERL_FILE_LOGGER_PATH": str(folder / METRICS_FILE),
        **settings.environment,
    }
    return given | ({VARIABLE: settings.fault.to_json()} if settings.fault else {})


def overrides(settings: RunSettings, folder: Path, assets: Assets, cluster: Cluster | None) -> list[str]:
    """The hydra overrides of a run, in the order in which verl takes them."""
    return [
        *_data(settings, assets),
        *_algorithm(settings),
        *_actor(settings, assets),
        *(_critic(settings, assets) if settings.critic else ()),
        *_trainer(settings, folder),
        *_replay(settings),
        *_ray(settings, folder, cluster),
        *settings.overrides,
    ]


def _data(settings: RunSettings, assets: Assets) -> list[str]:
    return [
        f"data.train_files={assets.train}",
        f"data.val_files={assets.validation}",
        f"data.train_batch_size={settings.prompts}",
        "data.max_prompt_length=48",
        "data.max_response_length=16",
        "data.dataloader_num_workers=0",
        "data.shuffle=False",
    ]


def _algorithm(settings: RunSettings) -> list[str]:
    return [f"algorithm.adv_estimator={'gae' if settings.critic else 'grpo'}"]


def _engine(prefix: str, settings: RunSettings) -> list[str]:
    """The section of one FSDP engine: nothing compiled, sums of gradients in fp32."""
    return [
        f"{prefix}.use_torch_compile=False",
        f"+{prefix}.mixed_precision.param_dtype={settings.precision}",
        *(f"+{prefix}.mixed_precision.{part}_dtype=fp32" for part in ("reduce", "buffer")),
    ]


def _rows(settings: RunSettings) -> int:
    """Rows of a micro-batch: four answers a prompt, shared among the ranks."""
    return max(1, 4 * settings.prompts // settings.ranks // settings.micro_batches)


def _actor(settings: RunSettings, assets: Assets) -> list[str]:
    base, rows = "actor_rollout_ref", _rows(settings)
    return [
        f"{base}.model.path={assets.model}",
        f"+{base}.model.override_config.attn_implementation={settings.attention}",
        f"{base}.model.use_remove_padding=False",
        f"{base}.model.enable_gradient_checkpointing=False",
        f"{base}.actor.strategy=fsdp2",
        f"{base}.actor.ppo_mini_batch_size={settings.prompts}",
        f"{base}.actor.ppo_micro_batch_size_per_gpu={rows}",
        f"{base}.actor.use_kl_loss=True",
        f"{base}.actor.use_torch_compile=False",
        f"{base}.actor.optim.lr={settings.learning_rate}",
        *_engine(f"{base}.actor.fsdp_config", settings),
        *_engine(f"{base}.ref.fsdp_config", settings),
        f"{base}.ref.log_prob_micro_batch_size_per_gpu={rows}",
        f"{base}.rollout.name=democpu",
        f"{base}.rollout.tensor_model_parallel_size=1",
        f"{base}.rollout.n=4",
        f"{base}.rollout.seed={settings.seed}",
        f"{base}.rollout.log_prob_micro_batch_size_per_gpu={rows}",
        f"{base}.rollout.agent.num_workers=1",
        f"{base}.rollout.free_cache_engine=False",
        f"{base}.rollout.calculate_log_probs=True",
    ]


def _critic(settings: RunSettings, assets: Assets) -> list[str]:
    rows = _rows(settings)
    return [
        f"critic.model.path={assets.model}",
        "critic.strategy=fsdp2",
        "critic.model.use_remove_padding=False",
        "critic.model.enable_gradient_checkpointing=False",
        f"critic.ppo_mini_batch_size={settings.prompts}",
        f"critic.ppo_micro_batch_size_per_gpu={rows}",
        f"critic.optim.lr={settings.learning_rate}",
        *_engine("critic.fsdp", settings),
    ]


def _trainer(settings: RunSettings, folder: Path) -> list[str]:
    reward = Path(__file__).parent / "kit" / "reward.py"
    return [
        "reward.num_workers=1",
        f"reward.custom_reward_function.path={reward}",
        "reward.custom_reward_function.name=compute_score",
        f"trainer.use_v1={settings.trainer == 'v1'}",
        f"trainer.device={settings.device}",
        f"trainer.n_gpus_per_node={settings.ranks}",
        "trainer.nnodes=1",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
        "trainer.total_epochs=100",
        f"trainer.total_training_steps={settings.steps}",
        f"trainer.project_name={PROJECT}",
        f"trainer.experiment_name={EXPERIMENT}",
        "trainer.logger=[console,file]",
        f"trainer.rollout_data_dir={folder / ROLLOUT_DATA}",
        f"hydra.run.dir={folder / 'hydra'}",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    ]


def _replay(settings: RunSettings) -> list[str]:
    if settings.rollouts is None:
        return []
    section = "skip.rollout_tq" if settings.trainer == "v1" else "skip.rollout"
    return [
        f"{section}.enable=True",
        f"{section}.dump_dir={settings.rollouts}",
        f"{section}.steps=[{','.join(str(n) for n in range(1, settings.steps + 1))}]",
    ]


def _ray(settings: RunSettings, folder: Path, cluster: Cluster | None) -> list[str]:
    """Join the cluster given, whose workers learn the run's environment through Ray; or start a private one."""
    init = "ray_kwargs.ray_init"
    if cluster is None:
        return [
            f"+{init}.address=local",
            f"{init}.num_cpus=32",
            f"+{init}.resources.NPU={settings.ranks}"
            if settings.device == "cpu"
            else f"+{init}.num_gpus={settings.ranks}",
            f"+{init}.include_dashboard=False",
            f"+{init}.object_store_memory=300000000",
        ]
    variables = run_environment(settings, folder) | cluster.access()
    return [
        f"+{init}.address='{cluster.address}'",
        *(f"+{init}.runtime_env.env_vars.{key}={_quoted(value)}" for key, value in sorted(variables.items())),
    ]


def _quoted(value: str) -> str:
    """A value as a hydra string, so that numbers stay text and JSON stays whole."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
