# SPDX-License-Identifier: Apache-2.0
"""The daemon's time: a clock that never jumps, and steps dated by it.

A trainer's clock may be hours off, in another zone, or set while the run goes; so may this machine's. When a step came
is told by this process alone, and of the sender's times only the distances within one message count.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from sentinel.daemon.protocol import Stepped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sentinel.daemon.protocol import Record

LONGEST_BACKLOG_SECONDS = 86_400.0
"""What is sent later than that after it happened is dated as if it was that late."""


def steady_clock() -> Callable[[], float]:
    """Return a clock: Unix time of this moment in seconds, and from then on as much more as really went by."""
    begun = time.time() - time.monotonic()
    return lambda: begun + time.monotonic()


def dated(records: Sequence[Record], now: float) -> tuple[Record, ...]:
    """Return the records of one message, its steps dated by `now`: the newest came now, the others so much earlier."""
    newest = max((record.at for record in records if isinstance(record, Stepped)), default=0.0)
    return tuple(
        replace(record, at=now - min(newest - record.at, LONGEST_BACKLOG_SECONDS))
        if isinstance(record, Stepped)
        else record
        for record in records
    )
