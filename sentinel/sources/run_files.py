# SPDX-License-Identifier: Apache-2.0
"""Run files of trackers: W&B's `run-<id>.wandb` and SwanLab's `run-<id>.swanlab`, of offline and running runs too.

Both are journals of protocol buffers. W&B: `Record` with history 2, which has items 1 (key 1, nested_key 2, integer 5,
number 6, value_json 16) and step 2. SwanLab: `Record` with scalar 13 (key 1, step 2, value 5 with number 1).
W&B's own Python package no longer reads its files (0.31).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import ClassVar

from sentinel.sources.journal import JournalReader
from sentinel.sources.ledger import Record
from sentinel.sources.wire import fields


class WandbRun(JournalReader):
    """W&B's run file."""

    format: ClassVar[str] = "wandb_run"
    magic: ClassVar[bytes] = b":W&B\xe1\xbe"

    def records(self, data: bytes) -> Iterator[Record]:
        """As `JournalReader.records`."""
        for number, part in fields(data):
            if number == 2 and isinstance(part, bytes) and (record := _history(part)) is not None:
                yield record


class SwanlabRun(JournalReader):
    """SwanLab's run file: a record a scalar."""

    format: ClassVar[str] = "swanlab_run"
    magic: ClassVar[bytes] = b":SWL\xd6\xe1"

    def records(self, data: bytes) -> Iterator[Record]:
        """As `JournalReader.records`."""
        for number, part in fields(data):
            if number == 13 and isinstance(part, bytes) and (record := _scalar(part)) is not None:
                yield record


def _scalar(data: bytes) -> Record | None:
    key, step, value = "", 0, 0.0
    for number, part in fields(data):
        if number == 1 and isinstance(part, bytes):
            key = part.decode("utf-8", "replace").strip()
        elif number == 2 and isinstance(part, int):
            step = part - (1 << 64) if part >= 1 << 63 else part
        elif number == 5 and isinstance(part, bytes):
            value = next((_double(inner) for name, inner in fields(part) if name == 1), 0.0)
    return Record(step, {key: value}) if key and not key.startswith("_") else None


def _double(part: int | bytes) -> float:
    return float(struct.unpack("<d", part)[0]) if isinstance(part, bytes) and len(part) == 8 else float("nan")


def _history(data: bytes) -> Record | None:
    step: int | None = None
    metrics: dict[str, float] = {}
    for number, part in fields(data):
        if number == 2 and isinstance(part, bytes):
            told = dict(fields(part)).get(1, 0)
            step = told if isinstance(told, int) else None
        elif number == 1 and isinstance(part, bytes):
            key, value = _item(part)
            if key == "_step" and value is not None and step is None:
                step = int(value)
            elif key and not key.startswith("_") and value is not None:
                metrics[key] = value
    return None if step is None or not metrics else Record(step, metrics)


def _item(data: bytes) -> tuple[str, float | None]:
    names: list[str] = []
    value: float | None = None
    for number, part in fields(data):
        if number in (1, 2) and isinstance(part, bytes) and part:
            names.append(part.decode("utf-8", "replace"))
        elif number == 16 and isinstance(part, bytes):
            value = _number(part)
        elif number == 6 and isinstance(part, bytes) and len(part) == 8:
            value = float(struct.unpack("<d", part)[0])
        elif number == 5 and isinstance(part, int):
            value = float((part >> 1) ^ -(part & 1))  # zigzag
    return ".".join(names).strip(), value


def _number(text: bytes) -> float | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return float(value) if isinstance(value, (int, float)) else None
