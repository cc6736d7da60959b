# SPDX-License-Identifier: Apache-2.0
"""Whether a row of a pair deviates by more than rounding, kernels, and what came in explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sentinel.core.triage.deviation import Deviations
from sentinel.core.triage.forest import Forest, Node
from sentinel.core.triage.tolerance import FACTORS, HALVES, RowKind, Terms, Tolerance, Triple
from sentinel.core.triage.walk import NOTHING, Fault, Level
from sentinel.records import LayerStat

Group = tuple[str, str, str]
"""Rows that share a tolerance: their role, the last name of their module, their dtype."""
_INFINITE = float("inf")
# Rows of equal numbers: more than a layer has, and in half precision, which hides differences, more than two.
LONG_TRAIL, LONG_TRAIL_HALF, TRAIL_WINDOW = 30, 60, 15
BROKEN_SCORE = 1.0 + 2.0**-20
"""Score of a row that only breaks a trail of equal numbers."""
# Inputs that explain less than this share of an output's deviation agree.
_FRESH_SHARE = 0.1
_ROUNDING_NORM = 0.2
# TF32 and HF32 matrix units: 2^-11 an element; no healthy arithmetic adds more at one operation.
_MOST_BACKGROUND = 5e-3


@dataclass(frozen=True, slots=True)
class Fresh:
    """What one call added although its inputs agreed."""

    kind: str
    """Class of the module."""
    norm: float
    peak: float
    overall: float


def background(fresh: Sequence[Fresh], least: float) -> float:
    """What arithmetic that differs throughout adds at every operation; 0 where most operations agree.

    Half of the calls of a class, and no fewer than two of all classes, must have added something above `least` that points anywhere (little in
    the norm, more in the peaks): a fault sits in one call, and one that scales or shifts shows in the norm.
    """
    found: list[float] = []
    slight = [call for call in fresh if call.overall < _MOST_BACKGROUND]
    for kind in {call.kind for call in slight}:
        calls = [call for call in slight if call.kind == kind]
        noisy = [call for call in calls if call.overall > least and call.norm < _ROUNDING_NORM * call.peak]
        if 2 * len(noisy) >= len(calls) and (len(noisy) > 1 or len(calls) == 1):
            found += [call.overall for call in noisy]
    # The one call of its class whose inputs agreed may be the fault itself.
    return max(found) if len(found) > 1 else 0.0


class Trail:
    """How long everything was the same number on both sides.

    On one machine with one set of kernels a pair agrees bit for bit up to the fault, however small that is; other kernels or
    machines differ within the first layer. So the first difference after a long trail of equal rows is an origin, provided that
    what follows differs as well.
    """

    def __init__(self, *, broken: bool) -> None:
        self._equal = 0
        self._broken = broken
        self._in_norm = False
        self.near = False
        """Whether a plain fault came soon after the break."""
        self._after: list[bool] | None = None

    def step(self, size: Triple, floor: Triple, *, equal: bool, half: bool) -> bool:
        """Take the next row; whether it is the one that breaks a long trail by more than the rounding of its statistics."""
        if size[0] != size[0]:  # no float tensor, or not comparable
            return False
        if self._after is not None:
            self._after.append(equal)
        if self._broken or equal:
            self._equal += equal
            return False
        self._broken = True
        long = self._equal >= (LONG_TRAIL_HALF if half else LONG_TRAIL)
        beyond = half or any(part > 4 * least for part, least in zip(size, floor, strict=True))
        if long and beyond:
            self._after = []
            self._in_norm = not half or size[0] > 0
        return long and beyond

    def just_broken(self) -> bool:
        """Whether the break lies no further back than the window."""
        return self._after is not None and len(self._after) <= 2 * TRAIL_WINDOW

    def goes_on(self) -> bool:
        """Whether the break is an origin: the rows after it differ too, and it shows in the norm, or a plain fault is near.

        In half precision a fault may be invisible where it is; what shows first is then a place after it.
        """
        after = (self._after or [])[:TRAIL_WINDOW]
        spread = len(after) < 4 or 5 * sum(not equal for equal in after) >= len(after)
        return self._after is not None and spread and (self._in_norm or self.near)


class Deviating:
    """Judges rows of a pair by deviation and tolerance, and remembers every score when it learns."""

    def __init__(self, forest: Forest, measured: Deviations, tolerance: Tolerance, *, learning: bool = False) -> None:
        self._learning = learning
        self._kinds: dict[tuple[str, str, str, tuple[int, ...]], tuple[Group, Terms]] = {}
        self._rows = forest.rows
        self._sizes: list[tuple[float, float, float]] = measured.size.tolist()
        self._floors: list[tuple[float, float, float]] = measured.floor.tolist()
        self._levels: list[Level] = [
            (norm, reach, hidden) if norm or reach or hidden else NOTHING
            for norm, reach, hidden in measured.level.tolist()
        ]
        self._half = [golden.dtype in HALVES for _, golden in forest.rows]
        self._within: list[bool] = _within(measured, np.array(self._half, dtype=bool)).tolist()
        self._exact: list[bool] = measured.exact.tolist()
        self._routed: list[bool] = measured.routed.tolist()
        self._tolerance = tolerance
        self._trail = Trail(
            broken=bool(np.any(~measured.exact[[row for node in forest.nodes for row in node.weights]]))
        )
        self.seen: list[tuple[Group, float]] = []
        """Group and score of every row that deviates; only when learning."""
        self.fresh: list[Fresh] = []

    def level(self, row: int) -> Level:
        """Deviation beyond rounding, in the norm and in any statistic."""
        return self._levels[row]

    def outputs(self, node: Node, explained: Level) -> None:
        """Note what a call of agreeing inputs added on its own."""
        for row in () if node.children or node.backward else node.outputs:
            size, overall = self._sizes[row], self._levels[row][1]
            if self._routed[row]:
                continue
            if explained[1] <= _FRESH_SHARE * overall or overall == 0:
                kind = self._rows[row][1].name.split(".")[-3]
                self.fresh.append(Fresh(kind, size[0], size[1], overall))

    def score(self, row: int, node: Node, explained: Level, role: str) -> float:
        """The worst of the three measures over its allowance; 0 where even the strictest kind of row is allowed as much."""
        if role == "weight" or (role == "gradient" and self.given_other_rows(node)):
            return 0.0
        if self._exact[row]:
            self._trail.step(self._sizes[row], self._floors[row], equal=True, half=False)
            return 0.0
        score = 0.0
        if self._learning or not self._within[row]:
            score = self._measured(row, node, explained, role)
        self._trail.near = self._trail.near or (score > 1 and self._trail.just_broken())
        if self._trail.step(self._sizes[row], self._floors[row], equal=False, half=self._half[row]):
            return max(score, BROKEN_SCORE)
        return score

    def _measured(self, row: int, node: Node, explained: Level, role: str) -> float:
        group, terms = self._kind(node, role, self._rows[row][1])
        # NaN: this statistic is not known on both sides; an infinite allowance: what came in was not finite already.
        norm, peak, total = terms.allowance(self._floors[row], explained)
        norm_size, peak_size, total_size = self._sizes[row]
        score = norm_size / norm if norm_size > 0 and norm < _INFINITE else 0.0
        if peak_size > score * peak and peak < _INFINITE:
            score = peak_size / peak
        if total_size > score * total and total < _INFINITE:
            score = total_size / total
        if score and self._learning:
            self.seen.append((group, score))
        return score

    def _kind(self, node: Node, role: str, golden: LayerStat) -> tuple[Group, Terms]:
        """The group of a row, and what all rows of its kind are allowed."""
        if node.backward and role != "gradient":
            role = f"backward {role}"
        key = (role, node.pair.target.module.rpartition(".")[2], golden.dtype, golden.shape)
        known = self._kinds.get(key)
        if known is None:
            group = key[:3]
            known = self._kinds[key] = (group, self._tolerance.terms(RowKind(group, golden.shape)))
        return known

    def confirmed(self, faults: Sequence[Fault]) -> list[Fault]:
        """The faults without one that only broke a trail of equal numbers, unless what follows bears it out."""
        return list(faults) if self._trail.goes_on() else [fault for fault in faults if fault.score != BROKEN_SCORE]

    def given_other_rows(self, node: Node) -> bool:
        """Whether an expert saw other tokens: its weights' gradients then say nothing."""
        calls = [node, node.forward] if node.forward is not None else [node]
        return any(self._routed[row] for call in calls for row in call.inputs)


def _within(measured: Deviations, half: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Rows that deviate by no more than rounding, as the strictest kind of row may that nothing deviating reaches."""
    factors = np.where(half[:, None], FACTORS["half"], FACTORS["single"])
    within: NDArray[np.bool_] = np.all(np.nan_to_num(measured.size, nan=0.0) <= factors * measured.floor, axis=1)
    return within
