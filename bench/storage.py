# SPDX-License-Identifier: Apache-2.0
"""Numbers of the storage part: size and opening time of a bundle, and of a journal of a million steps."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from sentinel.records import Reading, ReferenceRun
from sentinel.storage.bundle import open_bundle, write_bundle
from sentinel.storage.journal import Journal

STEPS, METRICS, SEEDS = 1_000, 100, 5
JOURNAL_STEPS = 1_000_000


def run() -> list[dict]:
    """Return one row a number; a row whose value exceeds its limit has failed."""
    with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as folder:
        return _bundle(Path(folder)) + _journal(Path(folder) / "journal")


def _row(name: str, value: float, unit: str, limit: float | None) -> dict:
    return {"name": name, "value": value, "unit": unit, "limit": limit}


def _runs() -> list[ReferenceRun]:
    """Metrics with every bit in use, some absent on most steps, as validation metrics are: the hard case."""
    numbers = random.Random(20)
    runs = []
    for seed in range(SEEDS):
        readings = [
            Reading(
                step=step,
                metrics={
                    f"group_{i % 7}/metric_{i}": numbers.gauss(10.0 ** -(i % 9), 1e-3)
                    for i in range(METRICS)
                    if i % 10 or step % 5 == 0
                },
            )
            for step in range(1, STEPS + 1)
        ]
        runs.append(ReferenceRun(source=f"seed{seed}.jsonl", readings=tuple(readings), twin=seed == SEEDS - 1))
    return runs


def _bundle(folder: Path) -> list[dict]:
    path = folder / "bench.sentinel"
    before = time.perf_counter()
    write_bundle(path, name="bench", runs=_runs())
    written = time.perf_counter() - before
    opened = []
    for _ in range(9):
        before = time.perf_counter()
        reference = open_bundle(path).reference()
        opened.append(time.perf_counter() - before)
    assert sum(len(run.readings) for run in reference.runs) == STEPS * SEEDS
    what = f"bundle of {STEPS} steps x {METRICS} metrics x {SEEDS} runs"
    return [
        _row(f"{what}: size", path.stat().st_size / 1e6, "MB", 5.0),
        _row(f"{what}: opened, verified, every value in memory (best of 9)", 1e3 * min(opened), "ms", 100.0),
        _row(f"{what}: written", written, "s", None),
    ]


def _journal(folder: Path) -> list[dict]:
    largest = 0
    values = {"actor/loss": 0.1, "actor/grad_norm": 1.7, "critic/score/mean": float("nan")}
    before = time.perf_counter()
    with Journal(folder, run="bench") as journal:
        for step in range(1, JOURNAL_STEPS + 1):
            journal.append("step", {"step": step, "values": values})
            if journal.snapshot_due:
                journal.write_snapshot({"last_step": step, "series": [values] * 100})
                largest = max(largest, journal.bytes_used()) if step % 50_000 == 0 else largest
        for step in range(999):
            journal.append("step", {"step": JOURNAL_STEPS + step, "values": values})
    a_step = (time.perf_counter() - before) / JOURNAL_STEPS
    before = time.perf_counter()
    with Journal(folder) as journal:
        read = sum(1 for _ in journal.read())
        opened = time.perf_counter() - before
        used = max(largest, journal.bytes_used())
    assert read == 1000
    return [
        _row("journal of 1,000,000 steps: opened and read, 999 entries behind the snapshot", opened, "s", 1.0),
        _row("journal of 1,000,000 steps: most disk in use", used / 1e6, "MB", 70.0),
        _row("journal: one step mark, snapshots included (mean)", 1e6 * a_step, "us", None),
    ]


if __name__ == "__main__":
    for row in run():
        print(
            f"{row['value']:12.3f} {row['unit']:3} {row['name']}" + (f" (limit {row['limit']})" if row["limit"] else "")
        )
