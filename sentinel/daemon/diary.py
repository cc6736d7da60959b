# SPDX-License-Identifier: Apache-2.0
"""The daemon's log: one JSON object a line, in `<home>/daemon.log`; not on standard error, which Ray shows in the run's console.

    {"at": "2026-11-29T22:15:04.120+00:00", "level": "warning", "event": "incident", "run": "r", "incident": "r:1", ...}

Times are UTC. Nothing of a webhook's address or a token gets in: texts pass the same filter as everything that leaves
a process. A log that cannot be written is no reason to stop anything.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import logging.handlers
from typing import TYPE_CHECKING, Any

from sentinel.facts.secrets import clean_plain
from sentinel.records import IncidentChanged, OrderCapture, Warned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from sentinel.records import Effect

FILE = "daemon.log"
_BYTES, _KEPT = 2 << 20, 3
_LONGEST = 2000


class Diary:
    """Writes lines; from any thread.

    Args:
        home: the folder of the file; None: nothing is written.
    """

    def __init__(self, home: Path | None = None) -> None:
        # No logger: Ray and verl configure those as they like.
        self._file = None if home is None else _File(home / FILE)
        self._faults: frozenset[str] = frozenset()

    def write(self, event: str, *, level: str = "info", **fields: Any) -> None:
        """Write one line.

        Args:
            event: what happened, one word.
            level: info, warning or error.
            fields: what belongs to it; JSON types.
        """
        if self._file is None:
            return
        at = dt.datetime.now(dt.timezone.utc).isoformat(timespec="milliseconds")
        plain: Any = clean_plain({name: _bounded(value) for name, value in fields.items() if value is not None})
        line = json.dumps({"at": at, "level": level, "event": event, **plain}, default=str)
        self._file.handle(logging.makeLogRecord({"msg": line}))

    def write_effects(self, run: str, effects: Iterable[Effect]) -> None:
        """Write what the engine decided about a run, as far as it is worth a line."""
        for effect in effects:
            if (line := told(effect)) is not None:
                self.write(run=run, **line)

    def write_faults(self, faults: Sequence[str]) -> None:
        """Write what went wrong lately and was not written yet."""
        for fault in dict.fromkeys(faults):
            if fault not in self._faults:
                self.write("fault", level="error", why=fault)
        self._faults = frozenset(faults)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class _File(logging.handlers.RotatingFileHandler):
    """The file and its predecessors."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=_BYTES, backupCount=_KEPT, encoding="utf-8", delay=True)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        """A full disk: a complaint about the log would only be more of the same."""


def told(effect: Effect) -> dict[str, Any] | None:
    """Return what the log says of something that the engine decided; None where it is not worth a line."""
    if isinstance(effect, IncidentChanged) and effect.change != "grew":
        incident = effect.incident
        return {
            "event": "incident",
            "level": "info" if effect.change == "closed" else "warning",
            "change": effect.change,
            "incident": incident.id,
            "kind": incident.kind,
            "stage": incident.stage,
            "severity": incident.severity,
            "why": incident.because,
        }
    if isinstance(effect, OrderCapture):
        order = effect.order
        return {"event": "order", "capture": order.id, "step": order.first_step, "stages": order.stages}
    if isinstance(effect, Warned):
        return {"event": "remark", "level": "warning", "code": effect.code, "why": effect.text}
    return None


def _bounded(value: Any) -> Any:
    return f"{value[:_LONGEST]}..." if isinstance(value, str) and len(value) > _LONGEST else value
