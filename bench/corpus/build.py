# SPDX-License-Identifier: Apache-2.0
"""Runs a plan and writes the corpus.

One process per run, several at a time; each finished run is a file under `<out>/work`, so that an interrupted build goes
on where it stopped. Deterministic by seed on one machine and torch version, timings excepted.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from bench.corpus import plan, store
from bench.corpus.faults import KINDS


def build(split: str, out: Path, *, processes: int, gpu: bool, seconds: float, groups: list[str]) -> bool:
    """Make what is missing of a split, at most for `seconds`; True when the corpus is complete and written."""
    todo = [run for run in plan.runs(split, gpu=gpu) if not groups or run.group in groups]
    work = out / "work"
    work.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + seconds
    # Bases first: what replays them needs their tokens.
    for batch in ([run for run in todo if run.role == "base"], [run for run in todo if run.role != "base"]):
        make(batch, work, processes, until)
    finished = all((work / f"{run.id}.npz").exists() for run in todo)
    store.assemble(split, todo, work, out)
    return finished


def make(runs: list[plan.Run], work: Path, processes: int, until: float) -> None:
    missing = [run for run in runs if not (work / f"{run.id}.npz").exists()]
    # Threads that wait by spinning would starve the other processes.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    context = multiprocessing.get_context("spawn")
    # Runs on the GPU take longest and are few: they go first.
    missing.sort(key=lambda run: run.kernel.device == "cpu")
    with context.Pool(processes, initializer=alone) as pool:
        jobs = [(run, str(work), until) for run in missing]
        for number, (name, seconds) in enumerate(pool.imap_unordered(one, jobs), 1):
            if seconds is not None:
                print(f"{number}/{len(missing)} {name} {seconds:.1f} s", flush=True)


def alone() -> None:
    """One thread a process: the runs themselves are what is parallel."""
    import torch

    torch.set_num_threads(1)


def one(job: tuple[plan.Run, str, float]) -> tuple[str, float | None]:
    run, work, until = job
    if time.monotonic() > until:
        return run.id, None
    started = time.monotonic()
    reports, recorded = execute(run, Path(work))
    keys = sorted({key for report in reports for key in report})
    values = np.array([[report.get(key, np.nan) for key in keys] for report in reports], dtype=np.float64)
    present = np.array([[key in report for key in keys] for report in reports])
    arrays = {"keys": np.array(keys), "values": values, "present": present}
    if recorded is not None:
        arrays |= recorded
    unfinished = Path(work) / f".{run.id}.npz"
    np.savez_compressed(unfinished, **arrays)
    os.replace(unfinished, Path(work) / f"{run.id}.npz")
    return run.id, time.monotonic() - started


def execute(run: plan.Run, work: Path) -> tuple[list[dict[str, float]], dict[str, np.ndarray] | None]:
    """The metrics of each step; for a base run also what a replay needs."""
    import torch

    from bench.corpus.recipe import RECIPES
    from bench.corpus.trainer import Recording, Trainer, recording

    torch.set_num_threads(run.kernel.threads)
    recipe, replay = RECIPES[run.recipe], None
    if run.replay_of:
        with np.load(work / f"{run.replay_of}.npz") as base:
            replay = Recording(torch.from_numpy(base["responses"]), torch.from_numpy(base["log_probs"]))
    kernel = run.kernel
    if kernel.device == "cuda":
        kernel = replace(kernel, device=f"cuda:{run.seed % torch.cuda.device_count()}")
    trainer = Trainer(recipe, kernel, run.seed, replay=replay, score_again=run.score_again, plant=run.fault)
    reports = [trainer.step() for _ in range(run.steps)]
    if run.role != "base":
        return reports, None
    made = recording(trainer)
    return reports, {"responses": made.responses.numpy(), "log_probs": made.log_probs.numpy()}


def describe(run: plan.Run) -> dict[str, object]:
    """The manifest's entry of one run, before its strength is known."""
    entry: dict[str, object] = {
        "id": run.id,
        "group": run.group,
        "role": run.role,
        "seed": run.seed,
        "kernel": asdict(run.kernel),
        "fault": None,
    }
    if run.fault is not None:
        entry["fault"] = {
            "kind": run.fault.kind,
            "stage": KINDS[run.fault.kind].stage,
            "size": run.fault.size,
            "magnitude": run.size_name,
            "onset": run.fault.onset,
        }
    return entry


def write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
