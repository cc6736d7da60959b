# SPDX-License-Identifier: Apache-2.0
"""One run of stock `verl.trainer.main_ppo` on this machine's CPU: its settings, its process, what it wrote.

For the demo, and for every test or benchmark that needs a real verl run::

    with private_cluster() as cluster:
        run = launch(RunSettings(name="a", steps=4), folder, assets, cluster)
        run.metrics()[3]["actor/grad_norm"]

Without a cluster the run starts a private one of its own, as a plain verl command line would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path

from sentinel.demo.assets import Assets
from sentinel.demo.cluster import Cluster, clean_environment
from sentinel.demo.kit.faults import VARIABLE, Fault
from sentinel.errors import SentinelError

PROJECT = "sentinel-demo"
EXPERIMENT = "tiny"
"""Project and experiment are part of the path of verl's rollout recordings, so they stay the same in every run."""
KIT = "sentinel.demo.kit.plugin"
POLL_SECONDS = 0.25


class RunError(SentinelError):
    """A verl run ended with an error, or did not end in time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """What is run. The defaults are the demo's: V0, GRPO, one rank, one mini-batch and one micro-batch a step."""

    name: str
    steps: int = 8
    trainer: str = "v0"
    ranks: int = 1
    critic: bool = False
    """GAE with a critic instead of GRPO."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A finished run and its files."""

    name: str
    folder: Path
    seconds: float

    @property
    def log(self) -> Path:
        """Everything that the run printed."""
        return self.folder / "verl.log"

    @property
    def metrics_file(self) -> Path:
        """What verl's file logger wrote."""
        return self.folder / "metrics.jsonl"

    @property
    def rollout_data(self) -> Path:
        """The folder of verl's rollout data, one file a step."""
        return self.folder / "rollout_data"

    def metrics(self) -> dict[int, dict[str, float | None]]:
        """Step -> metrics; None where verl's file logger wrote a value that is not finite."""
        lines = self.metrics_file.read_text(encoding="utf-8").splitlines()
        return {record["step"]: record["data"] for record in map(json.loads, lines)}


Progress = Callable[[str, int], None]
"""Called with a phase in words and the number of steps done, whenever one of them changed."""


def launch(
    settings: RunSettings,
    folder: Path,
    assets: Assets,
    cluster: Cluster | None = None,
    *,
    progress: Progress | None = None,
    deadline_seconds: float = 300.0,
) -> Run:
    """Run verl to its end in `folder`.

    Raises:
        RunError: verl ended with an error or ran longer than the deadline; the message quotes its last error line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    run = Run(name=settings.name, folder=folder, seconds=0.0)
    environment = (cluster.environment() if cluster else clean_environment()) | run_environment(settings, run)
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides(settings, run, assets, cluster)]
    (folder / "command.txt").write_text("\n".join(command) + "\n", encoding="utf-8")
    with run.log.open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder
        )
        try:
            _follow(process, run, began + deadline_seconds, progress)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        raise RunError(
            f"the verl run {settings.name!r} ended with code {process.returncode}: {_reason(run.log)}; see {run.log}"
        )
    return Run(name=settings.name, folder=folder, seconds=time.monotonic() - began)


def installed() -> str | None:
    """Why no verl run can be started here; None if one can."""
    for module in ("verl", "torch", "transformers", "wrapt"):
        if util.find_spec(module) is None:
            return f"{module} is not installed here: pip install 'verl-sentinel[probe,verl]' (torch first)"
    return None


def run_environment(settings: RunSettings, run: Run) -> dict[str, str]:
    """What differs from run to run in the environment of its processes."""
    given = {
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": KIT,
        "VERL_FILE_LOGGER_PATH": str(run.metrics_file),
        **settings.environment,
    }
    return given | ({VARIABLE: settings.fault.to_json()} if settings.fault else {})


def overrides(settings: RunSettings, run: Run, assets: Assets, cluster: Cluster | None) -> list[str]:
    """The hydra overrides of a run, in the order in which verl takes them."""
    return [
        *_data(settings, assets),
        *_algorithm(settings),
        *_actor(settings, assets),
        *(_critic(settings, assets) if settings.critic else ()),
        *_trainer(settings, run),
        *_replay(settings),
        *_ray(settings, run, cluster),
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


def _engine(prefix: str) -> list[str]:
    """One FSDP engine: fp32 throughout, nothing compiled."""
    return [
        f"{prefix}.fsdp_config.use_torch_compile=False",
        *(f"+{prefix}.fsdp_config.mixed_precision.{part}_dtype=fp32" for part in ("param", "reduce", "buffer")),
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
        *_engine(f"{base}.actor"),
        *_engine(f"{base}.ref"),
        f"{base}.ref.log_prob_micro_batch_size_per_gpu={rows}",
        f"{base}.rollout.name=democpu",
        f"{base}.rollout.tensor_model_parallel_size=1",
        f"{base}.rollout.n=4",
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
        *_engine("critic"),
    ]


def _trainer(settings: RunSettings, run: Run) -> list[str]:
    reward = Path(__file__).parent / "kit" / "reward.py"
    return [
        "reward.num_workers=1",
        f"reward.custom_reward_function.path={reward}",
        "reward.custom_reward_function.name=compute_score",
        f"trainer.use_v1={settings.trainer == 'v1'}",
        "trainer.device=cpu",
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
        f"trainer.rollout_data_dir={run.rollout_data}",
        f"hydra.run.dir={run.folder / 'hydra'}",
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


def _ray(settings: RunSettings, run: Run, cluster: Cluster | None) -> list[str]:
    """Join the cluster given, whose workers learn the run's environment through Ray; or start a private one."""
    init = "ray_kwargs.ray_init"
    if cluster is None:
        return [
            f"+{init}.address=local",
            f"{init}.num_cpus=32",
            f"+{init}.resources.NPU={settings.ranks}",
            f"+{init}.include_dashboard=False",
            f"+{init}.object_store_memory=300000000",
        ]
    variables = run_environment(settings, run) | cluster.access()
    return [
        f"+{init}.address='{cluster.address}'",
        *(f"+{init}.runtime_env.env_vars.{key}={_quoted(value)}" for key, value in sorted(variables.items())),
    ]


def _quoted(value: str) -> str:
    """A value as a hydra string, so that numbers stay text and JSON stays whole."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _follow(process: subprocess.Popen[bytes], run: Run, until: float, progress: Progress | None) -> None:
    """Wait for the end of the run, and say what it is doing."""
    said: tuple[str, int] | None = None
    while True:
        ended = process.poll() is not None
        now = _state(run, ended=ended)
        if progress is not None and now != said:
            progress(*now)
            said = now
        if ended:
            return
        if time.monotonic() > until:
            raise RunError(
                f"the verl run {run.name!r} was still going after its deadline, at step {now[1]}; see {run.log}"
            )
        time.sleep(POLL_SECONDS)


def _state(run: Run, *, ended: bool) -> tuple[str, int]:
    """Phase and steps done, from the files that the run writes."""
    steps = run.metrics_file.read_bytes().count(b"\n") if run.metrics_file.exists() else 0
    if ended:
        return "finished", steps
    if steps:
        return "training", steps
    text = run.log.read_bytes() if run.log.exists() else b""
    if b"Training Progress" in text:
        return "first step", 0
    if b"TaskRunner" in text:
        return "loading the model", 0
    return "starting verl", 0


def _reason(log: Path) -> str:
    """The last line of the log that names an error, without Ray's prefix."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    named = [line.strip() for line in lines if "Error" in line and "Traceback" not in line and "WARN" not in line]
    return (named or lines or ["no output"])[-1][-300:]


def main_environment() -> dict[str, str]:
    """The environment of helper processes of the demo that need no cluster."""
    return dict(os.environ) | clean_environment()
