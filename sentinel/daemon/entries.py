# SPDX-License-Identifier: Apache-2.0
"""Events as journal entries and back.

The engine is deterministic: its state is the fold of its events, so the events are what a journal has to keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from sentinel import records
from sentinel.daemon.planning import Config

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENT_KINDS: Mapping[str, type[Any]] = {
    "step": records.StepReported,
    "capture": records.CaptureReported,
    "request": records.CaptureRequested,
    "cancel": records.CaptureCancelled,
    "triage": records.TriageArrived,
    "tick": records.Tick,
    "left": records.TrainerLeft,
    "trainer": records.TrainerDescribed,
    "said": records.WorkerSaid,
    "evidence": records.EvidenceFound,
}
"""Kind of entry -> type of event. `capture` is a kind that the journal flushes to the disk."""

SESSION = "session"
INCIDENT = "incident"
_T = TypeVar("_T")
_KIND_OF = {cls: kind for kind, cls in EVENT_KINDS.items()}


def from_event(event: records.Event, session: str = "") -> tuple[str, dict[str, object]]:
    """Return kind and payload of the entry that keeps `event`, as it came from `session`."""
    return _KIND_OF[type(event)], {"event": plain(event), SESSION: session}


def to_event(kind: str, payload: Mapping[str, Any]) -> records.Event | None:
    """Return the event of an entry; None for another kind, or one that this version cannot read."""
    cls = EVENT_KINDS.get(kind)
    if cls is None:
        return None
    try:
        event: records.Event = msgspec.convert(payload["event"], cls)
    except (KeyError, msgspec.ValidationError):
        return None
    return event


def plain(record: object) -> Any:
    """Return a record as plain containers; floats stay floats, finite or not."""
    return msgspec.to_builtins(record)


def config(document: object) -> Config | None:
    """Return a run's settings from their plain form; None where this version cannot read it."""
    return _revived(document, Config)


def ask(document: object) -> records.AskTriage | None:
    """Return a question for triage from its plain form; None where this version cannot read it."""
    return _revived(document, records.AskTriage)


def incident(document: object) -> records.Incident | None:
    """Return an incident from its plain form; None where this version cannot read it."""
    return _revived(document, records.Incident)


def _revived(document: object, cls: type[_T]) -> _T | None:
    try:
        return msgspec.convert(document, cls)
    except msgspec.ValidationError:
        return None
