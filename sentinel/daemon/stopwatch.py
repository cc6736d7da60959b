# SPDX-License-Identifier: Apache-2.0
"""How long judgements took, as the cumulative buckets of a Prometheus histogram."""

from __future__ import annotations

import bisect

EDGES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
"""Seconds; a verdict is promised within 0.02 for 99 of 100 steps."""


class Stopwatch:
    """Counts durations."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._counts = [0] * (len(EDGES) + 1)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect.bisect_left(EDGES, seconds)] += 1
        self.seconds += seconds

    def buckets(self) -> tuple[tuple[str, float], ...]:
        """Return (upper edge, cumulative count), `+Inf` last."""
        total = 0
        rows = []
        for edge, count in zip((*map(str, EDGES), "+Inf"), self._counts, strict=True):
            total += count
            rows.append((edge, float(total)))
        return tuple(rows)
