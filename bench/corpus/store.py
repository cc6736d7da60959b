# SPDX-License-Identifier: Apache-2.0
"""The corpus on disk: `corpus.json` (groups, runs, faults with their strength) and `runs.parquet` (one row a step).

Columns of the table: `run` (index into the manifest's runs), `step`, then one float32 column per metric; null is absent, NaN
is NaN. `sentinel.storage.corpus` reads it.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.corpus import build, plan
from bench.corpus.strength import clean_band, strength

FORMAT = "sentinel-corpus/1"


def assemble(split: str, runs: list[plan.Run], work: Path, out: Path) -> None:
    """Write what is there of a split; groups without their reference and 8 clean runs are left out."""
    loaded = {run.id: load(work / f"{run.id}.npz") for run in runs if (work / f"{run.id}.npz").exists()}
    groups, entries, kept = [], [], []
    for group in dict.fromkeys(run.group for run in runs):
        members = [run for run in runs if run.group == group and run.id in loaded]
        reference = [run for run in members if run.role in ("base", "seed", "twin")]
        clean = [run for run in members if run.fault is None]
        if len(clean) < 8 or len(reference) != 5:
            continue
        groups.append(describe_group(group, members))
        metrics = sorted({key for run in clean for key in loaded[run.id][0]})
        band = clean_band(metrics, np.array([matrix(loaded[run.id], metrics) for run in clean]))
        for run in members:
            entry = build.describe(run)
            if run.fault is not None:
                size, seen = strength(matrix(loaded[run.id], metrics), band, entry["fault"]["stage"], run.fault.onset)
                entry["fault"] |= {"strength": "inf" if math.isinf(size) else round(size, 4), "visible_from": seen}
            entries.append(entry)
            kept.append(loaded[run.id])
    if not groups:
        return
    build.write_json(out / "corpus.json", {"format": FORMAT, "split": split, "groups": groups, "runs": entries})
    write_table(out / "runs.parquet", kept)


def describe_group(group: str, members: list[plan.Run]) -> dict[str, object]:
    return {
        "id": group,
        "regime": members[0].regime,
        "recipe": members[0].recipe,
        "seeds": [run.id for run in members if run.role in ("base", "seed")],
        "twins": [run.id for run in members if run.role == "twin"],
    }


def load(path: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    with np.load(path) as arrays:
        return arrays["keys"].tolist(), arrays["values"], arrays["present"]


def matrix(run: tuple[list[str], np.ndarray, np.ndarray], metrics: list[str]) -> np.ndarray:
    keys, values, _ = run
    place = {key: column for column, key in enumerate(keys)}
    columns = [values[:, place[key]] if key in place else np.full(len(values), np.nan) for key in metrics]
    return np.stack(columns, 1)


def write_table(path: Path, runs: list[tuple[list[str], np.ndarray, np.ndarray]]) -> None:
    metrics = sorted({key for keys, _, _ in runs for key in keys})
    steps = [len(values) for _, values, _ in runs]
    columns: dict[str, pa.Array] = {
        "run": pa.array(np.repeat(np.arange(len(runs)), steps).astype(np.int32)),
        "step": pa.array(np.concatenate([np.arange(1, count + 1) for count in steps]).astype(np.int32)),
    }
    for metric in metrics:
        values, absent = [], []
        for keys, table, present in runs:
            if metric in keys:
                column = keys.index(metric)
                values.append(table[:, column])
                absent.append(~present[:, column])
            else:
                values.append(np.zeros(len(table)))
                absent.append(np.ones(len(table), dtype=bool))
        with np.errstate(over="ignore"):
            numbers = np.concatenate(values).astype(np.float32)
        columns[metric] = pa.array(numbers, mask=np.concatenate(absent))
    floats = dict.fromkeys(metrics, "BYTE_STREAM_SPLIT")
    pq.write_table(
        pa.table(columns), path, compression="zstd", compression_level=19, use_dictionary=False, column_encoding=floats
    )
