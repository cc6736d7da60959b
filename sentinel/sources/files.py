# SPDX-License-Identifier: Apache-2.0
"""Whole metric files and folders, read at once."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from sentinel.errors import UnreadableLog
from sentinel.records import Reading, ReadResult
from sentinel.sources.folders import event_files, mlflow_metrics, no_run, run_files
from sentinel.sources.formats import make_reader, portions, recognise
from sentinel.sources.ledger import kind_of
from sentinel.sources.lines import Notes, number
from sentinel.sources.reader import Reader
from sentinel.sources.tensorboard import EventReader
from sentinel.sources.values import whole_number


def read_file(path: str | Path, on_bytes: Callable[[int], None] | None = None) -> ReadResult:
    """The metrics of a file of any supported format, or of a folder of event files or of one tracked run.

    `on_bytes(count)` hears how much of a single file has been read, about once a mebibyte.

    Raises UnreadableLog: code `unknown_format`, `empty_file`, `unsupported_container`, or `unreadable` for what the
    operating system refuses.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return _read_folder(path)
        if not stat.S_ISREG(mode):
            raise UnreadableLog(path, "unreadable", "neither a file nor a folder")
        with path.open("rb") as stream:
            reader = make_reader(recognise(stream, path).name)
            stream.seek(0)
            readings: list[Reading] = []
            for chunk in portions(stream):
                readings += reader.feed(chunk)
                if on_bytes is not None:
                    on_bytes(stream.tell())
    except OSError as error:
        raise UnreadableLog(path, "unreadable", f"{error.strerror or error}; check path and permissions") from error
    return result(reader, readings + reader.finish())


def _read_folder(path: Path) -> ReadResult:
    if files := event_files(path):
        return _read_events(files)
    if series := mlflow_metrics(path):
        return _read_mlflow(series)
    refusal = no_run(path)
    for answer in map(_try, run_files(path)):
        if isinstance(answer, ReadResult):
            return answer
        refusal = answer
    raise refusal


def _try(file: Path) -> ReadResult | UnreadableLog:
    try:
        return read_file(file)
    except UnreadableLog as error:
        return error


def _read_events(files: Iterable[Path]) -> ReadResult:
    reader = EventReader()
    readings: list[Reading] = []
    for file in files:
        with file.open("rb") as stream:
            for chunk in portions(stream):
                readings += reader.feed(chunk)
        readings += reader.break_off()
    return result(reader, readings + reader.finish())


def _read_mlflow(series: Iterable[tuple[str, Path]]) -> ReadResult:
    """A file a metric, a line a value: `timestamp value step`. A later line of a step counts."""
    steps: dict[int, dict[str, float]] = {}
    notes = Notes()
    for key, file in series:
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            cells = line.split()
            value, step = (number(cells[1]), whole_number(cells[2])) if len(cells) >= 3 else (None, None)
            if value is not None and step is not None:
                steps.setdefault(step, {})[key] = value
            elif line.strip():
                notes.add("corrupt_line", f"{file}: not `timestamp value step`, passed over: {line[:40]}")
    if not steps:
        notes.add("no_metrics_yet", "the format is known, but there is no step so far")
    readings = (Reading(step=step, metrics=m, kind=kind_of(m)) for step, m in sorted(steps.items()))
    return ReadResult(format="mlflow", steps=tuple(readings), warnings=notes.codes)


def result(reader: Reader, readings: Iterable[Reading]) -> ReadResult:
    """The readings of a source that has ended, merged by step."""
    steps: dict[tuple[int, int], dict[str, float]] = {}
    for reading in readings:
        steps.setdefault((reading.attempt, reading.step), {}).update(reading.metrics)
    if not steps:
        reader.notes.add("no_metrics_yet", "the format is known, but there is no step so far")
    return ReadResult(
        format=reader.format,
        steps=tuple(
            Reading(step=step, metrics=steps[attempt, step], kind=kind_of(steps[attempt, step]), attempt=attempt)
            for attempt, step in sorted(steps)
        ),
        warnings=reader.notes.codes,
        summary=reader.summary(),
        resolution=reader.resolution(),
    )
