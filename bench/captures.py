# SPDX-License-Identifier: Apache-2.0
"""Captures on real verl runs: at the very next step, at which price beside dumping everything, and what stages cost afterwards."""

from __future__ import annotations

import json
import random
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.critic_model import critic_overrides
from bench.live import settings_file
from sentinel.demo.assets import prepare
from sentinel.demo.cluster import private_cluster
from sentinel.demo.kit.faults import Fault
from sentinel.demo.runs import RunSettings, launch

TRIES = 13
"""Decisions of each of the four runs."""
KINDS = (("v0", False), ("v0", True), ("v1", False), ("v1", True))
MODULE = "model.layers.1.mlp"
TIMINGS = {
    "actor_compute_log_prob": "timing_s/old_log_prob",
    "ref_compute_log_prob": "timing_s/ref",
    "compute_values": "timing_s/values",
    "critic_update": "timing_s/update_critic",
    "actor_update": "timing_s/update_actor",
}
ONE_EACH = {
    "incidents": {"reopen_within_steps": 0, "close_non_finite_after_steps": 1},
    "capture": {
        "cool_down_steps": 0,
        "steps": 1,
        "extensions": 0,
        "most_steps": 1000,
        "day_steps": 1000,
        "most_ratio": 10.0,
    },
}


def run() -> list[dict]:
    """Return one row a number."""
    rows: list[dict] = []
    with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as folder:
        assets = prepare(Path(folder) / "assets")
        rows += next_step(Path(folder) / "next", assets)
        rows += against_everything(Path(folder) / "cost", assets)
        rows += afterwards(Path(folder) / "after", assets)
    return rows


def label(trainer: str, critic: bool) -> str:
    return f"{trainer} {'GAE' if critic else 'GRPO'}"


def next_step(folder: Path, assets) -> list[dict]:
    """A NaN every third step, each an incident of its own: was its dump made at the very next step, and nothing else?"""
    rows, there, planted = [], 0, 0
    for trainer, critic in KINDS:
        place = folder / f"{trainer}-{critic}"
        stage = "critic_update" if critic else "actor_update"
        found = decisions(trainer, critic, stage, place, assets)
        good = sum(at_once(incident, stage) for incident in found)
        late = [i for i in found if not at_once(i, stage)]
        honest = [i for i in late if i["receipt"] and i["receipt"]["first_step"] > i["opened_at_step"] + 1]
        there, planted = there + good, planted + len(found)
        rows.append(
            {
                "name": f"{label(trainer, critic)}: {stage} captured at N+1, of {len(found)} decisions",
                "value": good,
                "unit": "captures",
                "peer": f"{len(honest)} of {len(late)} others have a receipt that says the later step" if late else "",
            }
        )
        strays = stray_files(place / "home", found)
        rows.append(
            {
                "name": f"{label(trainer, critic)}: dump files beside those of the orders",
                "value": len(strays),
                "unit": "files",
                "limit": 0,
            }
        )
    total = {"name": f"captures at N+1, of {planted} decisions (wait bound 50 ms)", "value": there, "unit": "captures"}
    return [*rows, {**total, "limit": planted, "at_least": True}]


def decisions(trainer: str, critic: bool, stage: str, folder: Path, assets) -> list[dict]:
    """The incidents of a run that is given a NaN every third step, oldest first."""
    name = f"next-{trainer}-{critic}"
    environment = {"SENTINEL_RUN": name, "SENTINEL_CONFIG": settings_file(folder, ONE_EACH)}
    fault = Fault(stage=stage, module=MODULE, kind="nan_grad", size=1, step=3, every=3)
    settings = RunSettings(
        name=name, steps=3 * TRIES + 3, trainer=trainer, critic=critic, fault=fault, environment=environment
    )
    with private_cluster() as cluster:
        launch(settings, folder / "run", assets, cluster, deadline_seconds=900)
    incidents = [json.loads(path.read_text()) for path in (folder / "home").glob("incidents/*/incident.json")]
    planted = [i for i in incidents if i["kind"] == "non_finite" and i["opened_at_step"] <= 3 * TRIES]
    return sorted(planted, key=lambda incident: incident["opened_at_step"])


def at_once(incident: dict, stage: str) -> bool:
    receipt = incident["receipt"] or {"paths": [], "stages": [], "first_step": None}
    return bool(receipt["paths"]) and (receipt["first_step"], receipt["stages"]) == (
        incident["opened_at_step"] + 1,
        [stage],
    )


def stray_files(home: Path, incidents: list[dict]) -> list[Path]:
    """Files below the dump root that no receipt names, and that are not the context of a step that one names."""
    named = [Path(path) for i in incidents if i["receipt"] for path in i["receipt"]["paths"]]
    contexts = {folder.parent / "context.json" for folder in named}
    files = {path for path in (home / "dumps").rglob("*") if path.is_file()} - contexts
    kept = {"dump.json", "stack.json", "construct.json"}
    return [f for f in files if f.name not in kept or not any(f.is_relative_to(folder) for folder in named)]


LAST_WARM, CAPTURED, LAST = 15, 30, 60
"""Steps: until then caches and allocators settle; then a mix dump of every stage; the end."""


def afterwards(folder: Path, assets) -> list[dict]:
    """Time of each stage after a mix dump of all of them, of before, in one run; with a critic.

    A machine's speed wanders by more than what is looked for. So a run of the same rows without any capture goes beside it, at the
    same time, and the stage times are taken as shares of its.
    """
    rows = []
    for trainer in ("v0", "v1"):
        place = folder / trainer
        place.mkdir(parents=True)
        orders = place / "orders.json"
        everything = {"first_step": CAPTURED, "last_step": CAPTURED, "stages": list(TIMINGS), "level": "mix"}
        orders.write_text(json.dumps([everything | {"why": "bench"}]))
        environments = {"plain": {}, "captured": {"SENTINEL_ORDERS": str(orders)}}
        critic = critic_overrides(assets.model, folder / "critic")

        def made(name: str, trainer=trainer, place=place, environments=environments, critic=critic) -> dict:
            settings = RunSettings(
                name=f"after-{trainer}", steps=LAST, trainer=trainer, critic=True, environment=environments[name], overrides=critic
            )  # fmt: skip
            with private_cluster() as cluster:
                return launch(settings, place / name, assets, cluster, deadline_seconds=900).metrics()

        with ThreadPoolExecutor(2) as pool:
            found = dict(zip(environments, pool.map(made, environments), strict=True))
        for key in TIMINGS.values():
            alone = ratio_after({step: values[key] for step, values in found["captured"].items()})
            shares = {step: values[key] / found["plain"][step][key] for step, values in found["captured"].items()}
            rows.append(
                {
                    "name": f"{trainer} GAE: {key} after a mix dump of every stage, of before",
                    "value": ratio_after(shares),
                    "unit": "x",
                    "limit": 1.05,
                    "peer": f"95 %: {interval(shares)}; not beside the other run {alone:.3f} x; dumped step {shares[CAPTURED]:.1f} x",
                }
            )
    return rows


BEFORE, AFTER = range(LAST_WARM + 1, CAPTURED), range(CAPTURED + 2, LAST + 1)


def ratio_after(seconds: dict[int, float]) -> float:
    """Median from the second step after the capture on, of the median before it."""
    before, after = ([seconds[step] for step in steps if step in seconds] for steps in (BEFORE, AFTER))
    return statistics.median(after) / statistics.median(before)


def interval(seconds: dict[int, float], resamples: int = 2000) -> str:
    """95 % interval of the same by resampling steps."""
    rng = random.Random(0)
    found = sorted(
        ratio_after({step: seconds[rng.choice(steps)] for steps in (BEFORE, AFTER) for step in steps})
        for _ in range(resamples)
    )
    return f"{found[int(0.025 * resamples)]:.2f} to {found[int(0.975 * resamples)]:.2f}"


PLACE = "model.layers.1.mlp.gate_proj"
FAULT = Fault(stage="ref_compute_log_prob", module=PLACE, kind="scale", size=1.05, step=3)


def against_everything(folder: Path, assets) -> list[dict]:
    """One incident, once with the escalation and once with every stage dumped at L1 for two steps: bytes, time, and what is named."""
    folder.mkdir(parents=True)
    orders = folder / "everything.json"
    everything = {"first_step": 4, "last_step": 5, "stages": list(TIMINGS), "level": "L1", "why": "everything"}
    orders.write_text(json.dumps([everything]))
    golden = folder / "golden.jsonl"
    watch = {"SENTINEL_RUN": "cost", "SENTINEL_CONFIG": with_baseline(folder, golden)}
    dump = {"SENTINEL_ORDERS": str(orders)}
    plan = (
        ("golden", {"SENTINEL_RECORD": str(golden)}, None),
        ("golden-everything", {**dump, "SENTINEL_RECORD": str(folder / "golden-everything.jsonl")}, None),
        ("escalated", watch, FAULT),
        ("everything", {**dump, "SENTINEL_RECORD": str(folder / "everything.jsonl")}, FAULT),
    )
    runs = {}
    critic = critic_overrides(assets.model, folder / "critic")
    with private_cluster() as cluster:
        for name, environment, fault in plan:
            settings = RunSettings(
                name="cost", steps=14, critic=True, rollouts=folder / "rollouts", fault=fault, environment=environment,
                overrides=critic,
            )  # fmt: skip
            runs[name] = launch(settings, folder / name, assets, cluster, deadline_seconds=400)
    (incident,) = [json.loads(path.read_text()) for path in (folder / "home").glob("incidents/*/incident.json")]
    mine = size_of(folder / "home" / "dumps")
    whole = size_of(folder / "everything.jsonl.dumps")
    dumped = {path for path in (folder / "home" / "dumps").rglob("step_*") if path.is_dir()}
    whole_tensors = {path for path in dumped if any(path.rglob("dump_tensor_data"))}
    added, added_before = (
        added_seconds(runs["escalated"].metrics(), {int(path.name.removeprefix("step_")) for path in some})
        for some in (dumped, dumped - whole_tensors)
    )
    before = mine - sum(map(size_of, whole_tensors))
    added_whole = added_seconds(runs["everything"].metrics(), (4, 5))
    print(json.dumps({"notes": incident["notes"], "because": incident["because"]}, indent=1), flush=True)
    named = [f"step_{n}/ref_compute_log_prob" for n in (4, 5)]
    by_everything = named_by(
        folder / "everything.jsonl.dumps" / named[0], folder / "golden-everything.jsonl.dumps" / named[0]
    )
    first = (incident["triage"] or {}).get("first") or {}
    return [
        {"name": "dump everything (5 stages, L1, 2 steps): bytes", "value": whole, "unit": "B"},
        {"name": "escalation, all its steps: bytes", "value": mine, "unit": "B"},
        {
            "name": "bytes of everything over those of the escalation",
            "value": whole / mine if mine else None,
            "unit": "x",
            "limit": 20,
            "at_least": True,
        },
        {"name": "the same until whole tensors are asked for", "value": whole / before, "unit": "x"},
        {
            "name": "time added to steps by everything over the escalation's",
            "value": added_whole / added if added > 0 else None,
            "unit": "x",
            "limit": 10,
            "at_least": True,
            "peer": f"{added_whole:.2f} s against {added:.2f} s; until whole tensors {added_before:.2f} s",
        },
        {
            "name": f"named {first.get('module')} (planted {PLACE}); everything: {by_everything}",
            "value": int(first.get("module") == PLACE),
            "unit": "of 1",
            "limit": 1,
            "at_least": True,
            "peer": incident["because"][-200:],
        },
    ]


def with_baseline(folder: Path, golden: Path) -> str:
    path = Path(settings_file(folder))
    path.write_text(json.dumps({**json.loads(path.read_text()), "baseline": str(golden)}))
    return str(path)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != "context.json")


def added_seconds(metrics: dict, steps) -> float:
    """Seconds that the stages of `steps` took beyond their median over the run."""
    added = 0.0
    for key in TIMINGS.values():
        usual = statistics.median(metrics[step][key] for step in metrics if step > 2)
        added += sum(metrics[step][key] - usual for step in steps)
    return added


def named_by(target: Path, golden: Path) -> str:
    """Module and operation that a pair of dumps names."""
    from sentinel.daemon.triaging import triage_paths

    first = triage_paths(str(target), str(golden)).first
    return "nothing" if first is None else f"{first.module}, {first.name}"
