# SPDX-License-Identifier: Apache-2.0
"""Evidence that no single number carries: everything that one module made, taken together.

A fault at the edge of what bf16 can show moves each statistic by one unit of the last place, as rounding does. But norm, max
and min of its output grow together, the gradient that it hands on and those of its weights do so as well, and nothing came
in that explains it. The rarities (noise.py) of its outputs, of what its own code hands to the calls inside, of the gradient that it
hands on and of its weights' gradients add up; the first module in order of execution whose sum exceeds what clean pairs show
anywhere is where the two runs part: a changepoint, not the largest effect, for what comes after it may be larger.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from sentinel.core.triage.deviation import PRECISION_BITS, Deviations, growth
from sentinel.core.triage.forest import Forest, Node
from sentinel.core.triage.judging import Deviating
from sentinel.core.triage.noise import Kind, Noise, Seen, bins_of, kind_of
from sentinel.core.triage.tell import module_of
from sentinel.core.triage.tolerance import HALVES
from sentinel.core.triage.walk import Fault, Level

# Of forward, backward, and gradients of the weights: rounding makes the later ones noisier, and they are not independent. The
# second line is for faults of the backward pass. The limits are sums that 1 % of the clean pairs in half precision reach anywhere:
# 2 of 235, dense, tied, GPT-2 and mixtures of experts, other kernels and hardware, none of them a scored one.
WEIGHINGS = (((1.0, 0.5, 0.3), 4.25), ((1.0, 1.0, 1.0), 6.8))
# One equal output before the first difference is worth a Laplace estimate of how often this pair differs by itself.
TRUST_IN_EQUALITY = 1.5


@dataclass(frozen=True, slots=True)
class Sighted:
    """A row that is not the same on both sides, and what it belongs to."""

    row: int
    node: Node
    owner: Node
    seen: Seen
    equal_before: int
    """Outputs that were the same numbers before the first difference, for the row that is first; else 0."""


@dataclass(slots=True)
class _Sum:
    """Of one module: the rarest row of each part, and how many rows it was chosen from."""

    best: list[tuple[float, Sighted | None]] = field(default_factory=lambda: [(0.0, None)] * 3)
    rows: list[int] = field(default_factory=lambda: [0] * 3)

    def score(self) -> float:
        """The sum over what clean pairs show; 1 and more is evidence."""
        return max(self._sum(weights) / limit for weights, limit in WEIGHINGS)

    def _sum(self, weights: tuple[float, ...]) -> float:
        return sum(weight * part for weight, part in zip(weights, self.parts(), strict=True))

    def parts(self) -> list[float]:
        """Rarities; that the rarest of many rows was chosen is taken off."""
        pairs = zip(self.best, self.rows, strict=True)
        return [max(0.0, rarity - math.log10(max(1, rows))) for (rarity, _), rows in pairs]

    def leading(self) -> Sighted | None:
        """The row that says most; a backward one only where forward says next to nothing."""
        parts = self.parts()
        place = 0 if parts[0] >= 1 else max(range(3), key=lambda part: parts[part])
        return self.best[place][1]


class Sighting:
    """Asks another judge, and notes of each row in half precision how it deviates and what it belongs to."""

    def __init__(self, judge: Deviating, forest: Forest, measured: Deviations, *, learning: bool = False) -> None:
        self._judge = judge
        self._learning = learning
        self._rows = forest.rows
        self._known: list[bool] = measured.known.tolist()
        self._exact: list[bool] = measured.exact.tolist()
        self._means: list[float] = measured.size[:, 2].tolist()
        self.useful = any(golden.dtype in HALVES for _, golden in forest.rows)
        """Whether there is any row in half precision."""
        self._growth: list[tuple[float, float, float]] = growth(forest.rows).tolist() if self.useful else []
        self._parents = {id(child): node for node in forest.nodes for child in node.children} if self.useful else {}
        self._equal_outputs = 0
        weights = [row for node in forest.nodes for row in node.weights]
        self._differed = bool(np.any(~measured.exact[weights]))
        self.sighted: list[Sighted] = []
        self.equal: list[tuple[Node, str]] = []
        """Owner and role of rows that are the same on both sides."""
        self.equal_seen: list[Seen] = []
        """The same rows as they are counted; only when learning."""

    def level(self, row: int) -> Level:
        """As the judge says."""
        return self._judge.level(row)

    def outputs(self, node: Node, explained: Level) -> None:
        """As the judge does."""
        self._judge.outputs(node, explained)

    def score(self, row: int, node: Node, explained: Level, role: str) -> float:
        """As the judge says; the row is noted."""
        # Which rows an expert is handed is the routing's choice: one token that goes elsewhere changes them on clean pairs.
        handed = role == "input" and ".experts." not in f"{self._rows[row][0].module}."
        told = role == "output" or handed or (role == "gradient" and not self._judge.given_other_rows(node))
        if told and self._known[row] and self._rows[row][1].dtype in HALVES:
            self._note(row, node, explained, role)
        return self._judge.score(row, node, explained, role)

    def _note(self, row: int, node: Node, explained: Level, role: str) -> None:
        full = role if role == "gradient" or not node.backward else f"backward {role}"
        owner = self._parents.get(id(node), node) if role == "input" else node
        if self._exact[row]:
            self.equal.append((owner, full))
            self._equal_outputs += role == "output" and not self._differed
            if self._learning:
                self.equal_seen.append((self._kind(row, full, explained)[0], (0, 0, 0, 0), 0))
            return
        kind, bits = self._kind(row, full, explained)
        bins, signs = bins_of(self._growth[row], self._means[row], bits, explained[0])
        before = 0 if self._differed else self._equal_outputs
        self._differed = True
        self.sighted.append(Sighted(row, node, owner, (kind, bins, signs), before))

    def _kind(self, row: int, role: str, explained: Level) -> tuple[Kind, int]:
        target, golden = self._rows[row]
        bits = min(PRECISION_BITS[golden.dtype], PRECISION_BITS.get(target.dtype, 24))
        routed = ".experts" in target.module or target.module.endswith(".gate")
        return kind_of(f"{role} routed" if routed else role, bits, math.prod(golden.shape), explained), bits


def _part(role: str) -> int:
    """Which of the three sums a row belongs to."""
    return 2 if role.startswith("gradient") else 1 if role.startswith("backward") else 0


class Evidence:
    """What the rows of a pair say together, module by module.

    Args:
        sighting: a walk's notes: the rows that differ, in order of execution, and those that do not.
        noise: what clean pairs show.
    """

    def __init__(self, sighting: Sighting, noise: Noise) -> None:
        self._sums: dict[str, _Sum] = defaultdict(_Sum)
        self._places: dict[str, tuple[float, int]] = {}
        for owner, role in sighting.equal:
            self._sums[module_of(owner)].rows[_part(role)] += 1
        for order, one in enumerate(sighting.sighted):
            self._add(one, order, noise.rarity(one.seen) + TRUST_IN_EQUALITY * math.log10(1 + one.equal_before))

    def _add(self, one: Sighted, order: int, rarity: float) -> None:
        module, part = module_of(one.owner), _part(one.seen[0].role)
        found = self._sums[module]
        found.rows[part] += 1
        if rarity > found.best[part][0]:
            found.best[part] = (rarity, one)
        if rarity > self._places.get(module, (0.0, 0))[0]:
            self._places[module] = (rarity, order)

    def first(self) -> Fault | None:
        """The first module whose rows together are rarer than clean pairs show; None where there is none."""
        over = [(place[1], module) for module, place in self._places.items() if self._sums[module].score() >= 1]
        if not over:
            return None
        found = self._sums[min(over)[1]]
        leading = found.leading()
        return None if leading is None else _fault(leading, found)


def _fault(shown: Sighted, found: _Sum) -> Fault:
    return Fault(shown.node, shown.owner, shown.row, found.score(), None, rarity=sum(found.parts()))
