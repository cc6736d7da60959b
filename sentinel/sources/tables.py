# SPDX-License-Identifier: Apache-2.0
"""Tables: CSV exports of W&B, MLflow, SwanLab and TensorBoard, wide (a column a metric) or long (a row a value)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sentinel.sources.ledger import Record
from sentinel.sources.lines import Line, Notes, number
from sentinel.sources.reader import Parser
from sentinel.sources.values import whole_number

_STEP_COLUMNS = (
    "_step",
    "step",
    "steps",
    "global_step",
    "training/global_step",
    "trainer/global_step",
    "iteration",
    "iter",
)
_KEY_COLUMNS = ("metric", "key", "tag", "name", "metric_name")
_VALUE_COLUMNS = ("value",)
_NO_METRICS = re.compile(
    r"(?i)_runtime|_timestamp|timestamp|wall[ _]time|time|date|relative time.*|run|run[ _]?(?:id|name)|experiment.*"
)
_WANDB_COLUMN = re.compile(r"(?P<run>.+?) - (?P<key>.+?)(?P<bound>__MIN|__MAX)?")


class CsvTable(Parser):
    """CSV with a header line that names a step column; delimiter comma, tab or semicolon."""

    format = "csv"

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes)
        self._header: list[str] | None = None
        self._delimiter = ","
        self._none = False
        self._long: dict[int, dict[str, float]] = {}

    def line(self, line: Line) -> Iterable[Record]:
        """As `Parser.line`."""
        if self._none or not line.text.strip():
            return ()
        if self._header is None:
            self._read_header(line.text)
            return ()
        if not line.ended:
            self.notes.add("truncated_line", "the file ends inside a record")
            return ()
        return self._record(line.text)

    def settle(self) -> Iterable[Record]:
        """As `Parser.settle`."""
        return self._flush()

    def finish(self) -> Iterable[Record]:
        """As `Parser.finish`; another file has a header of its own."""
        yield from self._flush()
        self._header = None

    def _read_header(self, text: str) -> None:
        self._delimiter = max(",\t;", key=text.count)
        columns = [column.strip() for column in self._cells(text)]
        self._header = columns
        self._none = (
            len(columns) < 2 or self._index(_STEP_COLUMNS) is None or any(number(c) is not None for c in columns)
        )
        runs = {match.group("run") for column in columns if (match := _WANDB_COLUMN.fullmatch(column))}
        if len(runs) > 1 and not self._none:
            self._none = True
            self.notes.add(
                "several_runs", f"the table holds several runs ({', '.join(sorted(runs)[:3])}); export them one by one"
            )

    def _cells(self, text: str) -> list[str]:
        try:
            return next(csv.reader(io.StringIO(text), delimiter=self._delimiter), [])
        except csv.Error:
            return []

    def _index(self, names: Sequence[str]) -> int | None:
        assert self._header is not None
        lowered = [column.lower() for column in self._header]
        return next((lowered.index(name) for name in names if name in lowered), None)

    def _record(self, text: str) -> Iterator[Record]:
        assert self._header is not None
        cells = self._cells(text)
        at = self._index(_STEP_COLUMNS)
        step = whole_number(cells[at]) if at is not None and at < len(cells) else None
        if len(cells) != len(self._header) or step is None:
            self.notes.add("corrupt_line", f"a row that does not fit the header was left out: {text[:60]}")
            return
        key_at, value_at = self._index(_KEY_COLUMNS), self._index(_VALUE_COLUMNS)
        if key_at is not None and value_at is not None:
            # Exports list one metric after the other, each with all its steps: they are put together by step first.
            value = number(cells[value_at])
            if value is not None:
                self._long.setdefault(step, {})[cells[key_at].strip()] = value
        elif metrics := self._wide(cells):
            yield Record(step, metrics)

    def _wide(self, cells: list[str]) -> dict[str, float]:
        assert self._header is not None
        metrics: dict[str, float] = {}
        for column, cell in zip(self._header, cells, strict=True):
            exported = _WANDB_COLUMN.fullmatch(column)
            key = exported.group("key") if exported else column
            if (exported and exported.group("bound")) or not key or key.startswith("_"):
                continue
            if (key.lower() in _STEP_COLUMNS and "/" not in key) or _NO_METRICS.fullmatch(key):
                continue
            if (value := number(cell)) is not None:
                metrics[key] = value
        return metrics

    def _flush(self) -> Iterator[Record]:
        steps, self._long = self._long, {}
        for step in sorted(steps):
            yield Record(step, steps[step])

    def to_plain(self) -> dict[str, Any]:
        """As `Parser.to_plain`."""
        return {
            "header": self._header,
            "delimiter": self._delimiter,
            "none": self._none,
            "long": list(self._long.items()),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """As `Parser.restore`."""
        self._header, self._delimiter, self._none = state["header"], state["delimiter"], state["none"]
        self._long = {int(step): dict(metrics) for step, metrics in state["long"]}
