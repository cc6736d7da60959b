# SPDX-License-Identifier: Apache-2.0
"""Healthy runs judged again without a trainer: each seed and twin by the others, and each side's runs by the other side's.

The same engine as the live one, its shipped settings. A run is never in the baseline that judges it. Twins are replays of the reference,
seeds are free runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from sentinel.core.engine import Engine, EngineSettings
from sentinel.daemon.metric_catalogue import load_catalogue
from sentinel.records import Reading, Reference, ReferenceRun, StepReported
from sentinel.storage.bundle import open_bundle
from sentinel.storage.corpus import CorpusRun, read_corpus

from .calibration import BUNDLES, HERE

ENGINE = Engine(EngineSettings(), load_catalogue())
GRPO = "tiny-grpo-fp32"
CORPUS = HERE.parent / "corpus" / "data" / "validation"


def from_file(path: Path) -> ReferenceRun:
    """What verl's file logger wrote: null is a value that is not finite."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    readings = tuple(
        Reading(row["step"], {k: float("nan") if v is None else v for k, v in row["data"].items()}) for row in rows
    )
    return ReferenceRun(str(path), readings)


def judge(candidate: ReferenceRun | CorpusRun, runs: Iterable[ReferenceRun]) -> dict:
    """What the engine says of a run that is known to be healthy."""
    state = ENGINE.initial("healthy", Reference("bench", tuple(replace(run, twin=run.twin) for run in runs)))
    for reading in candidate.readings:
        state, _ = ENGINE.advance(state, StepReported(step=reading.step, values=reading.metrics, kind=reading.kind))
    snapshot = ENGINE.snapshot(state)
    return {
        "regime": snapshot.regime,
        "steps": len(candidate.readings),
        "alarms": [(one.opened_at_step, one.because) for one in snapshot.incidents],
    }


def judged() -> list[dict]:
    """One row a judged run."""
    return [*_left_out(), *_across(), *_corpus()]


def _left_out() -> Iterator[dict]:
    for name, path in BUNDLES.items():
        runs = open_bundle(path).reference().runs
        seeds, twins = [r for r in runs if not r.twin], [r for r in runs if r.twin]
        for one in twins:
            others = [replace(seeds[0], twin=False), *(r for r in twins if r is not one)]
            yield _row(f"H200 {name} {Path(one.source).stem}", "H200: the reference and the other twin", one, others)
        for one in seeds if len(seeds) > 2 else ():
            yield _row(
                f"H200 {name} {Path(one.source).stem}", "H200: the other seeds", one, [r for r in seeds if r is not one]
            )


def _across() -> Iterator[dict]:
    """The seeds of one side against those of the other."""
    bundle = list(open_bundle(BUNDLES[GRPO]).reference().runs)
    seeds = [run for run in bundle if not run.twin]
    here = [from_file(path) for path in sorted((HERE / "results").glob("healthy-free-*.jsonl"))]
    for path in sorted((HERE / "data").glob("cpu-free-*.jsonl")):
        yield _row(f"CPU {path.stem}", "H200: the bundle", from_file(path), bundle)
    more = from_file(HERE / "data" / "h200-seed-46.jsonl")
    yield _row("H200 tiny-grpo-fp32 seed-46", "H200: the bundle's seeds", more, seeds)
    for one in here:
        yield _row(f"CPU {Path(one.source).stem}", "H200: the bundle's seeds", one, seeds)
    if len(here) > 1:
        for one in (*seeds, more):
            yield _row(f"H200 tiny-grpo-fp32 {Path(one.source).stem}", "CPU: its seeds", one, here)


def _corpus() -> Iterator[dict]:
    """The corpus' own small trainer: its runs on the H200 against what it did on a CPU. They set no limit of the catalogue."""
    on_gpu = {
        run["id"]
        for run in json.loads((CORPUS / "corpus.json").read_text())["runs"]
        if run["kernel"]["device"] == "cuda"
    }
    for group in read_corpus(CORPUS).groups:
        for run in group.judged:
            if run.id in on_gpu:
                yield {
                    "run": f"H200 {run.id}",
                    "against": f"CPU: {AGAINST[group.regime]}",
                    **judge(run, group.reference.runs),
                }


AGAINST = {"replayed": "the run that is replayed, and twins", "free": "seeds"}


def crossed(row: dict) -> bool:
    """Whether a judged run is of other hardware than what judges it."""
    return row["run"].split()[0] != row["against"].split(":")[0]


def _row(name: str, against: str, candidate: ReferenceRun, runs: list[ReferenceRun]) -> dict:
    return {"run": name, "against": against, **judge(candidate, runs)}


def table(rows: list[dict]) -> str:
    """One line a run."""
    lines = ["| run | against | regime | steps | false alarms |", "|---|---|---|---|---|"]
    for row in rows:
        alarms = "; ".join(f"step {step}: {because}" for step, because in row["alarms"]) or "0"
        lines.append(f"| {row['run']} | {row['against']} | {row['regime']} | {row['steps']} | {alarms} |")
    steps, wrong = sum(row["steps"] for row in rows), sum(len(row["alarms"]) for row in rows)
    return "\n".join([*lines, f"| **{len(rows)} runs** | | | **{steps}** | **{wrong}** |"])
