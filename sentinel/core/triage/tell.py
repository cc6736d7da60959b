# SPDX-License-Identifier: Apache-2.0
"""Origins in words: which module, which direction, which numbers."""

from __future__ import annotations

from sentinel.core.triage.comparable import Weights
from sentinel.core.triage.forest import Forest, Node
from sentinel.core.triage.walk import Fault
from sentinel.records import Divergence, LayerStat


def statistics_of(row: LayerStat) -> dict[str, object]:
    """The numbers of a row that people compare."""
    numbers: dict[str, object] = {
        "norm": row.norm,
        "mean": row.mean,
        "max": row.max,
        "min": row.min,
        "dtype": row.dtype,
        "shape": list(row.shape),
    }
    if row.checksum is not None:
        numbers["checksum"] = row.checksum
    return numbers


def module_of(node: Node) -> str:
    """The path of the innermost module that this call belongs to; an API name where the dump holds no modules."""
    entry = node.pair.target
    while entry.operation and entry.parent is not None:
        entry = entry.parent
    return entry.module if not entry.operation else node.pair.target.module


def called(node: Node) -> str:
    """The operation where the dump holds operations, else the module."""
    entry = node.pair.target
    return entry.name.removesuffix(f".{entry.kind}") if entry.operation else module_of(node)


def divergence_of_weights(stage: str, forest: Forest, place: tuple[Node, int], weights: Weights) -> Divergence:
    """A parameter that is the cause."""
    node, row = place
    target, golden = forest.rows[row]
    others = "moved far less" if weights.moved else "agree"
    why = (
        f"{target.position.removeprefix('parameters.')} of {module_of(node)} differs before any operation: {_gap(target, golden)}; "
        f"{weights.compared - len(weights.blamed)} other weights {others}"
    )
    return Divergence(
        stage,
        target.name,
        module_of(node),
        "parameters",
        target.position,
        why,
        statistics_of(target),
        statistics_of(golden),
    )


def divergence_of_fault(stage: str, forest: Forest, fault: Fault, operation: str = "") -> Divergence:
    """An origin of the walk; `operation`: the only one that it can lie in, where that is known."""
    module = blamed_module(fault)
    row = _shown_row(forest, fault)
    target, golden = forest.rows[row]
    direction = "backward" if fault.node.backward else "forward"
    far = (
        f"and more of its numbers moved alike: clean pairs show so much together in one of 10^{fault.rarity:.0f} cases"
        if fault.rarity
        else f"{fault.score:.3g} times what is allowed there"
    )
    alone = f"; it is one operation, {operation}" if operation else ""
    why = f"{_why(forest, fault, module)}: {_gap(target, golden)}, {far}{alone}"
    return Divergence(
        stage,
        target.name,
        module,
        direction,
        target.position,
        why,
        statistics_of(target),
        statistics_of(golden),
        operation,
    )


def blamed_module(fault: Fault) -> str:
    """The module whose own code made the difference; where no dumped call holds it, the nearest path."""
    if fault.owner is not None:
        return module_of(fault.owner)
    own = module_of(fault.node)
    if fault.before is None:
        return own
    # Between two calls of no dumped module: the module that holds both.
    common: list[str] = []
    for one, other in zip(own.split("."), module_of(fault.before).split("."), strict=False):
        if one != other:
            break
        common.append(one)
    return ".".join(common) or own


def _shown_row(forest: Forest, fault: Fault) -> int:
    """The blamed call's own output where it has one that parts, else the row that told; of operations, always that row."""
    if fault.owner is None or fault.owner is fault.node or fault.node.pair.target.operation:
        return fault.row
    for row in fault.owner.outputs:
        target, golden = forest.rows[row]
        if _numbers(target) != _numbers(golden):
            return row
    return fault.row


def _why(forest: Forest, fault: Fault, module: str) -> str:
    position = forest.rows[fault.row][0].position
    if fault.owner is fault.node:
        if position.startswith("parameters_grad"):
            return f"{module}: its gradients agree on the way in, the gradient of its {position.partition('.')[2]} does not"
        return f"{module}: inputs agree, {position} does not{_last_inside(fault.node)}"
    told = f"{position} of {called(fault.node)}"
    if fault.owner is not None:
        return f"{module}: its inputs agree, but what its own code hands to {told} does not"
    if fault.node.backward and (fault.before is None or not fault.before.backward):
        return f"the gradient differs where it enters ({told}) although forward agrees: the loss, or a module that was not dumped"
    if fault.before is None:
        return f"{told} differs where it enters the model"
    return f"{told} differs although {called(fault.before)} before it agrees: code between the two"


def _last_inside(node: Node) -> str:
    """Of a module whose operations were dumped: the last one, as its outputs agree where the module is to blame."""
    inside = [child for child in node.children if child.pair.target.operation]
    return f", though what {called(inside[-1])} inside it made does" if inside and not node.backward else ""


def _gap(target: LayerStat, golden: LayerStat) -> str:
    if target.shape != golden.shape:
        return f"shape {list(target.shape)} against {list(golden.shape)}"
    if _numbers(target) == _numbers(golden):
        return f"checksum {target.checksum} against {golden.checksum}"
    largest, text = -1.0, ""
    for name in ("norm", "max", "min", "mean"):
        mine, theirs = getattr(target, name), getattr(golden, name)
        if mine is None or theirs is None or mine == theirs:
            continue
        relative = abs(mine - theirs) / max(abs(mine), abs(theirs), 1e-300)
        weight = relative if name != "mean" else 0.0
        if not weight <= largest:
            largest, text = weight, f"{name} {mine:.6g} against {theirs:.6g}"
    return text or "not a number on one side"


def _numbers(row: LayerStat) -> tuple[object, ...]:
    return (row.norm, row.mean, row.max, row.min, row.shape)
