# SPDX-License-Identifier: Apache-2.0
"""What is done with dumps that have come: their context is written beside them, and old ones go when they take too much room."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel import __version__
from sentinel.core.capture.retention import to_forget
from sentinel.core.engine.moments import HEALTHY
from sentinel.core.report import render
from sentinel.daemon.report_files import replace
from sentinel.sinks import json_text

if TYPE_CHECKING:
    from sentinel.daemon.run_watch import RunWatch
    from sentinel.records import Capture

CONTEXT = "context.json"
"""Beside the stages of a dumped step."""
ROWS = 64
"""Rows of a step whose prompt and uid are kept."""
PROMPT_LENGTH = 2000
_LONGEST_LINE = 1 << 22


@dataclass(frozen=True, slots=True)
class Material:
    """What a capture's context is written from."""

    capture: Capture
    document: dict[str, Any]
    metrics: dict[int, dict[str, float]]
    rollouts: Path | None


def gather(watch: RunWatch, name: str) -> Material | None:
    """Return what is known around a capture; None where it dumped nothing."""
    capture = next((one for one in watch.state.book.captures if one.id == name), None)
    if capture is None or capture.receipt is None or not capture.receipt.paths:
        return None
    incident = watch.incidents.get(capture.incident or "")
    document = {
        "sentinel": __version__,
        "run": watch.run,
        "capture": render.capture_to_plain(capture),
        "incident": None if incident is None else render.incident_to_row(incident),
        "trainer": dict(watch.facts),
        "workers": [_of_worker(worker) for worker in watch.description.facts.get("workers") or ()],
    }
    rollouts = watch.facts.get("rollout_data_dir")
    folder = Path(rollouts) if isinstance(rollouts, str) and rollouts else None
    return Material(capture, document, _metrics(watch), folder)


def _of_worker(worker: Any) -> dict[str, Any]:
    """Rank, place and versions of a worker; its variables stay in the fingerprint."""
    known = worker if isinstance(worker, dict) else {}
    return {
        name: known.get(name) for name in ("rank", "host", "python", "packages", "hardware", "parameters", "dtypes")
    }


def _metrics(watch: RunWatch) -> dict[int, dict[str, float]]:
    index = watch.state.index
    keys = () if index is None else index.keys
    return {
        past.step: {key: float(v) for key, v, there in zip(keys, past.values, past.present, strict=False) if there}
        for past in watch.state.past
    }


def write(material: Material) -> list[Path]:
    """Write the context of a capture beside each of its steps, and return the files.

    Raises:
        OSError: a folder is not writable, or not seen from this host.
    """
    receipt = material.capture.receipt
    written = []
    folders = dict.fromkeys(Path(path).parent for path in (receipt.paths if receipt is not None else ()))
    for folder in folders:
        step = int(folder.name.rpartition("_")[2])
        rollout_file = _rollout_file(material.rollouts, step)
        document = {
            **material.document,
            "step": step,
            "metrics": material.metrics.get(step),
            "rollout_file": None if rollout_file is None else str(rollout_file),
            "rows": None if rollout_file is None else rows_of(rollout_file),
        }
        replace(folder / CONTEXT, json_text.to_text(document, indent=1) + "\n")
        written.append(folder / CONTEXT)
    return written


def _rollout_file(folder: Path | None, step: int) -> Path | None:
    path = None if folder is None else folder / f"{step}.jsonl"
    return path if path is not None and path.is_file() else None


def rows_of(path: Path) -> list[dict[str, Any]] | None:
    """Return uid and prompt of the first rows of verl's rollout data; None where it cannot be read."""
    rows: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            for line in itertools.islice(iter(lambda: stream.readline(_LONGEST_LINE), ""), ROWS):
                row = json.loads(line)
                rows.append({"uid": row.get("uid"), "prompt": str(row.get("input", ""))[:PROMPT_LENGTH]})
    except (OSError, ValueError, AttributeError):
        return None
    return rows


def forgettable(watch: RunWatch, most_bytes: int) -> tuple[tuple[Capture, ...], frozenset[str]]:
    """Return the captures whose dumps have to go, and the paths that others still name."""
    book = watch.state.book
    there = [one for one in book.captures if one.receipt is not None and any(map(os.path.isdir, one.receipt.paths))]
    needed = {f"{watch.run}:{HEALTHY}", *watch.asked}
    doomed = to_forget(there, watch.incidents.values(), book.at, most_bytes, needed)
    others = (one.receipt.paths for one in there if one not in doomed and one.receipt is not None)
    return doomed, frozenset(itertools.chain.from_iterable(others))


def forget(doomed: tuple[Capture, ...], needed: frozenset[str]) -> list[str]:
    """Delete dumps; return the names of the captures that are gone from the disk."""
    gone = []
    for capture in doomed:
        paths = [path for path in (capture.receipt.paths if capture.receipt is not None else ()) if path not in needed]
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
            step = Path(path).parent
            if step.is_dir() and {entry.name for entry in step.iterdir()} <= {CONTEXT}:
                shutil.rmtree(step, ignore_errors=True)
        if not any(Path(path).exists() for path in paths):
            gone.append(capture.id)
    return gone
