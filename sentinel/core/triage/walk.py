# SPDX-License-Identifier: Apache-2.0
"""Along the execution to the first place where outputs part although inputs agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

import numpy as np

from sentinel.core.triage.deviation import Deviations
from sentinel.core.triage.pairing import Pair, RowPair
from sentinel.core.triage.tolerance import HALVES, LOSS_GAIN, RowKind, Tolerance, Triple

Group = tuple[str, str, str]
Level = tuple[float, float, float]
"""Relative deviation that a tensor carries: in its norm, in any of its statistics, and hidden (see Deviations.level)."""
NOTHING: Level = (0.0, 0.0, 0.0)
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


@dataclass(slots=True)
class Node:
    """One paired call: its rows by role, and the calls inside it."""

    pair: Pair
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    parent: Node | None = None
    start: int = 0
    forward: Node | None = None
    """For a backward call, the forward call that it belongs to."""

    @property
    def backward(self) -> bool:
        """Whether this is a backward call."""
        return self.pair.target.kind == "backward"


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


@dataclass(slots=True)
class Forest:
    """The paired calls of one rank of one stage."""

    roots: list[Node]
    nodes: list[Node]
    rows: list[RowPair]


def grow(pairs: Sequence[Pair]) -> Forest:
    """Nest the pairs as the target's outline does; calls without a partner are passed over."""
    rows: list[RowPair] = []
    nodes: dict[int, Node] = {}
    gradients: list[Node] = []
    for pair in pairs:
        node = Node(pair, start=pair.target.order)
        nodes[id(pair.target)] = node
        for row in pair.rows:
            role = row[0].position.partition(".")[0]
            place = {"input": node.inputs, "kwarg": node.inputs, "output": node.outputs, "parameters": node.weights}
            place.get(role, node.gradients).append(len(rows))
            rows.append(row)
        if pair.target.kind == "parameters_grad":
            gradients.append(node)
    _attach_gradients(gradients, nodes)
    forwards = {node.pair.target.key: node for node in nodes.values() if not node.backward}
    roots = []
    for node in nodes.values():
        if node.pair.target.kind == "parameters_grad" and not node.gradients:
            continue
        above = node.pair.target.parent
        while above is not None and id(above) not in nodes:
            above = above.parent
        if above is None:
            roots.append(node)
        else:
            node.parent = nodes[id(above)]
            node.parent.children.append(node)
        if node.backward:
            node.forward = forwards.get(node.pair.target.key.removeprefix("B:"))
    for root in roots:
        _set_start(root)
    roots.sort(key=lambda node: node.start)
    return Forest(roots, list(nodes.values()), rows)


def _attach_gradients(gradients: list[Node], nodes: Mapping[int, Node]) -> None:
    """A parameter's gradient is an output of its module's backward call that completes next.

    That of a tied weight comes once all its users are through, so it stays by itself, where it completed.
    """
    backwards: dict[str, list[Node]] = {}
    for node in nodes.values():
        if node.backward:
            backwards.setdefault(node.pair.target.module, []).append(node)
    for node in gradients:
        calls = backwards.get(node.pair.target.module, [])
        order = node.pair.target.order
        later = [call for call in calls if call.pair.target.order >= order]
        if later:
            host = min(later, key=lambda call: call.pair.target.order)
            host.gradients += node.gradients
            node.gradients = []


def _set_start(root: Node) -> None:
    """A call starts where the first call inside it completes, so that siblings sort by execution."""
    stack = [(root, False)]
    while stack:
        node, done = stack.pop()
        if not done:
            stack.append((node, True))
            stack += [(child, False) for child in node.children]
            continue
        node.start = min([node.pair.target.order, *(child.start for child in node.children)])
        node.children.sort(key=lambda child: child.start)


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


def most(*levels: Level) -> Level:
    """The largest of each."""
    norm, reach, hidden = zip(*levels, strict=True)
    return (max(norm), max(reach), max(hidden))


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
        given = most(given, *(self._level([*child.inputs, *child.outputs]) for child in node.children))
        given = most(given, self._unseen())
        self.judge.outputs(node, own)
        for rows, role in ((node.outputs, "output"), (node.gradients, "gradient")):
            fault = self._worst(rows, node, given, role)
            if fault is not None:
                yield Fault(node, node, fault[0], fault[1], None)

    def _level(self, rows: list[int]) -> Level:
        level = most(NOTHING, *(self.judge.level(row) for row in rows))
        self._hidden = max(self._hidden, level[2])
        return level

    def _unseen(self) -> Level:
        """What of a deviation so far may have passed through tensors whose statistics do not show it."""
        return (0.0, self._hidden, self._hidden)

    def _worst(self, rows: list[int], node: Node, explained: Level, role: str) -> tuple[int, float] | None:
        worst: tuple[int, float] | None = None
        for row in rows:
            score = self.judge.score(row, node, explained, role)
            if score > 1 and (worst is None or score > worst[1]):
                worst = (row, score)
        return worst


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
    """Judges rows of a pair by deviation and tolerance, and remembers every score."""

    def __init__(self, forest: Forest, measured: Deviations, tolerance: Tolerance) -> None:
        self._rows = forest.rows
        self._sizes: list[tuple[float, float, float]] = measured.size.tolist()
        self._floors: list[tuple[float, float, float]] = measured.floor.tolist()
        self._levels: list[Level] = [(norm, reach, hidden) for norm, reach, hidden in measured.level.tolist()]
        self._exact: list[bool] = measured.exact.tolist()
        self._routed: list[bool] = measured.routed.tolist()
        self._tolerance = tolerance
        self._trail = Trail(
            broken=bool(np.any(~measured.exact[[row for node in forest.nodes for row in node.weights]]))
        )
        self.seen: list[tuple[Group, float, int, Level]] = []
        self.fresh: list[Fresh] = []

    def level(self, row: int) -> Level:
        """Deviation beyond rounding, in the norm and in any statistic."""
        return self._levels[row]

    def outputs(self, node: Node, explained: Level) -> None:
        """Note what a call of agreeing inputs added on its own."""
        for row in () if node.children or node.backward else node.outputs:
            size, overall = self._sizes[row], self._levels[row][1]
            if explained[1] <= _FRESH_SHARE * overall or overall == 0:
                kind = self._rows[row][1].name.split(".")[-3]
                self.fresh.append(Fresh(kind, size[0], size[1], overall))

    def score(self, row: int, node: Node, explained: Level, role: str) -> float:
        """The worst of the three measures over its allowance."""
        if role == "weight" or (role == "gradient" and self._given_other_rows(node)):
            return 0.0
        shape = self._rows[row][1].shape
        kind = RowKind(group_of(node, role, self._rows[row][1].dtype), max(1, prod(shape)), len(shape) == 1)
        allowed = self._tolerance.allowance(kind, self._floors[row], explained)
        # NaN: this statistic is not known on both sides; an infinite allowance: what came in was not finite already.
        score = max(
            size / least if size == size and least < _INFINITE else 0.0  # noqa: PLR0124
            for size, least in zip(self._sizes[row], allowed, strict=True)
        )
        if score:
            self.seen.append((kind.group, score, row, explained))
        self._trail.near = self._trail.near or (score > 1 and self._trail.just_broken())
        if self._trail.step(self._sizes[row], self._floors[row], equal=self._exact[row], half=kind.group[2] in HALVES):
            return max(score, BROKEN_SCORE)
        return score

    def confirmed(self, faults: Sequence[Fault]) -> list[Fault]:
        """The faults without one that only broke a trail of equal numbers, unless what follows bears it out."""
        return list(faults) if self._trail.goes_on() else [fault for fault in faults if fault.score != BROKEN_SCORE]

    def _given_other_rows(self, node: Node) -> bool:
        """Whether an expert saw other tokens: its weights' gradients then say nothing."""
        calls = [node, node.forward] if node.forward is not None else [node]
        return any(self._routed[row] for call in calls for row in call.inputs)


def group_of(node: Node, role: str, dtype: str) -> Group:
    """Rows that share a tolerance: their role, the last name of their module, their dtype."""
    if node.backward and role != "gradient":
        role = f"backward {role}"
    return (role, node.pair.target.module.rpartition(".")[2], dtype)
