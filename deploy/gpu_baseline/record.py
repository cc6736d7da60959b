#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes GPU baselines: real verl runs with Sentinel recording, several seeds and twins of each recipe, and their bundles.

python deploy/gpu_baseline/record.py --device cuda --work /tmp/gpu --at-once 5 [CASE ...]

Needs no network. The rollout engine is the demo's test engine (a Hugging Face model in bf16), not vLLM; see README.md
beside this file for the same with vLLM and a model of your own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import LARGE, TINY, Case, chosen
from model import make_critic, make_large

from sentinel.demo.assets import Assets, prepare
from sentinel.demo.runs import Run, RunSettings, launch
from sentinel.errors import SentinelError

START_SECONDS = 1.0
STAGES = ["actor_compute_log_prob", "ref_compute_log_prob", "actor_update"]
CRITIC_STAGES = ["compute_values", "critic_update"]


class Recorder:
    """All runs of one session; runs go at once as far as the machine carries them, a case's twins after its reference."""

    def __init__(self, work: Path, device: str, at_once: int, deadline: float) -> None:
        self.work = work
        self.device = device
        self.deadline = deadline
        self.pool = ThreadPoolExecutor(at_once)
        self.began = time.monotonic()
        self.starting = threading.Lock()
        self.making = {TINY: threading.Lock(), LARGE: threading.Lock()}

    def says(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.0f} s  {text}", flush=True)

    def assets(self, case: Case) -> Assets:
        """The model of a case: the tiny one comes with the checkout or is made here, the large one is trained once."""
        with self.making[case.model]:
            if case.model == LARGE:
                return make_large(self.work / "assets" / "large", self.device)
            return prepare(self.work / "assets" / "tiny")

    def settings(self, case: Case, assets: Assets, **more: object) -> RunSettings:
        base = RunSettings(
            name=str(more.pop("name")),
            trainer=case.trainer,
            critic=case.critic,
            precision=case.precision,
            prompts=case.prompts,
            steps=case.steps,
            device=self.device,
            overrides=self._critic(case, assets),
        )
        return replace(base, **more)

    def _critic(self, case: Case, assets: Assets) -> list[str]:
        if not case.critic:
            return []
        with self.making[case.model]:
            return [f"critic.model.path={make_critic(assets.model, assets.folder / 'critic')}"]

    def run(self, case: Case, settings: RunSettings, assets: Assets) -> Run | None:
        left = self.deadline - (time.monotonic() - self.began)
        with self.starting:
            # Two Ray heads that look for a free port at the same moment find the same one.
            time.sleep(START_SECONDS)
        folder = self.work / "runs" / case.name / settings.name
        there = folder / "metrics.jsonl"
        if there.exists() and there.read_bytes().count(b"\n") >= settings.steps:
            self.says(f"{case.name} {settings.name}: there already")
            return Run(name=settings.name, folder=folder, seconds=0.0)
        if left < 20:
            self.says(f"{case.name} {settings.name}: left out, no time")
            return None
        try:
            run = launch(settings, folder, assets, deadline_seconds=left)
        except SentinelError as error:
            self.says(f"{case.name} {settings.name}: FAILED {error}")
            return None
        self.says(f"{case.name} {settings.name}: {run.seconds:.0f} s, {_step_seconds(run)}")
        return run

    def case(self, case: Case) -> None:
        """The runs of a case, and its bundle."""
        try:
            assets = self.assets(case)
            self.says(f"{case.name}: model of loss {assets.loss:.3f}")
            self._case(case, assets)
        except Exception:  # noqa: BLE001 - the other cases go on
            self.says(f"{case.name}: FAILED\n{traceback.format_exc()}")

    def _case(self, case: Case, assets: Assets) -> None:
        rollouts = self.work / "rollouts" / case.name
        records = self.work / "recordings" / case.name
        records.mkdir(parents=True, exist_ok=True)
        orders = records / "orders.json"
        none = records / "none.json"
        none.write_text('{"orders": []}', encoding="utf-8")
        orders.write_text(json.dumps({"orders": golden_orders(case)}), encoding="utf-8")

        def recorded(name: str, **more: object) -> RunSettings:
            environment = {
                "SENTINEL_RECORD": str(records / f"{name}.jsonl"),
                # Without a file of orders a recording dumps its default schedule, and of each step a bundle holds one dump.
                "SENTINEL_ORDERS": str(orders if name == "reference" else none),
            }
            return self.settings(case, assets, name=name, environment=environment, **more)

        reference = self.pool.submit(self.run, case, recorded("reference", rollouts=rollouts), assets)
        seeds = [
            self.pool.submit(self.run, case, recorded(f"seed-{seed}", seed=seed), assets) for seed in case.other_seeds
        ]
        if reference.result() is None:
            return
        twins = [
            self.pool.submit(self.run, case, twin, assets)
            for twin in (
                recorded("twin-attention", rollouts=rollouts, attention="sdpa"),
                recorded("twin-split", rollouts=rollouts, micro_batches=2),
            )
        ]
        for future in (*seeds, *twins):
            future.result()
        self._bundle(case, assets, records, rollouts)

    def _bundle(self, case: Case, assets: Assets, records: Path, rollouts: Path) -> None:
        seeds = [path for path in sorted(records.glob("*.jsonl")) if path.stem.startswith(("reference", "seed-"))]
        command = [sys.executable, "-m", "sentinel", "baseline", "record", *map(str, seeds)]
        for twin in sorted(records.glob("twin-*.jsonl")):
            command += ["--twin", str(twin)]
        bundle = self.work / "bundles" / f"{case.name}.sentinel"
        bundle.parent.mkdir(exist_ok=True)
        command += ["--rollouts", str(rollouts), "--model", str(assets.model), "--name", case.name, "-o", str(bundle)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.says(f"{case.name}: no bundle: {done.stderr.strip()[-600:]}")
        else:
            self.says(f"{case.name}: {bundle.name}, {bundle.stat().st_size / 2**20:.1f} MiB")


def golden_orders(case: Case) -> list[dict[str, object]]:
    """One order a step, so that each has its own receipt; step 1 is under way before a first order can be obeyed."""
    stages = STAGES + (CRITIC_STAGES if case.critic else [])
    return [
        {
            "id": f"golden-{step}",
            "first_step": step,
            "last_step": step,
            "stages": stages,
            "level": "L0",
            "why": "golden",
        }
        for step in range(2, case.golden + 1)
    ]


def _step_seconds(run: Run) -> str:
    times = sorted(v for m in run.metrics().values() if (v := m.get("timing_s/step")) is not None)
    return f"{len(times)} steps, median {times[len(times) // 2]:.2f} s" if times else "no steps"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--work", type=Path, required=True, help="folder of all files; msprobe wants a plain path")
    parser.add_argument("--at-once", type=int, default=4, metavar="N", help="runs at the same time")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no run is begun or goes on after so many")
    parser.add_argument("--no-seeds", action="store_true", help="references and twins only")
    parser.add_argument("--most-steps", type=int, help="cut every run to so many steps, for a rehearsal")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(args.work, args.device, args.at_once, args.seconds)
    cases = chosen(args.cases, args.most_steps)
    if args.no_seeds:
        cases = [replace(case, other_seeds=()) for case in cases]
    threads = [threading.Thread(target=recorder.case, args=(case,)) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = sorted(path.stem for path in (args.work / "bundles").glob("*.sentinel"))
    recorder.says(f"bundles: {', '.join(made) or 'none'}")
    return 0 if len(made) == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
