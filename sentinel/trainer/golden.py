# SPDX-License-Identifier: Apache-2.0
"""The golden dumps that a recording run makes of itself: a schedule, and the share of time and disk that it may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from sentinel.trainer.orders import Order

WHY = "golden schedule"
STEPS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""Dense where runs part first, then ever rarer."""
FREE = 6
"""So many dumps are made in any case, up to step 20: a run's first steps are where a baseline says most."""
SHARE = 0.05
"""Of the run's time so far that dumping may take."""
MOST_BYTES = 20 * 2**30


def schedule(stages: list[str]) -> list[Order]:
    """The steps whose dumps make a later comparison possible, for a run that records itself."""
    return [
        Order(f"golden-{step}", step, step, tuple(stages), why=WHY, asked_first_step=step, exact=True) for step in STEPS
    ]


class GoldenBudget:
    """What the schedule has cost, and whether it may go on.

    Args:
        clock: seconds, as they go by.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._dumps = 0
        self._bytes = 0
        self._seconds = 0.0

    def note(self, order: Order, receipt: Mapping[str, Any]) -> None:
        """Count what an order of the schedule took."""
        if order.why == WHY:
            self._dumps += bool(receipt["paths"])
            self._bytes += int(receipt["bytes"])
            self._seconds += float(receipt["seconds"])

    def affordable(self, orders: list[Order], skip: Callable[[Order, str], None]) -> list[Order]:
        """The orders that may be made; `skip` is told of each other one, and why."""
        refused = {order.id: why for order in orders if (why := self.refused(order))}
        for order in orders:
            if order.id in refused:
                skip(order, refused[order.id])
        return [order for order in orders if order.id not in refused]

    def refused(self, order: Order) -> str:
        """Why an order is left out; empty where it may be made. Orders that are not the schedule's are never refused."""
        if order.why != WHY or self._dumps < FREE:
            return ""
        elapsed = self._clock() - self._began
        if self._seconds > SHARE * elapsed:
            return f"golden dumps took {self._seconds:.3g} s of {elapsed:.3g} s, more than {SHARE:.0%}"
        if self._bytes >= MOST_BYTES:
            return f"golden dumps take {self._bytes} bytes on disk, {MOST_BYTES} at most"
        return ""
