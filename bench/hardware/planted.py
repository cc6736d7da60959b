# SPDX-License-Identifier: Apache-2.0
"""Runs on this machine's CPU against the GPU's bundles: healthy ones, and ones with a planted fault.

`python -m bench.hardware.planted --seconds 280` makes the runs that are missing, as many as fit, and keeps what was said of each in
bench/hardware/results/. Sentinel is attached as a user attaches it, with the shipped settings, the same for every run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.critic_model import critic_overrides
from sentinel.demo.assets import Assets, AssetSettings, load
from sentinel.demo.cluster import Cluster, private_cluster
from sentinel.demo.course import settled
from sentinel.demo.kit.faults import Fault
from sentinel.demo.runs import Run, RunSettings, launch
from sentinel.errors import SentinelError

from .bundles import EXAMPLES, rollouts

RESULTS = Path(__file__).parent / "results"
SETTLE_SECONDS = 12.0
A_RUN_TAKES = 60.0
"""Seconds that must be left for another run to be begun."""
ABOUT_TIME = ("perf/", "timing_s/", "timing_per_token_ms/", "actor/perf", "critic/perf")
LOG_PROB, REF, UPDATE = "actor_compute_log_prob", "ref_compute_log_prob", "actor_update"
VALUES, CRITIC = "compute_values", "critic_update"


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """One run on the CPU."""

    name: str
    bundle: str = "tiny-grpo-fp32"
    stage: str | None = None
    """Where the fault sits, in the words of the contract; None for a healthy run."""
    fault: Fault | None = None
    overrides: tuple[str, ...] = ()
    step: int = 4
    """First step with the fault."""
    steps: int = 7
    replayed: bool = True
    attention: str = "eager"
    also: tuple[str, ...] = field(default=())
    """Other answers that name the fault as well, where the contract has two words for it."""
    what: str = ""


def module_fault(stage: str, module: str, kind: str, size: float, step: int = 4, **more) -> Planned:
    """A fault inside a module."""
    short = module.removeprefix("model.").replace("layers.", "")
    return Planned(
        name=f"{stage}-{kind}-{short}".replace(".", "_"),
        stage=stage,
        fault=Fault(stage=stage, module=module, kind=kind, size=size, step=step),
        step=step,
        bundle="tiny-gae-fp32" if stage in (VALUES, CRITIC) else "tiny-grpo-fp32",
        what=f"{kind} {size:g}",
        **more,
    )


REWARD = f"reward.custom_reward_function.path={Path(__file__).parent / 'wrong_reward.py'}"
PLANNED = (
    module_fault(LOG_PROB, "model.layers.1.self_attn.q_proj", "scale", 1.02),
    module_fault(REF, "model.layers.2.self_attn.o_proj", "scale", 1.03),
    module_fault(UPDATE, "model.layers.1.mlp.down_proj", "nan_grad", 3),
    module_fault(UPDATE, "model.layers.0.mlp.gate_proj", "scale", 1.1),
    module_fault(VALUES, "model.layers.1.mlp.up_proj", "scale", 1.1),
    module_fault(CRITIC, "model.layers.2.mlp.down_proj", "nan_grad", 3),
    module_fault(LOG_PROB, "model.layers.0.mlp.down_proj", "mask", 0.1),
    module_fault(REF, "model.norm", "bias", 0.05),
    module_fault(CRITIC, "model.layers.0.self_attn.v_proj", "scale", 1.2),
    module_fault(LOG_PROB, "model.layers.2.post_attention_layernorm", "mantissa", 17),
    module_fault(UPDATE, "lm_head", "scale", 1.05),
    # lm_head with a bias, the same for every token, is no fault: softmax does not see it.
    module_fault(UPDATE, "model.layers.2.self_attn.k_proj", "mask", 0.2),
    Planned(
        # Not in a replay: verl's recordings hold the scores, so that the rule would not be asked.
        name="reward", stage="compute_rm_score", overrides=(REWARD,), step=1, replayed=False, steps=10,
        what="another rule of reward",
    ),
    Planned(
        name="advantage", stage="advantage", overrides=("algorithm.norm_adv_by_std_in_grpo=False",), step=1,
        also=("config",), what="advantages are not divided by their deviation",
    ),
    Planned(
        name="data", stage="data", overrides=("data.shuffle=True", "data.seed=7"), step=1, replayed=False, steps=10,
        what="the prompts come in another order",
    ),
    Planned(
        name="rollout", stage="rollout", fault=Fault(
            stage="rollout", module="model.layers.1.mlp.down_proj", kind="scale", size=1.3, step=4
        ), replayed=False, steps=10, what="a module of the rollout engine computes 1.3 times too much",
    ),
    Planned(name="config", stage="config", overrides=("actor_rollout_ref.actor.optim.lr=1e-4",), step=1,
            also=(UPDATE,), what="ten times the learning rate"),
)  # fmt: skip

HEALTHY = (
    Planned(name="healthy-replay-grpo", steps=120),
    Planned(name="healthy-replay-gae", bundle="tiny-gae-fp32", steps=60),
    Planned(name="healthy-replay-bf16", bundle="tiny-grpo-bf16", steps=60),
    Planned(name="healthy-replay-bf16-sdpa", bundle="tiny-grpo-bf16", steps=60, attention="sdpa"),
    Planned(name="healthy-replay-gae-sdpa", bundle="tiny-gae-fp32", steps=60, attention="sdpa"),
    Planned(name="healthy-replay-sdpa", steps=120, attention="sdpa"),
    Planned(name="healthy-free-47", steps=120, replayed=False, overrides=("actor_rollout_ref.rollout.seed=47",)),
    Planned(name="healthy-free-48", steps=120, replayed=False, overrides=("actor_rollout_ref.rollout.seed=48",)),
    Planned(name="healthy-free-49", steps=120, replayed=False, overrides=("actor_rollout_ref.rollout.seed=49",)),
)


@dataclass(kw_only=True)
class Bench:
    """A cluster, and what the runs need."""

    work: Path
    cluster: Cluster
    assets: Assets
    until: float

    def settings(self, plan: Planned) -> RunSettings:
        """A watched run."""
        home = self.work / "homes" / plan.name
        home.mkdir(parents=True)
        config = home / "sentinel.yaml"
        bundle = EXAMPLES / f"{plan.bundle}.sentinel"
        config.write_text(
            json.dumps({"home": str(self.work / "home"), "baseline": str(bundle), "http": {"port": 0}}),
            encoding="utf-8",
        )
        return RunSettings(
            name=plan.name,
            steps=plan.steps,
            critic="gae" in plan.bundle,
            precision="bf16" if "bf16" in plan.bundle else "fp32",
            attention=plan.attention,
            rollouts=rollouts(plan.bundle, self.work / "rollouts" / plan.bundle) if plan.replayed else None,
            fault=plan.fault,
            overrides=[*self._critic(plan), *plan.overrides],
            environment={"SENTINEL_RUN": plan.name, "SENTINEL_CONFIG": str(config)},
        )

    def _critic(self, plan: Planned) -> list[str]:
        return critic_overrides(self.assets.model, self.work / "critic") if "gae" in plan.bundle else []

    def watch(self, plan: Planned, home: Path) -> dict:
        """The run, and what was said of it."""
        began = time.monotonic()
        run = launch(
            self.settings(plan), self.work / "runs" / plan.name, self.assets, self.cluster,
            deadline_seconds=max(30.0, self.until - time.monotonic()),
        )  # fmt: skip
        incidents = self._incidents(plan, home)
        if plan.fault is None and plan.stage is None:
            keep(run.metrics_file, RESULTS / f"{plan.name}.jsonl")
        return {
            "name": plan.name, "bundle": plan.bundle, "stage": plan.stage, "also": list(plan.also), "step": plan.step,
            "what": plan.what, "module": plan.fault.module if plan.fault else None,
            "kind": plan.fault.kind if plan.fault else None, "replayed": plan.replayed, "attention": plan.attention, "steps": plan.steps,
            "step_seconds": step_seconds(run), "seconds": round(time.monotonic() - began, 1),
            "incidents": incidents,
        }  # fmt: skip

    def _incidents(self, plan: Planned, home: Path) -> list[dict]:
        until = time.monotonic() + SETTLE_SECONDS
        while True:
            found = [json.loads(p.read_text()) for p in home.glob("incidents/*/incident.json")]
            found = [one for one in found if one["run"] == plan.name]
            if all(map(settled, found)) or time.monotonic() > until:
                return [short(one) for one in found]
            time.sleep(0.5)


def keep(metrics_file: Path, to: Path) -> None:
    """A run's metrics without what is about time and memory."""
    lines = [json.loads(line) for line in metrics_file.read_text(encoding="utf-8").splitlines()]
    with to.open("w", encoding="utf-8") as file:
        for line in lines:
            line["data"] = {key: value for key, value in line["data"].items() if not key.startswith(ABOUT_TIME)}
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def short(incident: dict) -> dict:
    """What the tables need of an incident."""
    receipt, triage = incident.get("receipt") or {}, incident.get("triage") or {}
    kept = {key: incident.get(key) for key in ("kind", "opened_at_step", "severity", "stage", "suspects", "because")}
    kept["receipt"] = {key: receipt.get(key) for key in ("first_step", "stages", "bytes", "seconds", "outcome", "why")}
    kept["triage"] = {key: triage.get(key) for key in ("verdict", "first", "comparable", "notes", "suspects")}
    return kept


def step_seconds(run: Run) -> float:
    """Median of verl's own step times."""
    times = sorted(v for m in run.metrics().values() if (v := m.get("timing_s/step")) is not None)
    return round(times[len(times) // 2], 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="runs by name; all that are missing without one")
    parser.add_argument("--seconds", type=float, default=280.0)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--healthy", action="store_true", help="the healthy runs rather than the planted ones")
    args = parser.parse_args()
    until = time.monotonic() + args.seconds
    RESULTS.mkdir(exist_ok=True)
    plans = HEALTHY if args.healthy else PLANNED
    todo = [p for p in plans if (p.name in args.names if args.names else not (RESULTS / f"{p.name}.json").exists())]
    work = args.work or Path(tempfile.mkdtemp(prefix="sentinel-hardware-"))
    assets = load(EXAMPLES / "assets", AssetSettings())
    assert assets is not None
    home = work / "home"
    with private_cluster() as cluster:
        bench = Bench(work=work, cluster=cluster, assets=assets, until=until)
        for plan in todo:
            if time.monotonic() + A_RUN_TAKES > until:
                print(f"{plan.name}: no time", flush=True)
                continue
            try:
                result = bench.watch(plan, home)
            except SentinelError as error:
                print(f"{plan.name}: {error}", flush=True)
                continue
            (RESULTS / f"{plan.name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            said = [
                (i["opened_at_step"], i["stage"], (i["triage"]["first"] or {}).get("module"))
                for i in result["incidents"]
            ]
            print(f"{plan.name}: {result['seconds']} s, {said}", flush=True)
    if args.work is None:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
