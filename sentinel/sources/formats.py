# SPDX-License-Identifier: Apache-2.0
"""Formats, recognised by content: a format is the one whose parser reads a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sentinel.errors import UnreadableLog
from sentinel.records import Reading, ReadResult
from sentinel.sources.ledger import kind_of
from sentinel.sources.reader import Parser, Reader, TextReader
from sentinel.sources.verl_console import VerlConsole
from sentinel.sources.verl_jsonl import Recording, VerlFileLogger

CHUNK = 1 << 20
"""Bytes that are read at a time."""

TEXT_FORMATS: tuple[type[Parser], ...] = (VerlFileLogger, Recording, VerlConsole)


def recognise(head: bytes) -> Callable[[], Reader] | None:
    for parser in TEXT_FORMATS:
        reader = TextReader(parser)
        if reader.feed(head) or reader.finish():
            return lambda parser=parser: TextReader(parser)
    return None


def read_file(path: str | Path) -> ReadResult:
    path = Path(path)
    data = path.read_bytes()
    make = recognise(data)
    if make is None:
        raise UnreadableLog(path, "unknown_format", "no known record in the file")
    reader = make()
    steps: dict[tuple[int, int], dict[str, float]] = {}
    for reading in reader.feed(data) + reader.finish():
        steps.setdefault((reading.attempt, reading.step), {}).update(reading.metrics)
    readings = tuple(
        Reading(step=s, metrics=m, kind=kind_of(m), attempt=a)
        for (a, s), m in sorted(steps.items(), key=lambda x: x[0])
    )
    return ReadResult(reader.format, readings, reader.notes.codes, reader.summary(), reader.resolution())
