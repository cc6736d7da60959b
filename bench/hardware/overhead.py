# SPDX-License-Identifier: Apache-2.0
"""What watching costs a run: step times with Sentinel on and off in turns, and captures beside msprobe used by hand.

`python -m bench.hardware.overhead --device cuda --work FOLDER` makes the runs and keeps their times in bench/hardware/data/.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from sentinel.demo.assets import Assets, AssetSettings, load
from sentinel.demo.kit.faults import STAGES
from sentinel.demo.overrides import METRICS_FILE
from sentinel.demo.runs import Run, RunSettings, launch
from sentinel.errors import SentinelError

from . import toggle
from .bundles import EXAMPLES, rollouts

PLUGINS = "sentinel.demo.kit.plugin,bench.hardware.toggle"
BUNDLE = "tiny-grpo-fp32"
RESAMPLES = 4000
LEVELS = ("L0", "L1", "mix")
DUMPED = 8
"""The step that capture runs dump."""


def on_and_off(args, assets: Assets) -> None:
    """Pairs of runs that replay a bundle's rollouts; what one of a pair watches, the other does not."""
    replay = rollouts(BUNDLE, args.work / "rollouts")
    for number in range(args.first, args.first + args.runs):
        folder = args.work / "toggled" / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        # A capture has a cost of its own, which is told apart.
        settings = {
            "home": str(folder / "home"), "http": {"port": 0}, "engine": {"capture": {"enabled": False}},
            "baseline": str(EXAMPLES / f"{BUNDLE}.sentinel"),
        }  # fmt: skip
        (folder / "sentinel.yaml").write_text(json.dumps(settings), encoding="utf-8")
        rows = folder / "steps.jsonl"
        run = RunSettings(
            name="toggled", steps=args.steps, device=args.device, micro_batches=args.micro, rollouts=replay,
            environment={
                "VERL_USE_EXTERNAL_MODULES": f"{PLUGINS},sentinel.trainer.plugin",
                "BENCH_TOGGLE_FILE": str(rows),
                "BENCH_TOGGLE_PHASE": str(number % 2),
                "SENTINEL_RUN": "toggled",
                "SENTINEL_CONFIG": str(folder / "sentinel.yaml"),
            },
        )  # fmt: skip
        try:
            launch(run, folder / "run", assets, deadline_seconds=args.seconds)
        except SentinelError as error:
            print(f"toggled {number}: {error}", flush=True)
        if rows.exists():
            copy = args.out / f"toggled-{args.label}-{number}.jsonl"
            copy.write_bytes(rows.read_bytes())
            print(f"{copy.name}: {_step(intervals(read(copy))):.3f} s a step", flush=True)


def captures(args, assets: Assets) -> None:
    """One run for each level with Sentinel's capture, one with msprobe as verl offers it, all stages of one step."""
    jobs = [(level, by) for level in LEVELS for by in ("sentinel", "by-hand")]
    with ThreadPoolExecutor(args.at_once) as pool:
        made = list(pool.map(lambda job: _capture(args, assets, *job), jobs))
    found = {
        f"{level} {by}": costs(run.folder.parent)
        for (level, by), run in zip(jobs, made, strict=True)
        if run is not None
    }
    (args.out / f"captures-{args.label}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found), flush=True)


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


def read(path: Path) -> list[dict]:
    """The rows of one toggled run."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def intervals(rows: list[dict]) -> dict[int, tuple[bool, float, float]]:
    """Step -> (watched, seconds until the next step's log, seconds of them inside Sentinel), without the first steps."""
    return {
        a["step"]: (a["on"], b["at"] - a["at"], a["inside"]) for a, b in pairwise(rows) if a["step"] >= toggle.FIRST
    }


def _step(found: dict[int, tuple[bool, float, float]]) -> float:
    return statistics.median(seconds for _, seconds, _ in found.values())


def effects(first: dict[int, tuple[bool, float, float]], second: dict[int, tuple[bool, float, float]]) -> list[float]:
    """Log of step time watched over unwatched, one for each two steps on end of a pair of runs.

    Each step was watched in one of the runs alone, so that its texts do not matter; of two steps on end each run watched one, so
    that neither the pace of a run nor its slow change matters.
    """
    parted = {step: math.log(first[step][1] / second[step][1]) for step in first.keys() & second.keys()}
    return [
        (parted[step] - parted[step + 1]) / (2 if first[step][0] else -2)
        for step in sorted(parted)[::2]
        if step + 1 in parted
    ]


def ratio(found: list[float], seed: int = 0) -> tuple[float, float, float]:
    """Geometric mean of step time watched over unwatched, with the 95 % interval of resampled effects."""
    logs = np.array(found)
    drawn = np.random.default_rng(seed).choice(logs, (RESAMPLES, len(logs))).mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high))


@dataclass(frozen=True)
class Watching:
    """What watching cost in all toggled runs of one machine."""

    pairs: int
    watched: int
    unwatched: int
    step: float
    """Median seconds."""
    ratio: tuple[float, float, float]
    inside: np.ndarray
    """Seconds inside Sentinel on the trainer's thread, waits included, of each watched step."""
    shares: np.ndarray
    """The same as a share of the step."""


def watching(data: Path) -> dict[str, Watching]:
    """Label of a machine -> cost, from toggled-LABEL-NUMBER.jsonl; numbers 0 and 1, 2 and 3 and so on are pairs."""
    runs: dict[str, dict[int, Path]] = {}
    for path in data.glob("toggled-*.jsonl"):
        label, _, number = path.stem.removeprefix("toggled-").rpartition("-")
        runs.setdefault(label, {})[int(number)] = path
    out = {}
    for label, numbered in sorted(runs.items()):
        found = [intervals(read(numbered[number])) for number in sorted(numbered)]
        pairs = list(zip(found[::2], found[1::2], strict=True))
        steps = [row for run in found for row in run.values()]
        watched = np.array([(spent, spent / seconds) for on, seconds, spent in steps if on])
        out[label] = Watching(
            len(pairs), len(watched), len(steps) - len(watched), statistics.median(row[1] for row in steps),
            ratio([one for pair in pairs for one in effects(*pair)]), watched[:, 0], watched[:, 1],
        )  # fmt: skip
    return out


def costs(folder: Path) -> dict:
    """What the capture of one step cost: seconds beyond the median of the steps around it, and bytes on disk."""
    lines = (folder / "run" / METRICS_FILE).read_text(encoding="utf-8").splitlines()
    times = {line["step"]: line["data"]["timing_s/step"] for line in map(json.loads, lines)}
    around = [seconds for step, seconds in times.items() if 3 <= step != DUMPED]
    usual = statistics.median(around)
    kept = [path for name in ("dumps", "orders.json.dumps") for path in (folder / name).rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in kept)
    return {"step": round(usual, 3), "added": round(times[DUMPED] - usual, 3), "bytes": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--label", help="of the results; the device's name without one")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--precision", default="fp32", help="of the capture runs")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=120, help="of a toggled run")
    parser.add_argument("--runs", type=int, default=4, help="toggled runs, two a pair")
    parser.add_argument("--first", type=int, default=0, help="number of the first toggled run")
    parser.add_argument("--micro", type=int, default=16, help="micro-batches a step: for steps of a second")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--only", choices=("toggled", "captures"))
    args = parser.parse_args()
    args.label = args.label or args.device
    args.out.mkdir(parents=True, exist_ok=True)
    assets = load(EXAMPLES / "assets", AssetSettings())
    assert assets is not None
    if args.only != "captures":
        on_and_off(args, assets)
    if args.only != "toggled":
        captures(args, assets)


if __name__ == "__main__":
    main()
