# SPDX-License-Identifier: Apache-2.0
"""Along the execution to the first place where outputs part although inputs agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from sentinel.core.triage.forest import Forest, Node
from sentinel.core.triage.tolerance import LOSS_GAIN

Level = tuple[float, float, float]
"""Relative deviation that a tensor carries: in its norm, in any of its statistics, and hidden (see Deviations.level)."""
NOTHING: Level = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A row that no input explains."""

    node: Node
    """Where the row was dumped."""
    owner: Node | None
    """Which call's own code made it; None: code outside of every dumped module."""
    row: int
    score: float
    """Deviation over what is allowed; above 1."""
    before: Node | None
    """The call that completed before it, with agreeing outputs."""
    rarity: float = 0.0
    """Of evidence that only all numbers of a module together carry: the power of ten by which clean pairs show so much."""


def most(*levels: Level) -> Level:
    """The largest of each."""
    found = NOTHING
    for level in levels:
        if found is NOTHING or level is NOTHING:
            found = level if found is NOTHING else found
        elif level is not found:
            found = (max(found[0], level[0]), max(found[1], level[1]), max(found[2], level[2]))
    return found


class Judge(Protocol):
    """What a walk asks about rows."""

    def level(self, row: int) -> Level:
        """How far the row deviates, for what comes after it."""

    def score(self, row: int, node: Node, explained: Level, role: str) -> float:
        """Deviation over what is allowed where `explained` came in; above 1 it is a fault."""

    def outputs(self, node: Node, explained: Level) -> None:
        """Called for each call once it has completed; its inputs and weights deviate by `explained`."""


class Walk:
    """One pass over a forest; `faults` yields origins in order of execution."""

    def __init__(self, forest: Forest, judge: Judge) -> None:
        self.forest = forest
        self.judge = judge
        self._hidden = 0.0
        self._levels: dict[int, Level] = {}
        """By identity of a node's list of rows."""

    def faults(self) -> Iterator[Fault]:
        """Every origin, first to last; what an earlier origin explains is none."""
        yield from self._children(self.forest.roots, None, NOTHING)

    def _children(self, children: list[Node], owner: Node | None, given: Level) -> Iterator[Fault]:
        """Visit the calls inside `owner`, which was given inputs that deviate by `given`."""
        reached, forward_reached = given, NOTHING
        before: Node | None = None
        for child in children:
            explained = reached
            if owner is None and child.backward:
                norm, reach, hidden = forward_reached
                explained = most(reached, (LOSS_GAIN * norm, LOSS_GAIN * reach, hidden))
            explained = most(explained, self._unseen())
            fault = self._worst(child.inputs, child, explained, "input")
            if fault is not None:
                # A backward call whose inputs came by keyword has no rows for what it hands on: it stands nearest.
                nearest = before is not None and child.backward and before.backward and not before.outputs
                yield Fault(child, before if nearest else owner, fault[0], fault[1], before)
            yield from self._inside(child, explained)
            passed = self._level(child.outputs)
            reached = most(reached, passed, self._level(child.inputs), self._level(child.gradients))
            if not child.backward:
                forward_reached = most(forward_reached, passed)
            before = child

    def _inside(self, node: Node, explained: Level) -> Iterator[Fault]:
        fault = self._worst(node.weights, node, NOTHING, "weight")
        if fault is not None:
            yield Fault(node, node, fault[0], fault[1], None)
        own = most(self._level(node.inputs), self._level(node.weights))
        given = most(own, self._unseen())
        if not node.inputs:
            given = most(given, explained)
        if node.forward is not None:
            forward = node.forward
            given = most(given, self._level(forward.inputs), self._level(forward.outputs), self._level(forward.weights))
        yield from self._children(node.children, node, given)
        for child in node.children:
            given = most(given, self._level(child.inputs), self._level(child.outputs))
        given = most(given, self._unseen())
        self.judge.outputs(node, own)
        for rows, role in ((node.outputs, "output"), (node.gradients, "gradient")):
            fault = self._worst(rows, node, given, role)
            if fault is not None:
                yield Fault(node, node, fault[0], fault[1], None)

    def _level(self, rows: list[int]) -> Level:
        """What a list of rows of a node carries; asked several times, and always the same."""
        if not rows:
            return NOTHING
        known = self._levels.get(id(rows))
        if known is None:
            known = self._levels[id(rows)] = most(*[self.judge.level(row) for row in rows])
            self._hidden = max(self._hidden, known[2])
        return known

    def _unseen(self) -> Level:
        """What of a deviation so far may have passed through tensors whose statistics do not show it."""
        return (0.0, self._hidden, self._hidden) if self._hidden else NOTHING

    def _worst(self, rows: list[int], node: Node, explained: Level, role: str) -> tuple[int, float] | None:
        worst: tuple[int, float] | None = None
        for row in rows:
            score = self.judge.score(row, node, explained, role)
            if score > 1 and (worst is None or score > worst[1]):
                worst = (row, score)
        return worst
