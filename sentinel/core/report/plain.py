# SPDX-License-Identifier: Apache-2.0
"""Records as plain dicts in the forms of the command-line contract.

Plain means: dicts, lists, text, numbers, None. Numbers that are not finite stay bare floats; whoever writes JSON spells them.
`revive.py` is the way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentinel.records import (
        Band,
        Capture,
        CaptureOrder,
        CaptureReceipt,
        Chart,
        Comparable,
        Divergence,
        Finding,
        Incident,
        MetricState,
        RunSnapshot,
        Suspect,
        Triage,
    )

Plain = dict[str, object]


def band_to_plain(band: Band | None) -> Plain | None:
    """`{"low", "high"}`; None where nothing was expected."""
    return None if band is None else {"low": band.low, "high": band.high}


def finding_to_plain(finding: Finding) -> Plain:
    """FINDING of the contract."""
    return {
        "detector": finding.detector,
        "metric": finding.metric,
        "step": finding.step,
        "value": finding.value,
        "expected": band_to_plain(finding.expected),
        "because": finding.because,
        "stage": finding.stage,
        "kind": finding.kind,
        "score": finding.score,
        "jumped": finding.jumped,
    }


def suspect_to_plain(suspect: Suspect) -> Plain:
    """SUSPECT of the contract."""
    return {"stage": suspect.stage, "confidence": suspect.confidence, "because": suspect.because}


def order_to_plain(order: CaptureOrder) -> Plain:
    """ORDER of the contract, with the fields by which the trainer tells orders apart."""
    return {
        "id": order.id,
        "run": order.run,
        "incident": order.incident,
        "first_step": order.first_step,
        "last_step": order.last_step,
        "stages": list(order.stages),
        "level": order.level,
        "ranks": "all" if order.ranks is None else list(order.ranks),
        "why": order.why,
        "modules": list(order.modules),
        "task": order.task,
        "expected_bytes": order.expected_bytes,
        "rerun": order.rerun,
    }


def receipt_to_plain(receipt: CaptureReceipt) -> Plain:
    """RECEIPT of the contract."""
    return {
        "first_step": receipt.first_step,
        "last_step": receipt.last_step,
        "stages": list(receipt.stages),
        "ranks": list(receipt.ranks),
        "paths": list(receipt.paths),
        "bytes": receipt.bytes,
        "seconds": receipt.seconds,
        "outcome": receipt.outcome,
        "why": receipt.why,
    }


def capture_to_plain(capture: Capture) -> Plain:
    """One entry of `sentinel captures list`."""
    return {
        "id": capture.id,
        "run": capture.run,
        "incident": capture.incident,
        "state": capture.state,
        "order": order_to_plain(capture.order),
        "receipt": None if capture.receipt is None else receipt_to_plain(capture.receipt),
    }


def comparable_to_plain(comparable: Comparable | None) -> Plain | None:
    """`{"step", "rows", "weights"}` with true, false or "unknown"."""
    if comparable is None:
        return None
    return {
        name: "unknown" if held is None else held
        for name, held in (("step", comparable.step), ("rows", comparable.rows), ("weights", comparable.weights))
    }


def divergence_to_plain(first: Divergence) -> Plain:
    """The `first` of a TRIAGE."""
    return {
        "stage": first.stage,
        "name": first.name,
        "module": first.module,
        "direction": first.direction,
        "position": first.position,
        "why": first.why,
        "target": dict(first.target),
        "golden": None if first.golden is None else dict(first.golden),
    }


def triage_to_plain(triage: Triage) -> Plain:
    """TRIAGE of the contract."""
    return {
        "verdict": triage.verdict,
        "comparable": comparable_to_plain(triage.comparable),
        "first": None if triage.first is None else divergence_to_plain(triage.first),
        "operation": "" if triage.first is None else triage.first.operation,
        "compared": triage.compared,
        "only_in_target": list(triage.only_in_target),
        "only_in_golden": list(triage.only_in_golden),
        "ranks": list(triage.ranks),
        "step": triage.step,
        "target": triage.target,
        "golden": triage.golden,
        "notes": list(triage.notes),
        "suspects": [divergence_to_plain(suspect) for suspect in triage.suspects],
    }


def incident_to_plain(incident: Incident) -> Plain:
    """INCIDENT of the contract."""
    return {
        "id": incident.id,
        "run": incident.run,
        "kind": incident.kind,
        "state": incident.state,
        "opened_at_step": incident.opened_at_step,
        "closed_at_step": incident.closed_at_step,
        "severity": incident.severity,
        "stage": incident.stage,
        "suspects": [suspect_to_plain(suspect) for suspect in incident.suspects],
        "findings": [finding_to_plain(finding) for finding in incident.findings],
        "capture": None if incident.capture is None else order_to_plain(incident.capture),
        "receipt": None if incident.receipt is None else receipt_to_plain(incident.receipt),
        "triage": None if incident.triage is None else triage_to_plain(incident.triage),
        "because": incident.because,
        "last_seen_step": incident.last_seen_step,
        "notes": list(incident.notes),
    }


def incident_to_row(incident: Incident) -> Plain:
    """One entry of `sentinel incidents list`."""
    whole = incident_to_plain(incident)
    names = ("id", "run", "kind", "state", "opened_at_step", "closed_at_step", "severity", "stage", "because")
    return {name: whole[name] for name in names}


def metric_to_plain(metric: MetricState) -> Plain:
    """One metric of a snapshot."""
    return {
        "metric": metric.metric,
        "stage": metric.stage,
        "value": metric.value,
        "expected": band_to_plain(metric.expected),
        "score": metric.score,
    }


def snapshot_to_plain(snapshot: RunSnapshot) -> Plain:
    """One run of `/api/v1/runs`: everything that is known of it now."""
    return {
        "run": snapshot.run,
        "state": snapshot.state,
        "regime": snapshot.regime,
        "last_step": snapshot.last_step,
        "last_step_at_seconds": snapshot.last_step_at_seconds,
        "baseline": snapshot.baseline,
        "metrics": [metric_to_plain(metric) for metric in snapshot.metrics],
        "incidents": [incident_to_plain(incident) for incident in snapshot.incidents],
        "captures": [capture_to_plain(capture) for capture in snapshot.captures],
        "warnings": list(snapshot.warnings),
        "steps_seen": snapshot.steps_seen,
        "trainer": dict(snapshot.trainer),
    }


def chart_to_plain(chart: Chart) -> Plain:
    """A metric beside its baseline, ready to be drawn."""
    return {
        "metric": chart.metric,
        "stage": chart.stage,
        "steps": list(chart.steps),
        "values": list(chart.values),
        "reference": list(chart.reference),
        "low": list(chart.low),
        "high": list(chart.high),
        "marked": list(chart.marked),
    }
