# SPDX-License-Identifier: Apache-2.0
"""Plain dicts in the contract's forms, as the trainer, the journal and other programs send them, back into records.

Fields that are missing take the record's default; numbers may come as the texts "nan", "inf", "-inf".
A dict that lacks what a record cannot do without raises KeyError, ValueError or TypeError: the shell that read it says where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from sentinel.records import (
    Band,
    Capture,
    CaptureOrder,
    CaptureReceipt,
    Comparable,
    Divergence,
    Finding,
    Incident,
    Suspect,
    Triage,
)

Given = Mapping[str, object]


def _number(value: object) -> float:
    return float(cast("float", value))


def _integer(value: object) -> int:
    return int(cast("int", value))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in cast("Sequence[object]", value or ()))


def _ranks(value: object) -> tuple[int, ...]:
    return tuple(_integer(item) for item in cast("Sequence[object]", value or ()))


def _mapping(value: object) -> Given:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected a mapping, found {type(value).__name__}")
    return value


def _mappings(value: object) -> list[Given]:
    return [_mapping(item) for item in cast("Sequence[object]", value or ())]


def band_from_plain(plain: object) -> Band | None:
    """Inverse of `band_to_plain`."""
    if plain is None:
        return None
    given = _mapping(plain)
    return Band(low=_number(given["low"]), high=_number(given["high"]))


def finding_from_plain(given: Given) -> Finding:
    """Inverse of `finding_to_plain`."""
    return Finding(
        detector=str(given["detector"]),
        metric=str(given["metric"]),
        step=_integer(given["step"]),
        value=_number(given["value"]),
        expected=band_from_plain(given.get("expected")),
        because=str(given.get("because", "")),
        stage=str(given.get("stage", "unknown")),
        kind=str(given.get("kind", "drift")),
        score=_number(given.get("score", 1.0)),
        jumped=given.get("jumped") is True,
    )


def suspect_from_plain(given: Given) -> Suspect:
    """Inverse of `suspect_to_plain`."""
    return Suspect(
        stage=str(given["stage"]), confidence=_number(given["confidence"]), because=str(given.get("because", ""))
    )


def order_from_plain(given: Given) -> CaptureOrder:
    """Inverse of `order_to_plain`."""
    incident, ranks = given.get("incident"), given.get("ranks", "all")
    return CaptureOrder(
        id=str(given.get("id", "")),
        run=str(given.get("run", "")),
        incident=None if incident is None else str(incident),
        first_step=_integer(given["first_step"]),
        last_step=_integer(given["last_step"]),
        stages=_texts(given["stages"]),
        level=str(given.get("level", "L0")),
        ranks=None if ranks == "all" or ranks is None else _ranks(ranks),
        why=str(given.get("why", "")),
        modules=_texts(given.get("modules")),
        task=str(given.get("task", "statistics")),
        expected_bytes=_integer(given.get("expected_bytes", 0)),
        rerun=bool(given.get("rerun", False)),
    )


def receipt_from_plain(given: Given) -> CaptureReceipt:
    """Inverse of `receipt_to_plain`."""
    return CaptureReceipt(
        first_step=_integer(given["first_step"]),
        last_step=_integer(given["last_step"]),
        stages=_texts(given.get("stages")),
        ranks=_ranks(given.get("ranks")),
        paths=_texts(given.get("paths")),
        bytes=_integer(given.get("bytes", 0)),
        seconds=_number(given.get("seconds", 0.0)),
        outcome=str(given["outcome"]),
        why=str(given.get("why", "")),
    )


def capture_from_plain(given: Given) -> Capture:
    """Inverse of `capture_to_plain`."""
    incident, receipt = given.get("incident"), given.get("receipt")
    return Capture(
        id=str(given["id"]),
        run=str(given["run"]),
        incident=None if incident is None else str(incident),
        state=str(given["state"]),
        order=order_from_plain(_mapping(given["order"])),
        receipt=None if receipt is None else receipt_from_plain(_mapping(receipt)),
    )


def comparable_from_plain(plain: object) -> Comparable | None:
    """Inverse of `comparable_to_plain`."""
    if plain is None:
        return None
    given = _mapping(plain)
    held = {
        name: None if given.get(name) in (None, "unknown") else bool(given[name])
        for name in ("step", "rows", "weights")
    }
    return Comparable(step=held["step"], rows=held["rows"], weights=held["weights"])


def divergence_from_plain(given: Given) -> Divergence:
    """Inverse of `divergence_to_plain`."""
    golden = given.get("golden")
    return Divergence(
        stage=str(given["stage"]),
        name=str(given["name"]),
        module=str(given["module"]),
        direction=str(given["direction"]),
        position=str(given["position"]),
        why=str(given.get("why", "")),
        target=dict(_mapping(given.get("target", {}))),
        golden=None if golden is None else dict(_mapping(golden)),
    )


def triage_from_plain(given: Given) -> Triage:
    """Inverse of `triage_to_plain`."""
    first, step = given.get("first"), given.get("step")
    return Triage(
        verdict=str(given["verdict"]),
        comparable=comparable_from_plain(given.get("comparable")),
        first=None
        if first is None
        else replace(divergence_from_plain(_mapping(first)), operation=str(given.get("operation", ""))),
        compared=_integer(given.get("compared", 0)),
        only_in_target=_texts(given.get("only_in_target")),
        only_in_golden=_texts(given.get("only_in_golden")),
        ranks=_ranks(given.get("ranks")),
        step=None if step is None else _integer(step),
        target=str(given.get("target", "")),
        golden=str(given.get("golden", "")),
        notes=_texts(given.get("notes")),
        suspects=tuple(divergence_from_plain(item) for item in _mappings(given.get("suspects"))),
    )


def incident_from_plain(given: Given) -> Incident:
    """Inverse of `incident_to_plain`."""
    closed, order, receipt, triage = (given.get(name) for name in ("closed_at_step", "capture", "receipt", "triage"))
    return Incident(
        id=str(given["id"]),
        run=str(given["run"]),
        kind=str(given["kind"]),
        state=str(given["state"]),
        opened_at_step=_integer(given["opened_at_step"]),
        closed_at_step=None if closed is None else _integer(closed),
        severity=str(given["severity"]),
        stage=str(given["stage"]),
        suspects=tuple(suspect_from_plain(item) for item in _mappings(given.get("suspects"))),
        findings=tuple(finding_from_plain(item) for item in _mappings(given.get("findings"))),
        capture=None if order is None else order_from_plain(_mapping(order)),
        receipt=None if receipt is None else receipt_from_plain(_mapping(receipt)),
        triage=None if triage is None else triage_from_plain(_mapping(triage)),
        because=str(given.get("because", "")),
        last_seen_step=_integer(given.get("last_seen_step", 0)),
        notes=_texts(given.get("notes")),
    )
