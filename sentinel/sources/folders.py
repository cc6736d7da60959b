# SPDX-License-Identifier: Apache-2.0
"""Folders that hold one run: event files of TensorBoard, run folders of W&B and MLflow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from sentinel.errors import UnreadableLog

_EVENT_FILE = re.compile(r".*\.tfevents(?:\..*)?|.*events\.out\.tfevents.*")
_TIME = re.compile(r"tfevents\.(\d+)")
_RUN_FILES = ("output.log", "wandb-summary.json", "trainer_state.json", "logging.jsonl")
MAX_ENTRIES = 100_000
"""Entries of a folder tree that are looked at."""


def event_files(path: Path) -> list[Path]:
    """The event files of the one run in a folder, oldest first; empty where there are none.

    Raises UnreadableLog where they lie in several subfolders, which are several runs.
    """
    found = list(_event_files(path))
    parents = sorted({file.parent for file in found})
    if len(parents) > 1:
        named = ", ".join(str(parent.relative_to(path)) for parent in parents[:3])
        raise UnreadableLog(
            path, "unknown_format", f"event files of several runs ({named}, ...); name the folder of one"
        )
    return sorted(found, key=_age)


def _event_files(path: Path) -> Iterator[Path]:
    seen = 0
    for folder, _, names in os.walk(path):
        for name in names:
            seen += 1
            if seen > MAX_ENTRIES:
                return
            if _EVENT_FILE.fullmatch(name):
                yield Path(folder, name)


def _age(file: Path) -> tuple[int, str]:
    match = _TIME.search(file.name)
    return (int(match.group(1)) if match else 0, file.name)


def run_files(path: Path) -> list[Path]:
    """Files of a tracked run's folder that may hold its metrics, the best first: W&B's or SwanLab's run file, a log, a summary."""
    folders = (path, path / "files")
    found = sorted([*path.glob("run-*.wandb"), *path.glob("run-*.swanlab")])
    return found + [folder / name for folder in folders for name in _RUN_FILES if (folder / name).is_file()]


def mlflow_metrics(path: Path) -> list[tuple[str, Path]]:
    """(key, file) of the metrics of an MLflow run that is stored as files: `<run>/metrics/<key>`."""
    root = path / "metrics"
    if not (path / "meta.yaml").is_file() or not root.is_dir():
        return []
    files = sorted(file for file in root.rglob("*") if file.is_file())
    return [(file.relative_to(root).as_posix(), file) for file in files[:MAX_ENTRIES]]


def no_run(path: Path) -> UnreadableLog:
    """The refusal of a folder in which nothing is known."""
    return UnreadableLog(path, "unknown_format", "a folder without event files or a metric file; name a file")
