# SPDX-License-Identifier: Apache-2.0
"""The answer to a trainer's report: its orders, and what it should do next."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sentinel.core.report import render
from sentinel.daemon import protocol

if TYPE_CHECKING:
    from sentinel.daemon.run_watch import RunWatch
    from sentinel.records import RunSnapshot

GOING_ON = ("ordered", "recording")


def reply(watch: RunWatch, snapshot: RunSnapshot, told: protocol.Message) -> dict[str, Any]:
    """Return the answer to a message, as built-in types.

    Args:
        watch: over the run.
        snapshot: the run as it stands after the message.
        told: the message.
    """
    plan = watch.prepared.plan
    answer: dict[str, Any] = {
        "v": protocol.VERSION,
        "run": watch.run,
        "step": snapshot.last_step,
        "orders": [render.order_to_plain(c.order) for c in snapshot.captures if c.state in GOING_ON],
        "cancelled": [c.id for c in snapshot.captures if c.state == "cancelled"],
        "settings": {
            "wait_seconds": plan.wait_seconds,
            "dump_root": _dump_root(plan.dump_root, told.session),
            "min_free_bytes": plan.min_free_bytes,
            "flight_recorder_bytes": plan.flight_recorder_bytes,
            "preload": plan.engine.capture.enabled,
        },
    }
    if told.faults:
        answer["faults"] = list(told.faults)
    if not watch.facts:
        answer["introduce"] = True  # this daemon does not know the run's settings
    return answer


def _dump_root(root: str, session: str) -> str:
    """Return the folder of this process's dumps: a restart must not write over those of the attempt before."""
    name = "".join(c for c in session if c.isalnum())[:8] or "session"
    return os.path.join(root, name)  # noqa: PTH118  # text, and on the hot path
