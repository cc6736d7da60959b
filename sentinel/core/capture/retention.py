# SPDX-License-Identifier: Apache-2.0
"""Which dumps go when they take too much room: the oldest and least informative first, an open incident's never."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from sentinel.core.capture.machine import ENDED
from sentinel.records import Capture, Incident

SAID_SOMETHING = frozenset({"diverged", "non_finite"})


def to_forget(
    captures: Iterable[Capture],
    incidents: Iterable[Incident],
    at: Mapping[str, float],
    most_bytes: int,
    kept: Collection[str] = (),
) -> tuple[Capture, ...]:
    """The captures whose dumps have to go, in the order in which they go.

    Args:
        captures: whose dumps are there.
        incidents: of the run.
        at: capture -> Unix time.
        most_bytes: what all dumps of the run may take.
        kept: captures that are needed whatever they take, such as the run's own healthy dump.
    """
    there = [capture for capture in captures if capture.receipt is not None and capture.receipt.paths]
    known = {incident.id: incident for incident in incidents}
    total = sum(capture.receipt.bytes for capture in there if capture.receipt is not None)
    free = [capture for capture in there if _may_go(capture, known) and capture.id not in kept]
    gone: list[Capture] = []
    for capture in sorted(free, key=lambda capture: (_worth(capture, known), at.get(capture.id, 0.0))):
        if total <= most_bytes:
            break
        total -= capture.receipt.bytes if capture.receipt is not None else 0
        gone.append(capture)
    return tuple(gone)


def _may_go(capture: Capture, incidents: Mapping[str, Incident]) -> bool:
    incident = incidents.get(capture.incident or "")
    return capture.state in ENDED and (incident is None or incident.state == "closed")


def _worth(capture: Capture, incidents: Mapping[str, Incident]) -> int:
    """0: an answer was found elsewhere, or none; 1: ordered by hand; 2: this dump, or one narrowed by it, named the place."""
    incident = incidents.get(capture.incident or "")
    if incident is None:
        return 1
    answered = incident.triage is not None and incident.triage.verdict in SAID_SOMETHING
    shown = incident.capture is not None and incident.capture.id == capture.id
    return 2 if answered and (shown or capture.order.modules) else 0
