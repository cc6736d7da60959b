# SPDX-License-Identifier: Apache-2.0
"""Real verl runs: does training stay what it was; what captures cost there is in `captures`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from sentinel.demo.assets import prepare
from sentinel.demo.cluster import private_cluster
from sentinel.demo.runs import RunSettings, launch

STAGES = ["actor_compute_log_prob", "ref_compute_log_prob", "actor_update"]
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
                rows += same_training(trainer, place / "same", assets, cluster)
    return rows


def settings_file(folder: Path, engine: dict | None = None) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sentinel.yaml"
    path.write_text(json.dumps({"home": str(folder / "home"), "http": {"port": 0}, "engine": engine or {}}))
    return str(path)


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
