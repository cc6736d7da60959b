# SPDX-License-Identifier: Apache-2.0
"""From the report of a step to the decision at the trainer: real emitter, real Ray, real daemon, a baseline of 100 metrics."""

from __future__ import annotations

import json
import logging
import os
import random
import tempfile
import time
from pathlib import Path

from bench.trainer import quantiles

STEPS = 300
WARM_UP = 20
METRICS = 100


def run() -> list[dict]:
    """Return one row a number."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as folder:
        baseline = Path(folder) / "baseline.jsonl"
        baseline.write_text(
            "".join(json.dumps({"step": n, "data": step(n, 0)}) + "\n" for n in range(1, STEPS + WARM_UP + 1))
        )
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        try:
            waits = decisions(folder, baseline)
        finally:
            ray.shutdown()
    p50, p99 = quantiles(waits)
    name = f"report of {METRICS} metrics to decision at the trainer"
    return [
        {"name": f"{name}: p50", "value": p50, "unit": "ms", "limit": None},
        {"name": f"{name}: p99", "value": p99, "unit": "ms", "limit": 20.0},
    ]


def step(number: int, seed: int) -> dict[str, float]:
    """One step of a free run: the keys that verl logs most, a value each."""
    numbers = random.Random(number * 7 + seed)
    keys = [
        "actor/entropy",
        "actor/pg_loss",
        "actor/kl_loss",
        "actor/grad_norm",
        "critic/score/mean",
        "response_length/mean",
    ]
    keys += [f"actor/extra_{i}" for i in range(METRICS - len(keys))]
    return {key: 1.0 + 0.01 * numbers.gauss(0, 1) for key in keys}


def decisions(folder: str, baseline: Path) -> list[float]:
    """Milliseconds from report to answer, one a step."""
    from sentinel.trainer.link import DaemonLink
    from sentinel.trainer.session import Outlets, Session

    config = f"home: {folder}/home\nbaseline: {baseline}\nhttp: {{port: 0}}\n"
    session = Session("bench", Outlets(daemon=DaemonLink("bench", os.urandom(4).hex(), config)), f"{folder}/dumps")
    session.started({"trainer": "bench"}, {"path": f"{folder}/sentinel.yaml", "text": config})
    emitter = session._daemon
    deadline = time.monotonic() + 60
    while not emitter.prompt and time.monotonic() < deadline:
        time.sleep(0.1)
    if not emitter.prompt:
        raise RuntimeError(f"no daemon: {emitter.last_error}")
    taken = []
    for number in range(1, STEPS + WARM_UP + 1):
        data = step(number, 1)
        began = time.perf_counter()
        session.step_logged(number, data)
        emitter.wait(emitter.last_number, 5.0)
        if number > WARM_UP:
            taken.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.02)
    session.close()
    return taken
