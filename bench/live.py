# SPDX-License-Identifier: Apache-2.0
"""Real verl runs: is step N+1 dumped, what do the stages cost afterwards, and does training stay what it was."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from sentinel.demo.assets import prepare
from sentinel.demo.cluster import private_cluster
from sentinel.demo.kit.faults import Fault
from sentinel.demo.runs import RunSettings, launch

TRIES = 20
STAGES = ["actor_compute_log_prob", "ref_compute_log_prob", "actor_update"]
TIMINGS = ("timing_s/old_log_prob", "timing_s/ref", "timing_s/update_actor")
NOT_TRAINING = ("timing", "perf/", "actor/perf", "critic/perf")
COMPARED = ("actor/pg_loss", "actor/kl_loss", "actor/entropy", "actor/grad_norm", "critic/score/mean")


def run() -> list[dict]:
    """Return one row a number."""
    rows: list[dict] = []
    with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as folder:
        assets = prepare(Path(folder) / "assets")
        for trainer in ("v0", "v1"):
            place = Path(folder) / trainer
            with private_cluster() as cluster:
                rows += next_step(trainer, place / "next", assets, cluster)
                rows += afterwards(trainer, place / "after", assets, cluster)
                rows += same_training(trainer, place / "same", assets, cluster)
    return rows


def settings_file(folder: Path, engine: dict | None = None) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sentinel.yaml"
    path.write_text(json.dumps({"home": str(folder / "home"), "http": {"port": 0}, "engine": engine or {}}))
    return str(path)


def next_step(trainer: str, folder: Path, assets, cluster) -> list[dict]:
    """A NaN every third step, each an incident of its own: was the dump made at the very next step?"""
    engine = {
        "incidents": {"reopen_within_steps": 0, "close_non_finite_after_steps": 1},
        "capture": {"cool_down_steps": 0, "steps": 1, "stages": 1, "extensions": 0, "most_steps": 1000},
    }
    environment = {"SENTINEL_RUN": f"next-{trainer}", "SENTINEL_CONFIG": settings_file(folder, engine)}
    fault = Fault(stage="actor_update", module="model.layers.1.mlp", kind="nan_grad", size=1, step=3, every=3)
    steps = 3 * TRIES + 3
    launch(
        RunSettings(name=f"next-{trainer}", steps=steps, trainer=trainer, fault=fault, environment=environment),
        folder / "run",
        assets,
        cluster,
        deadline_seconds=900,
    )
    incidents = [json.loads(path.read_text()) for path in (folder / "home").glob("incidents/*/incident.json")]
    planted = [i for i in incidents if i["kind"] == "non_finite" and i["opened_at_step"] <= 3 * TRIES]
    there = [
        i
        for i in planted
        if i["receipt"] and i["receipt"]["first_step"] == i["opened_at_step"] + 1 and i["receipt"]["paths"]
    ]
    return [
        {
            "name": f"{trainer}: captures at N+1 of {TRIES} decisions on step N (wait bound 50 ms)",
            "value": len(there),
            "unit": "captures",
            "limit": TRIES,
            "at_least": True,
        }
    ]


def afterwards(trainer: str, folder: Path, assets, cluster) -> list[dict]:
    """Median time of each stage after a mix dump of all stages, against before, in one run."""
    folder.mkdir(parents=True)
    orders = folder / "orders.json"
    orders.write_text(
        json.dumps([{"first_step": 14, "last_step": 14, "stages": STAGES, "level": "mix", "why": "bench"}])
    )
    done = launch(
        RunSettings(name=f"after-{trainer}", steps=28, trainer=trainer, environment={"SENTINEL_ORDERS": str(orders)}),
        folder / "run",
        assets,
        cluster,
        deadline_seconds=600,
    )
    metrics = done.metrics()
    rows = []
    for key in TIMINGS:
        before = statistics.median(metrics[step][key] for step in range(3, 14))
        after = statistics.median(metrics[step][key] for step in range(16, 29))
        rows.append(
            {
                "name": f"{trainer}: {key} after a mix dump, of before",
                "value": after / before,
                "unit": "x",
                "limit": 1.05,
                "peer": f"dumped step {metrics[14][key] / before:.1f} x",
            }
        )
    return rows


def same_training(trainer: str, folder: Path, assets, cluster) -> list[dict]:
    """The largest relative difference of what training computed: watched and dumped against unwatched, replayed rollouts."""
    folder.mkdir(parents=True)
    orders = folder / "orders.json"
    orders.write_text(json.dumps([{"first_step": 3, "last_step": 4, "stages": STAGES, "level": "L0", "why": "bench"}]))
    watched = {
        "SENTINEL_RUN": f"same-{trainer}",
        "SENTINEL_CONFIG": settings_file(folder / "sentinel"),
        "SENTINEL_ORDERS": str(orders),
    }
    runs = {}
    for name, environment in (("recorded", {}), ("plain", {}), ("again", {}), ("watched", watched)):
        settings = RunSettings(
            name=name, steps=6, trainer=trainer, rollouts=folder / "rollouts", environment=environment
        )
        runs[name] = launch(settings, folder / name, assets, cluster, deadline_seconds=600).metrics()
    return [
        {
            "name": f"{trainer}: largest relative difference of losses, {label}",
            "value": difference(runs["plain"], runs[name]),
            "unit": "",
            "limit": 0.0 if trainer == "v0" else None,
        }
        for label, name in (("two unwatched runs", "again"), ("watched and dumped against unwatched", "watched"))
    ]


def difference(one: dict, other: dict) -> float:
    largest = 0.0
    for step, metrics in one.items():
        for key in COMPARED:
            a, b = metrics.get(key), other[step].get(key)
            if a is None or b is None:
                largest = max(largest, 0.0 if a == b else float("inf"))
            elif a != b:
                largest = max(largest, abs(a - b) / max(abs(a), abs(b)))
    return largest
