# SPDX-License-Identifier: Apache-2.0
"""What every detector is: it sees all series of a step at once, and its memory is a value."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.frames import Bools, Floats
from sentinel.records import Band, Finding

S = TypeVar("S")

MOST = 40
"""Findings of one detector at one step, at most: the strongest ones tell the story."""


class Detector(Protocol[S]):
    """Turns looks into findings. `observe` changes nothing; arrays of the state have one row a series."""

    @property
    def name(self) -> str:
        """Released name; findings carry it."""
        ...

    def initial(self) -> S:
        """Memory before the first step."""
        ...

    def observe(self, state: S, look: Look) -> tuple[S, tuple[Finding, ...]]:
        """Judge one step."""
        ...


def strongest(rows: Bools, score: Floats, most: int = MOST) -> list[int]:
    """The rows that are set, by falling score, at most `most`."""
    where = np.flatnonzero(rows)
    if not where.size:
        return []
    order = np.argsort(-np.nan_to_num(score[where], nan=0.0, posinf=1e300), kind="stable")
    return [int(row) for row in where[order][:most]]


def band_of(look: Look, row: int) -> Band | None:
    """What was expected of the row; None where nothing was."""
    low, high = float(look.low[row]), float(look.high[row])
    return None if low == -np.inf and high == np.inf else Band(low=low, high=high)


def brief(value: float) -> str:
    """A number in a sentence: five significant digits."""
    return f"{value:.5g}"
