# SPDX-License-Identifier: Apache-2.0
"""The files of an incident: `<home>/incidents/<id>/{incident.json, report.md, report.html}`, replaced as it grows."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentinel.core.report import render
from sentinel.sinks import json_text
from sentinel.sinks.html_report import incident_html
from sentinel.storage.run_folders import run_slug

if TYPE_CHECKING:
    from pathlib import Path

    from sentinel.daemon.run_watch import RunWatch
    from sentinel.records import Chart, Incident

FILES = ("incident.json", "report.md", "report.html")
CHARTS = 6


@dataclass(frozen=True, slots=True)
class Material:
    """What a report is written from."""

    incident: Incident
    charts: tuple[Chart, ...]


def material(watch: RunWatch, incident: Incident) -> Material:
    """Return what the report of an incident shows: the metrics of its findings beside the baseline."""
    metrics = list(dict.fromkeys(finding.metric for finding in incident.findings))[:CHARTS]
    return Material(incident, watch.prepared.engine.charts(watch.state, metrics))


def folder(home: Path, incident: str) -> Path:
    """Return where the files of an incident lie; any id gives a safe name."""
    safe = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:~-]{0,120}", incident)
    return home / "incidents" / (incident if safe else run_slug(incident))


def exist(home: Path, incident: Incident) -> bool:
    """Return whether an incident has its files."""
    return all((folder(home, incident.id) / name).is_file() for name in FILES)


def stored(home: Path, incident: Incident, form: str) -> str | None:
    """Return the report that was written when a closed incident closed; None for an open one, or where it is gone.

    Later the run's last steps are others, and the plots would not show the incident any more.
    """
    if incident.state != "closed":
        return None
    try:
        return (folder(home, incident.id) / ("report.html" if form == "html" else "report.md")).read_text(
            encoding="utf-8"
        )
    except (OSError, UnicodeDecodeError):
        return None


def html(given: Material) -> str:
    """Return the report as one self-contained page."""
    return incident_html(given.incident, given.charts)


def write(home: Path, given: Material) -> Path:
    """Write the files of an incident and return their folder.

    Raises:
        OSError: the disk is full or not writable; older files stay whole.
    """
    target = folder(home, given.incident.id)
    target.mkdir(parents=True, exist_ok=True)
    document = json_text.to_text(render.incident_to_plain(given.incident), indent=1)
    texts = (document + "\n", render.incident_to_markdown(given.incident, given.charts), html(given))
    for name, text in zip(FILES, texts, strict=True):
        replace(target / name, text)
    return target


def replace(path: Path, text: str) -> None:
    """Write a text file so that readers see the old one or the new one, nothing between."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        os.chmod(temporary, 0o644)  # noqa: PTH101  # mkstemp's name is text
        os.replace(temporary, path)  # noqa: PTH105
    except OSError:
        os.unlink(temporary)  # noqa: PTH108
        raise
