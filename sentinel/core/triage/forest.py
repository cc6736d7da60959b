# SPDX-License-Identifier: Apache-2.0
"""The paired calls of two dumps as trees, in order of execution, with their rows by role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from sentinel.core.triage.pairing import Pair, RowPair


@dataclass(slots=True)
class Node:
    """One paired call: its rows by role, and the calls inside it."""

    pair: Pair
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    start: int = 0
    backward: bool = False
    """Whether this is a backward call."""
    forward: Node | None = None
    """For a backward call, the forward call that it belongs to."""

    def rows_of(self, position: str) -> list[int]:
        """Where the rows of a position belong."""
        role = position.partition(".")[0]
        if role in {"input", "kwarg"}:
            return self.inputs
        if role == "output":
            return self.outputs
        return self.weights if role == "parameters" else self.gradients


@dataclass(slots=True)
class Forest:
    """The paired calls of one rank of one stage.

    Nodes know their children and not their parents: without cycles, a forest is gone as soon as it was judged.
    """

    roots: list[Node]
    nodes: list[Node]
    rows: list[RowPair]


def grow(pairs: Sequence[Pair]) -> Forest:
    """Nest the pairs as the target's outline does; calls without a partner are passed over."""
    rows: list[RowPair] = []
    nodes: dict[int, Node] = {}
    gradients: list[Node] = []
    for pair in pairs:
        node = Node(pair, start=pair.target.order, backward=pair.target.kind == "backward")
        nodes[id(pair.target)] = node
        for place, row in enumerate(pair.rows, start=len(rows)):
            node.rows_of(row[0].position).append(place)
        rows += pair.rows
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
            nodes[id(above)].children.append(node)
        if node.backward:
            node.forward = forwards.get(node.pair.target.key.removeprefix("B:"))
    for root in roots:
        _set_start(root)
    roots.sort(key=attrgetter("start"))
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
        if node.children:
            node.start = min(node.start, *[child.start for child in node.children])
            node.children.sort(key=attrgetter("start"))
