# SPDX-License-Identifier: Apache-2.0
"""What watching costs a run: step times with Sentinel on and off in turns, and captures beside msprobe used by hand.

`python -m bench.hardware.overhead --device cuda --work FOLDER` makes the runs; `summary(folder)` reads them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np

from sentinel.demo.assets import Assets, AssetSettings, load
from sentinel.demo.kit.faults import STAGES
from sentinel.demo.runs import Run, RunSettings, launch

from . import toggle

PLUGINS = "sentinel.demo.kit.plugin,bench.hardware.toggle"
RESAMPLES = 4000
LEVELS = ("L0", "L1", "mix")
DUMPED = 8
"""The step that capture runs dump."""


def busy(steps: int, device: str, precision: str, prompts: int, epochs: int, **more) -> RunSettings:
    """A run whose steps are long enough to be like real ones."""
    return RunSettings(
        steps=steps, device=device, precision=precision, prompts=prompts,
        overrides=[f"actor_rollout_ref.actor.ppo_epochs={epochs}"], **more,
    )  # fmt: skip


def on_and_off(args, assets: Assets) -> None:
    """One run, with Sentinel on and off in blocks."""
    folder = args.work / "toggled"
    folder.mkdir(parents=True, exist_ok=True)
    # A capture has a cost of its own, and a recipe of its own is no healthy run of the baseline.
    settings = {"home": str(folder / "home"), "http": {"port": 0}, "engine": {"capture": {"enabled": False}}}
    if args.baseline:
        settings["baseline"] = str(args.baseline)
    (folder / "sentinel.yaml").write_text(json.dumps(settings), encoding="utf-8")
    environment = {
        "VERL_USE_EXTERNAL_MODULES": f"{PLUGINS},sentinel.trainer.plugin",
        "BENCH_TOGGLE_FILE": str(folder / "steps.jsonl"),
        "SENTINEL_RUN": "toggled",
        "SENTINEL_CONFIG": str(folder / "sentinel.yaml"),
    }
    run = busy(
        args.steps, args.device, args.precision, args.prompts, args.epochs, name="toggled", environment=environment
    )
    launch(run, folder / "run", assets, deadline_seconds=args.seconds)


def captures(args, assets: Assets) -> None:
    """One run for each level with Sentinel's capture, one with msprobe as verl offers it, all stages of one step."""
    jobs = [(level, by) for level in LEVELS for by in ("sentinel", "by-hand")]
    with ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(lambda job: _capture(args, assets, *job), jobs))


def _capture(args, assets: Assets, level: str, by: str) -> Run | None:
    folder = args.work / "captures" / f"{level}-{by}"
    folder.mkdir(parents=True, exist_ok=True)
    environment, overrides = {}, []
    if by == "sentinel":
        orders = folder / "orders.json"
        order = {"first_step": DUMPED, "last_step": DUMPED, "stages": list(STAGES), "level": level, "why": "bench"}
        orders.write_text(json.dumps([order]), encoding="utf-8")
        environment = {"SENTINEL_ORDERS": str(orders)}
    else:
        probe = folder / "msprobe.json"
        probe.write_text(json.dumps(_msprobe(folder / "dumps", level)), encoding="utf-8")
        base = "actor_rollout_ref"
        overrides = [
            "global_profiler.tool=precision_debugger",
            f"global_profiler.steps=[{DUMPED}]",
            f"global_profiler.save_path={folder / 'dumps'}",
            f"global_profiler.global_tool_config.precision_debugger.config_path={probe}",
            f"global_profiler.global_tool_config.precision_debugger.stages=[{','.join(STAGES)}]",
            f"{base}.actor.profiler.enable=True",
            f"{base}.ref.profiler.enable=True",
        ]
    settings = RunSettings(
        name=f"{level}-{by}", steps=DUMPED + 6, device=args.device, precision=args.precision, environment=environment,
        overrides=overrides,
    )  # fmt: skip
    try:
        return launch(settings, folder / "run", assets, deadline_seconds=args.seconds)
    except Exception as error:
        print(f"{level} {by}: {error}", flush=True)
        return None


def _msprobe(dump_path: Path, level: str) -> dict:
    """msprobe's own configuration file."""
    return {
        "task": "statistics", "dump_path": str(dump_path), "rank": [], "step": [], "level": level,
        "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
    }  # fmt: skip


def intervals(rows: list[dict]) -> list[tuple[int, bool, float, float]]:
    """(step, on, seconds until the next step's log, seconds of them inside Sentinel), without the first steps."""
    return [
        (a["step"], a["on"], b["at"] - a["at"], a["inside"]) for a, b in pairwise(rows) if a["step"] >= toggle.FIRST
    ]


def ratio(found: list[tuple[int, bool, float, float]], seed: int = 0) -> tuple[float, float, float]:
    """Mean step time on over off, each block beside the next, with the 95 % interval of resampled pairs of blocks."""
    blocks: dict[int, list[float]] = {}
    for step, _, seconds, _ in found:
        blocks.setdefault((step - toggle.FIRST) // toggle.BLOCK, []).append(seconds)
    means = [statistics.median(blocks[number]) for number in sorted(blocks) if len(blocks[number]) == toggle.BLOCK]
    pairs = np.array(list(zip(means[::2], means[1::2], strict=False)))
    logs = np.log(pairs[:, 0] / pairs[:, 1])
    drawn = np.random.default_rng(seed).choice(logs, (RESAMPLES, len(logs))).mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--assets", type=Path, required=True)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--steps", type=int, default=206)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--only", choices=("toggled", "captures"))
    args = parser.parse_args()
    assets = load(args.assets, _large() if args.large else AssetSettings())
    if assets is None:
        raise SystemExit(f"no assets in {args.assets}")
    if args.only != "captures":
        on_and_off(args, assets)
    if args.only != "toggled":
        captures(args, assets)


def _large() -> AssetSettings:
    import sys

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy" / "gpu_baseline"))
    from model import LARGE

    return LARGE


if __name__ == "__main__":
    main()
