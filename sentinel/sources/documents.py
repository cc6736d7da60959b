# SPDX-License-Identifier: Apache-2.0
"""Files that are one JSON document: trainer states, golden values, summaries. Read whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sentinel.records import Reading
from sentinel.sources.hf_trainer import trainer_state
from sentinel.sources.ledger import Ledger, Record
from sentinel.sources.lines import Notes
from sentinel.sources.megatron import golden_values, is_series, mindspeed_baseline
from sentinel.sources.other_consoles import wandb_summary
from sentinel.sources.values import loads

MAX_DOCUMENT = 1 << 27
"""Bytes of the largest document that is read."""

Take = Callable[[Mapping[str, Any], Notes], tuple[list[Record], dict[str, float] | None]]


def kind_of_document(document: object) -> str | None:
    """Name of the format of a JSON document; `notebook` for a notebook, None for an unknown one."""
    if isinstance(document, dict):
        for name, belongs in _SIGNS:
            if belongs(document):
                return name
    return None


def _is_golden(document: Mapping[str, Any]) -> bool:
    tables = [value for value in document.values() if isinstance(value, dict)]
    return any(isinstance(table.get("values"), dict) and "start_step" in table for table in tables)


def _is_baseline(document: Mapping[str, Any]) -> bool:
    return any(is_series(document.get(key)) for key in ("lm loss", "grad norm", "loss"))


_SIGNS: tuple[tuple[str, Callable[[Mapping[str, Any]], bool]], ...] = (
    ("notebook", lambda document: "cells" in document and "nbformat" in document),
    ("hf_trainer_state", lambda document: isinstance(document.get("log_history"), list)),
    ("megatron_golden", _is_golden),
    ("wandb_summary", lambda document: any(key in document for key in ("_step", "_runtime", "_wandb"))),
    ("mindspeed_baseline", _is_baseline),
)


def _without_summary(take: Callable[[Mapping[str, Any], Notes], list[Record]]) -> Take:
    return lambda document, notes: (take(document, notes), None)


_TAKES: dict[str, Take] = {
    "hf_trainer_state": trainer_state,
    "megatron_golden": _without_summary(golden_values),
    "mindspeed_baseline": _without_summary(mindspeed_baseline),
    "wandb_summary": _without_summary(wandb_summary),
}


class DocumentReader:
    """A reader (as in `reader.Reader`) that waits until the bytes are a whole document."""

    def __init__(self, name: str) -> None:
        self.format = name
        self.notes = Notes()
        self._take = _TAKES[name]
        self._ledger = Ledger(self.notes)
        self._bytes = b""
        self._summary: dict[str, float] | None = None
        self._told: dict[tuple[int, int], int] = {}

    def feed(self, chunk: bytes) -> list[Reading]:
        """As `Reader.feed`."""
        self._bytes += chunk
        return []

    def settle(self) -> list[Reading]:
        """The readings, once the document is whole."""
        try:
            document = loads(self._bytes.decode("utf-8-sig", "replace"), self.notes) if self._bytes else None
        except ValueError:
            return []
        self._bytes = b""
        if not isinstance(document, dict) or kind_of_document(document) != self.format:
            return []
        records, self._summary = self._take(document, self.notes)
        return self._news([self._ledger.add(record) for record in records])

    def _news(self, readings: list[Reading]) -> list[Reading]:
        """Without the steps that an earlier state of the document already told just so."""
        keys: dict[tuple[int, int], set[str]] = {}
        for reading in readings:
            keys.setdefault((reading.attempt, reading.step), set()).update(reading.metrics)
        fresh = {place for place, names in keys.items() if len(names) != self._told.get(place)}
        self._told = {place: len(names) for place, names in keys.items()}
        return [reading for reading in readings if (reading.attempt, reading.step) in fresh]

    def finish(self) -> list[Reading]:
        """As `Reader.finish`."""
        readings = self.break_off()
        self._ledger.finish()
        return readings

    def break_off(self) -> list[Reading]:
        """As `Reader.break_off`."""
        readings = self.settle()
        if self._bytes:
            self.notes.add("truncated_line", "the document ends early")
        self._bytes = b""
        return readings

    def rewritten(self) -> None:
        """A document that is written anew repeats its history: the ledger begins anew, without another attempt."""
        self._ledger = Ledger(self.notes)

    def resolution(self) -> float | None:
        """As `Reader.resolution`."""
        return None

    def summary(self) -> Mapping[str, float] | None:
        """As `Reader.summary`."""
        return self._summary

    def to_plain(self) -> dict[str, Any]:
        """As `Reader.to_plain`."""
        return {
            "notes": self.notes.to_plain(),
            "ledger": self._ledger.to_plain(),
            "bytes": self._bytes.decode("latin-1"),
            "summary": self._summary,
            "told": [[attempt, step, count] for (attempt, step), count in self._told.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """As `Reader.restore`."""
        self.notes.restore(state["notes"])
        self._ledger.restore(state["ledger"])
        self._bytes = str(state["bytes"]).encode("latin-1")
        self._summary = state["summary"]
        self._told = {(int(attempt), int(step)): int(count) for attempt, step, count in state["told"]}
