# SPDX-License-Identifier: Apache-2.0
"""Step records as JSON lines: verl's `file` logger and Sentinel's own recordings.

verl writes `{"step": 7, "data": {key: number|null}}`, where null is what its JSON library makes of NaN and of both
infinities. A recording holds `{"t": "step", "step": 7, "values": {...}}` among other records, with bare NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sentinel.sources.json_lines import JsonLines
from sentinel.sources.ledger import Record
from sentinel.sources.lines import Notes
from sentinel.sources.values import numbers_of, whole_number


class _Plain(msgspec.Struct):
    """The usual line, decoded straight into floats."""

    step: int
    data: dict[str, float | None]


class _Recorded(msgspec.Struct, tag_field="t", tag="step"):
    step: int
    values: dict[str, float | None]


_PLAIN = msgspec.json.Decoder(_Plain)
_RECORDED = msgspec.json.Decoder(_Recorded)


class VerlFileLogger(JsonLines):
    """verl's `file` logger."""

    format = "verl_file_logger"

    def fast(self, text: str) -> Record | None:
        """As `JsonLines.fast`."""
        try:
            line = _PLAIN.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            return None
        return self._of(line.step, line.data) if line.data else None

    def record(self, value: dict[str, Any]) -> Iterable[Record]:
        """As `JsonLines.record`."""
        step, data = whole_number(value.get("step")), value.get("data")
        if step is None or not isinstance(data, dict):
            self.notes.add("foreign_record", f"a JSON object without step and data, passed over: {str(value)[:60]}")
            return ()
        metrics = numbers_of(data, self.notes, null=math.nan)
        return (self._of(step, metrics),) if metrics else ()

    def _of(self, step: int, data: Mapping[str, float | None]) -> Record:
        if None in data.values():
            self.notes.add("non_finite_as_null", "null under data: not finite")
        metrics = {key.strip(): math.nan if value is None else value for key, value in data.items()}
        told = whole_number(metrics.get("training/global_step"))
        if told is not None and told != step:
            self.notes.add("step_mismatch", f"step {step}, training/global_step {told}: the latter counts")
            step = told
        return Record(step, metrics)


class Recording(JsonLines):
    """What the trainer side of Sentinel recorded of a run (`SENTINEL_RECORD`)."""

    format = "sentinel_recording"
    strict = False

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes)
        self._session: str | None = None
        self._restart = False

    def fast(self, text: str) -> Record | None:
        """As `JsonLines.fast`."""
        try:
            line = _RECORDED.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            return None
        return self._of(line.step, {key: math.nan if v is None else v for key, v in line.values.items()})

    def record(self, value: dict[str, Any]) -> Iterable[Record]:
        """As `JsonLines.record`; a second start record begins another attempt once a step follows it."""
        if value.get("t") == "start":
            self._restart = True
        step, values = whole_number(value.get("step")), value.get("values")
        if value.get("t") != "step" or step is None or not isinstance(values, dict):
            return ()
        return (self._of(step, numbers_of(values, Notes())),)

    def _of(self, step: int, metrics: dict[str, float]) -> Record:
        restart, self._restart = self._restart, False
        return Record(step, metrics, restart=restart)
