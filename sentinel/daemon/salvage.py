# SPDX-License-Identifier: Apache-2.0
"""What an upgrade keeps of an engine's state whose format it does not know: everything that was decided and counted.

Incidents, captures, what dumps have cost so far, the count of steps and what was said stay; only what detectors had
learnt of the run begins anew.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from sentinel.core.report.incidents import Tracked
from sentinel.core.report.revive import capture_from_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sentinel.core.engine import WatchState
    from sentinel.records import Incident

_COUNTS = ("steps_seen", "attempt", "last_step", "last_at_seconds", "step_seconds", "ended")
_SPENT = ("manual", "steps", "bytes", "seconds")


def salvage(state: WatchState, incidents: Iterable[Incident], plain: Mapping[str, Any]) -> WatchState:
    """Return a fresh state with what can be taken from a stored one.

    Args:
        state: as of a run that has just begun.
        incidents: every incident of the run.
        plain: the stored state, of any version.
    """
    state = dataclasses.replace(
        state,
        docket=tuple(Tracked(incident=incident, asked=True) for incident in incidents),
        warned=_taken(lambda: tuple((str(code), str(text)) for code, text in plain["warned"]), state.warned),
    )
    for name in _COUNTS:
        kept = _taken(lambda name=name: plain[name], getattr(state, name))  # type: ignore[misc]
        if type(kept) in (type(getattr(state, name)), int, float, str):
            state = dataclasses.replace(state, **{name: kept})
    return dataclasses.replace(state, book=_book(state.book, _taken(lambda: dict(plain["book"]), {})))


def _book(book: Any, plain: Mapping[str, Any]) -> Any:
    captures = _taken(lambda: tuple(map(capture_from_plain, plain["captures"])), book.captures)
    spent = {name: plain[name] for name in _SPENT if isinstance(plain.get(name), (int, float))}
    return dataclasses.replace(book, captures=captures, **spent)


def _taken(read: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return read()
    except (KeyError, TypeError, ValueError, AttributeError):
        return otherwise
