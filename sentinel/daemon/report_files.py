# SPDX-License-Identifier: Apache-2.0
"""The files of an incident: `<home>/incidents/<id>/{incident.json, report.md, report.html}`, replaced as it grows."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentinel.core.report import render
from sentinel.core.report.samples import sample_to_plain
from sentinel.daemon import msprobe_tables, report_samples
from sentinel.sinks import json_text
from sentinel.sinks.html_report import incident_html
from sentinel.storage.run_folders import run_slug

if TYPE_CHECKING:
    from pathlib import Path

    from sentinel.core.report.samples import SamplePair
    from sentinel.daemon.run_watch import RunWatch
    from sentinel.records import Chart, Incident

FILES = ("incident.json", "report.md", "report.html")
CHARTS = 6


@dataclass(frozen=True, slots=True)
class Material:
    """What a report is written from."""

    incident: Incident
    charts: tuple[Chart, ...]
    beside: tuple[str, ...] = ()
    """Files that lie beside the report, as paths below its folder."""
    samples: tuple[SamplePair, ...] = ()
    rollouts: str = ""
    """Folder that the run writes its rollout text to; empty where it writes none."""
    baseline: str | None = None


def material(watch: RunWatch, incident: Incident) -> Material:
    """Return what the report of an incident shows: the metrics of its findings beside the baseline."""
    metrics = list(dict.fromkeys(finding.metric for finding in incident.findings))[:CHARTS]
    return Material(
        incident,
        watch.prepared.engine.charts(watch.state, metrics),
        rollouts=str(watch.facts.get("rollout_data_dir") or ""),
        baseline=watch.prepared.plan.baseline,
    )


def completed(home: Path, given: Material) -> Material:
    """The material with what has to be read from files; takes its time, so not while a watch is held."""
    return dataclasses.replace(
        given,
        beside=msprobe_tables.made(folder(home, given.incident.id)),
        samples=report_samples.samples(given.incident, given.rollouts, given.baseline),
    )


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
    return incident_html(given.incident, given.charts, beside=given.beside, samples=given.samples)


def markdown(given: Material) -> str:
    """Return the report as Markdown."""
    return render.incident_to_markdown(given.incident, given.charts, beside=given.beside, samples=given.samples)


def write(home: Path, given: Material) -> Path:
    """Write the files of an incident and return their folder.

    Raises:
        OSError: the disk is full or not writable; older files stay whole.
    """
    target = folder(home, given.incident.id)
    target.mkdir(parents=True, exist_ok=True)
    given = completed(home, given)
    plain = render.incident_to_plain(given.incident)
    plain |= {"beside": list(given.beside), "samples": [sample_to_plain(sample) for sample in given.samples]}
    texts = (json_text.to_text(plain, indent=1) + "\n", markdown(given), html(given))
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
