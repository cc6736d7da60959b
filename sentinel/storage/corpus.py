# SPDX-License-Identifier: Apache-2.0
"""A corpus of runs whose faults are known: `corpus.json` beside `runs.parquet`.

The manifest names groups (regime, seeds, twins) and runs (role, planted fault with its strength). The table has one row per
run and step and one float32 column per metric: null is an absent metric, NaN is NaN.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentinel.core.detect.evaluate import PlantedFault
from sentinel.errors import UnreadableLog
from sentinel.records import Reading, Reference, ReferenceRun

FORMAT = "sentinel-corpus/1"
MANIFEST = "corpus.json"
TABLE = "runs.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusRun:
    """One run of the corpus."""

    id: str
    group: str
    regime: str
    role: str
    """base, seed, twin (parts of the reference); clean, fault (runs to be judged)."""
    fault: PlantedFault | None
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusGroup:
    """Runs of one recipe in one regime, with the reference that they are judged against."""

    id: str
    regime: str
    recipe: str
    reference: Reference
    judged: tuple[CorpusRun, ...]
    """Clean and faulty runs; never a part of the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Everything under one directory."""

    split: str
    groups: tuple[CorpusGroup, ...]


def read_corpus(path: str | Path) -> Corpus:
    """The corpus under a directory.

    Raises:
        UnreadableLog: the directory holds no corpus, or manifest and table do not fit each other.
    """
    folder = Path(path)
    manifest = _manifest(folder)
    readings = _readings(folder / TABLE)
    try:
        runs = [_run(entry, manifest, readings[number]) for number, entry in enumerate(manifest["runs"])]
        groups = tuple(_group(entry, runs) for entry in manifest["groups"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UnreadableLog(
            folder, "unreadable", f"{MANIFEST} and {TABLE} do not fit each other ({error!r}); build the corpus again"
        ) from error
    return Corpus(split=str(manifest.get("split", "")), groups=groups)


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableLog(
            folder, "unreadable", f"no {MANIFEST} can be read there ({error}); name a directory that holds a corpus"
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UnreadableLog(folder / MANIFEST, "unknown_format", f'its "format" is not "{FORMAT}"')
    return document


def _readings(path: Path) -> list[tuple[Reading, ...]]:
    """The readings of each run, by its index in the manifest."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise UnreadableLog(path, "unreadable", f"it is no Parquet table ({error})") from error
    if not {"run", "step"} <= set(table.column_names):
        raise UnreadableLog(path, "unreadable", "it has no columns run and step; build the corpus again")
    metrics = [name for name in table.column_names if name not in ("run", "step")]
    steps = table["step"].to_pylist()
    rows: list[dict[str, float]] = [{} for _ in steps]
    for metric in metrics:
        column = table[metric]
        values = column.to_numpy(zero_copy_only=False).astype(np.float64)
        for row in np.flatnonzero(np.asarray(column.is_valid())).tolist():
            rows[row][metric] = float(values[row])
    owners = table["run"].to_pylist()
    by_run: list[list[Reading]] = [[] for _ in range(max(owners, default=-1) + 1)]
    for owner, step, values_of_step in zip(owners, steps, rows, strict=True):
        by_run[owner].append(Reading(step, values_of_step))
    return [tuple(of_run) for of_run in by_run]


def _run(entry: Mapping[str, Any], manifest: Mapping[str, Any], readings: tuple[Reading, ...]) -> CorpusRun:
    regime = next(group["regime"] for group in manifest["groups"] if group["id"] == entry["group"])
    fault = entry["fault"]
    planted = None
    if fault is not None:
        planted = PlantedFault(
            kind=fault["kind"],
            stage=fault["stage"],
            magnitude=fault["magnitude"],
            onset=int(fault["onset"]),
            strength=float(fault["strength"]),
            visible_from=fault["visible_from"],
        )
    return CorpusRun(
        id=entry["id"], group=entry["group"], regime=regime, role=entry["role"], fault=planted, readings=readings
    )


def _group(entry: Mapping[str, Any], runs: list[CorpusRun]) -> CorpusGroup:
    members = [run for run in runs if run.group == entry["id"]]
    by_id = {run.id: run for run in members}
    seeds = [ReferenceRun(name, by_id[name].readings) for name in entry["seeds"]]
    twins = [ReferenceRun(name, by_id[name].readings, twin=True) for name in entry["twins"]]
    return CorpusGroup(
        id=entry["id"],
        regime=entry["regime"],
        recipe=entry["recipe"],
        reference=Reference(name=entry["id"], runs=(*seeds, *twins)),
        judged=tuple(run for run in members if run.role in ("clean", "fault")),
    )
