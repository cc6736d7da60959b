# SPDX-License-Identifier: Apache-2.0
"""What a verdict costs: `advance` for 100 and 2,000 series in each regime, how many runs one core carries, and a run's memory.

`python -m bench.engine` prints the table; `run()` returns its rows.
"""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace

import numpy as np

from sentinel.core.engine import Engine, EngineSettings, WatchState
from sentinel.daemon.metric_catalogue import load_catalogue
from sentinel.records import Reading, Reference, ReferenceRun, StepReported

STEPS = 300
KNOWN = (
    "response_length/mean",
    "critic/score/mean",
    "rollout_corr/rollout_log_ppl",
    "actor/entropy",
    "actor/grad_norm",
    "actor/ppo_kl",
    "actor/pg_loss",
    "actor/kl_loss",
    "training/rollout_probs_diff_mean",
    "timing_s/gen",
)


def keys(count: int) -> tuple[str, ...]:
    rest = (f"rollout_corr/rollout_is_{number}" if number % 2 else f"actor/metric_{number}" for number in range(count))
    return (*KNOWN, *rest)[:count]


def a_run(count: int, seed: int, *, steps: int = STEPS) -> tuple[Reading, ...]:
    rng = np.random.default_rng(seed)
    names = keys(count)
    table = np.exp(0.1 * rng.normal(size=(steps, count)))
    return tuple(
        Reading(step=step, metrics=dict(zip(names, row.tolist(), strict=True))) for step, row in enumerate(table, 1)
    )


def a_repeat(run: tuple[Reading, ...], seed: int) -> tuple[Reading, ...]:
    rng = np.random.default_rng(seed)
    exact = set(KNOWN[:3])
    return tuple(
        replace(
            reading,
            metrics={
                key: value if key in exact else value * (1 + 1e-5 * rng.normal())
                for key, value in reading.metrics.items()
            },
        )
        for reading in run
    )


def scene(regime: str, count: int) -> tuple[Reference | None, tuple[Reading, ...]]:
    """A reference and a healthy candidate."""
    run = a_run(count, 1)
    if regime == "alone":
        return None, run
    if regime == "replayed":
        twins = tuple(ReferenceRun(source=f"twin{seed}", readings=a_repeat(run, seed), twin=True) for seed in (2, 3))
        return Reference(name="r", runs=(ReferenceRun(source="seed", readings=run), *twins)), a_repeat(run, 9)
    seeds = tuple(ReferenceRun(source=f"seed{seed}", readings=a_run(count, seed)) for seed in range(1, 6))
    return Reference(name="r", runs=seeds), a_run(count, 9)


def timed(engine: Engine, state: WatchState, run: tuple[Reading, ...]) -> tuple[WatchState, np.ndarray]:
    """The last state, and milliseconds of each step after the first ten: the thread's own CPU time, for machines are shared."""
    spent = []
    for reading in run:
        event = StepReported(step=reading.step, values=reading.metrics)
        began = time.thread_time()
        state, _ = engine.advance(state, event)
        spent.append(time.thread_time() - began)
    return state, np.array(spent[10:]) * 1e3


def run() -> list[dict[str, object]]:
    engine = Engine(EngineSettings(), load_catalogue())
    rows: list[dict[str, object]] = []
    for count in (100, 2000):
        for regime in ("alone", "replayed", "free"):
            reference, candidate = scene(regime, count)
            state, spent = timed(engine, engine.initial("run", reference), candidate)
            assert state.regime == regime, state.regime
            rows.append(
                row(f"advance, {count} series, {regime}, p50", np.median(spent), "ms", 1.0 if count == 100 else None)
            )
            rows.append(
                row(
                    f"advance, {count} series, {regime}, p99",
                    np.quantile(spent, 0.99),
                    "ms",
                    5.0 if count == 2000 else None,
                )
            )
            if count == 100:
                rows.append(
                    row(
                        f"runs of 100 metrics at one step a second, {regime}, one core",
                        1e3 / spent.mean(),
                        "runs",
                        None,
                    )
                )
    rows.append(row("memory of one replayed run of 100 metrics", memory(engine), "MB", None))
    return rows


def memory(engine: Engine) -> float:
    """Megabytes that one watch holds after 300 steps, its baseline of a seed and two twins included."""
    reference, candidate = scene("replayed", 100)
    tracemalloc.start()
    state, _ = timed(engine, engine.initial("run", reference), candidate)
    held = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    assert state.last_step == STEPS
    return held


def row(name: str, value: float, unit: str, limit: float | None) -> dict[str, object]:
    return {"name": name, "value": round(float(value), 3), "unit": unit, "limit": limit}


if __name__ == "__main__":
    for line in run():
        limit = "" if line["limit"] is None else f"  (limit {line['limit']:g})"
        print(f"{line['name']:70s} {line['value']:10.3f} {line['unit']}{limit}")
