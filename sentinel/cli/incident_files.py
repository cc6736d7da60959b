# SPDX-License-Identifier: Apache-2.0
"""Incidents from the daemon's folder, for when no daemon runs: what was decided is kept in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import DaemonError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROW = ("id", "run", "kind", "state", "opened_at_step", "closed_at_step", "severity", "stage", "because")


def answer(home: Path, what: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a daemon with this home folder would answer to `incidents`, `incident` or `report`.

    Raises:
        DaemonError: there is no such incident.
    """
    if what == "incidents":
        run, state = question["run"], question["state"]
        found = [d for _, d in _all(home) if run in (None, d["run"]) and state in (None, d["state"])]
        return {"incidents": [{name: document[name] for name in ROW} for document in found]}
    for folder, document in _all(home):
        if document["id"] == question["id"]:
            return document if what == "incident" else {"text": _report(folder, question["form"])}
    raise DaemonError(f"no incident {question['id']!r} in {home} (see `sentinel incidents list`)")


def _all(home: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder and the INCIDENT document of each incident, by name; what is damaged is passed over."""
    for path in sorted((home / "incidents").glob("*/incident.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(document, dict) and all(name in document for name in ROW):
            yield path.parent, document


def _report(folder: Path, form: str) -> str:
    name = "report.html" if form == "html" else "report.md"
    try:
        return (folder / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DaemonError(f"{folder / name}: {getattr(error, 'strerror', None) or error}") from error
