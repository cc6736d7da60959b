# SPDX-License-Identifier: Apache-2.0
"""Everything that shells need in order to show a record: the plain forms of the contract, and Markdown for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sentinel.core.report.plain import (
    band_to_plain,
    capture_to_plain,
    chart_to_plain,
    comparable_to_plain,
    divergence_to_plain,
    finding_to_plain,
    incident_to_plain,
    incident_to_row,
    metric_to_plain,
    order_to_plain,
    receipt_to_plain,
    snapshot_to_plain,
    suspect_to_plain,
    triage_to_plain,
)
from sentinel.records import Band

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sentinel.core.report.samples import SamplePair
    from sentinel.records import Chart, Incident

__all__ = [
    "band_text",
    "band_to_plain",
    "capture_to_plain",
    "chart_to_plain",
    "comparable_to_plain",
    "divergence_to_plain",
    "finding_to_plain",
    "incident_to_markdown",
    "incident_to_plain",
    "incident_to_row",
    "metric_to_plain",
    "number",
    "order_to_plain",
    "receipt_to_plain",
    "snapshot_to_plain",
    "suspect_to_plain",
    "triage_to_plain",
]


def number(value: float) -> str:
    """A number as people read it: six significant digits, `absent`-proof.

    >>> number(0.000123456789), number(float("nan")), number(float("inf")), number(12.0)
    ('0.000123457', 'NaN', 'Inf', '12')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return f"{value:.6g}"


def band_text(band: Band | None) -> str:
    """`[low, high]`, an open side as a comparison, a dash where nothing is expected."""
    if band is None:
        return "-"
    if math.isinf(band.low) and math.isinf(band.high):
        return "finite"
    if math.isinf(band.low):
        return f"<= {number(band.high)}"
    if math.isinf(band.high):
        return f">= {number(band.low)}"
    return f"[{number(band.low)}, {number(band.high)}]"


def incident_to_markdown(
    incident: Incident, charts: Sequence[Chart] = (), *, beside: Sequence[str] = (), samples: Sequence[SamplePair] = ()
) -> str:
    """The incident as a page of Markdown: what, since when, which stage, why, evidence, dump, what was done.

    Each chart, a metric beside its baseline, becomes a small table of its last steps. `beside`: files that lie beside the report.
    """
    parts = [_headline(incident), _suspect_table(incident), _finding_table(incident)]
    parts += [_chart_table(chart) for chart in charts]
    parts += [_capture_section(incident), _triage_section(incident), _samples_section(samples)]
    parts += ["## Beside this report\n\n" + "\n".join(f"- `{name}`" for name in beside) if beside else ""]
    parts += [_notes_section(incident)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(incident: Incident) -> str:
    until = "" if incident.closed_at_step is None else f", closed at step {incident.closed_at_step}"
    return (
        f"# {incident.severity.capitalize()}: {incident.kind} in {incident.stage}\n\n"
        f"Run `{incident.run}`, incident `{incident.id}`, {incident.state}: "
        f"since step {incident.opened_at_step}{until}, last seen at step {incident.last_seen_step}.\n\n"
        f"{incident.because}"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _suspect_table(incident: Incident) -> str:
    rows = [[suspect.stage, f"{suspect.confidence:.0%}", suspect.because] for suspect in incident.suspects]
    return "## Suspects\n\n" + _table(["stage", "confidence", "because"], rows) if rows else ""


def _finding_table(incident: Incident) -> str:
    rows = [
        [str(found.step), f"`{found.metric}`", number(found.value), band_text(found.expected), found.because]
        for found in incident.findings
    ]
    return "## Evidence\n\n" + _table(["step", "metric", "value", "expected", "because"], rows) if rows else ""


def _chart_table(chart: Chart) -> str:
    last = slice(-8, None)
    rows = [
        [str(step), number(value), number(reference), band_text(Band(low, high))]
        for step, value, reference, low, high in zip(
            chart.steps[last], chart.values[last], chart.reference[last], chart.low[last], chart.high[last], strict=True
        )
    ]
    return f"### `{chart.metric}`\n\n" + _table(["step", "value", "baseline", "expected"], rows)


def _capture_section(incident: Incident) -> str:
    lines = []
    if incident.capture is not None:
        order = incident.capture
        lines.append(
            f"Ordered: steps {order.first_step} to {order.last_step} of {', '.join(order.stages)} at level {order.level}. {order.why}"
        )
    if incident.receipt is not None:
        got = incident.receipt
        lines.append(
            f"Receipt: {got.outcome}, steps {got.first_step} to {got.last_step}, {got.bytes} bytes in {number(got.seconds)} s. {got.why}"
        )
        lines += [f"- `{path}`" for path in got.paths]
    return "## Capture\n\n" + "\n".join(lines) if lines else ""


def _triage_section(incident: Incident) -> str:
    triage = incident.triage
    if triage is None:
        return ""
    lines = [f"Verdict: **{triage.verdict}**, {triage.compared} entries looked at."]
    held: Mapping[str, object] = comparable_to_plain(triage.comparable) or {}
    lines += [f"- {name} comparable: {value}" for name, value in held.items()]
    if triage.first is not None:
        first = triage.first
        lines.append(f"First in {first.stage}: `{first.module}` ({first.direction}, {first.position}). {first.why}")
    lines += [f"- {note}" for note in triage.notes]
    return "## Dump\n\n" + "\n".join(lines)


def _samples_section(samples: Sequence[SamplePair]) -> str:
    """Answers of the run and of the baseline, indented: model output must not become Markdown."""
    lines: list[str] = []
    for sample in samples:
        lines.append(f"Step {sample.step}, {sample.label}, score {_score(sample.score)}:\n\n{_quoted(sample.output)}")
        if sample.golden_output is not None:
            lines.append(f"The baseline, score {_score(sample.golden_score)}:\n\n{_quoted(sample.golden_output)}")
    return "## Rollout samples\n\n" + "\n\n".join(lines) if lines else ""


def _score(score: float | None) -> str:
    return "unknown" if score is None else number(score)


def _quoted(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()) or "    (empty)"


def _notes_section(incident: Incident) -> str:
    return "## What Sentinel did\n\n" + "\n".join(f"- {note}" for note in incident.notes) if incident.notes else ""
