# SPDX-License-Identifier: Apache-2.0
"""The life of one capture, as a table. Everything that changes a capture's state stands in this file.

ordered --started--> recording --finished--> done
   |                     |------failed-----> failed
   |--finished/failed/expired/cancelled (a receipt may come without a word in between)
"""

from __future__ import annotations

from sentinel.errors import IllegalTransition

TRANSITIONS: dict[tuple[str, str], str] = {
    ("ordered", "started"): "recording",
    ("ordered", "finished"): "done",
    ("ordered", "failed"): "failed",
    ("ordered", "expired"): "failed",
    ("ordered", "cancelled"): "cancelled",
    ("recording", "started"): "recording",
    ("recording", "finished"): "done",
    ("recording", "failed"): "failed",
    ("recording", "expired"): "failed",
    ("recording", "cancelled"): "cancelled",
}
STATES = ("ordered", "recording", "done", "failed", "cancelled")
EVENTS = ("started", "finished", "failed", "expired", "cancelled")
ENDED = frozenset({"done", "failed", "cancelled"})

EVENT_OF_OUTCOME = {
    "recording": "started",
    "complete": "finished",
    "partial": "finished",
    "failed": "failed",
    "skipped": "failed",
    "refused": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
}
"""Outcome of a receipt -> event; an outcome that is not listed counts as failed."""


def after(state: str, event: str) -> str:
    """The state after an event.

    Raises:
        IllegalTransition: the table has no such line; nothing changes.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None
