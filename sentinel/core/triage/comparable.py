# SPDX-License-Identifier: Apache-2.0
"""Whether two dumps are of the same computation: step, rows and starting weights; and a parameter that is to blame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sentinel.core.triage.deviation import NORM, PEAK, PRECISION_BITS, SUM, Deviations
from sentinel.core.triage.forest import Forest, Node
from sentinel.core.triage.pairing import RowPair
from sentinel.core.triage.tolerance import HALVES

# A weight that stands this far out of the others' deviation did not get there by their common updates.
OUTLIER = 12.0
# ... unless it moved by no more than updates may move it: where a gradient is all rounding (biases of keys and queries), Adam
# steps by a whole learning rate to either side (seen: 2e-5 at 1e-5, while all others moved by 1e-9), whatever the fault was.
LARGEST_STEP = 1e-4
# A GPU adds up in another order than a CPU: the same weights have norms and means this many roundings apart.
SUMMATION = 4.0
# Few enough to be a fault of their own while all others are the same numbers.
FEW_SHARE = 0.25
# Other rows have another sum (in units of the norm) although their norm is nearly the same.
OTHER_ROWS_SUM = 0.1
# In half precision an update of 1e-5 moves an extreme of a weight once in a hundred times, and two of norm, max and min together
# hardly ever: where few weights show any of the three, one that shows two was changed by something else.
TWO_OF_THREE = 2


@dataclass(frozen=True, slots=True)
class Weights:
    """What the parameters say."""

    agree: bool | None
    blamed: tuple[tuple[Node, int], ...]
    """Parameters that differ while the others agree, in order of execution: call and row."""
    moved: float
    """The usual deviation (90th percentile) of parameters that all moved; 0 where they agree."""
    differing: int
    compared: int
    typical: float = 0.0
    """The median deviation of weight matrices that all moved, in norm or peak: what any of them may hide."""


def judge_weights(forest: Forest, measured: Deviations, *, frozen: bool = False) -> Weights:
    """Tell parameters that are the cause from parameters that updates have moved.

    `frozen`: no update ever moves them, as in the reference policy; every difference is a fault.
    """
    first: dict[tuple[str, str], tuple[Node, int]] = {}
    for node in sorted(forest.nodes, key=lambda node: node.pair.target.order):
        for row in node.weights:
            if measured.known[row]:
                first.setdefault((node.pair.target.module, forest.rows[row][0].position), (node, row))
    places = list(first.values())
    if not places:
        return Weights(None, (), 0.0, 0, 0)
    rows = np.array([row for _, row in places])
    sizes = measured.overall[rows]
    differs = _differs(measured, rows)
    count = int(differs.sum())
    if count == 0:
        return Weights(True, (), 0.0, 0, len(places))
    modules = {node.pair.target.module for node, _ in places}
    wrong = {node.pair.target.module for (node, _), odd in zip(places, differs, strict=True) if odd}
    rounded = _rounded(forest, places)
    if rounded:
        return Weights(False, rounded, 0.0, count, len(places))
    # One unit of the last place in one statistic: a common update that rounding hid elsewhere looks the same.
    slight = bool(np.all(np.nan_to_num(measured.units[rows[differs]], posinf=np.inf) <= 1))
    moves = np.array([_move(forest.rows[row]) for row in rows])
    stepped = not frozen and bool(np.all(moves <= LARGEST_STEP))
    if len(wrong) <= max(1, FEW_SHARE * len(modules)) and not slight and not stepped:
        blamed = tuple(place for place, odd in zip(places, differs, strict=True) if odd)
        return Weights(False, blamed, 0.0, count, len(places))
    usual = float(np.quantile(sizes, 0.9))
    # Updates move elements by about one learning rate each, however small or large the weight is.
    limit = max(OUTLIER * float(np.quantile(moves, 0.9)), LARGEST_STEP) if len(places) > 4 else np.inf
    blamed = tuple(place for place, move in zip(places, moves, strict=True) if move > limit)
    matrices = [row for row in rows if len(forest.rows[row][1].shape) > 1]
    shown = np.nanmax(measured.size[matrices][:, [NORM, PEAK]], axis=1, initial=0.0) if matrices else np.zeros(1)
    typical = float(np.median(np.nan_to_num(shown, posinf=0.0)))
    return Weights(False, blamed, max(usual, float(np.finfo(np.float32).tiny)), count, len(places), typical)


def _rounded(forest: Forest, places: list[tuple[Node, int]]) -> tuple[tuple[Node, int], ...]:
    """Weights in half precision of which norm and an extreme, or both extremes, are others, while nearly all show none."""
    changed: dict[int, int] = {}
    for at, (_, row) in enumerate(places):
        target, golden = forest.rows[row]
        if golden.dtype in HALVES and target.dtype == golden.dtype and target.shape == golden.shape:
            pairs = ((target.norm, golden.norm), (target.max, golden.max), (target.min, golden.min))
            changed[at] = sum(mine != theirs for mine, theirs in pairs if None not in (mine, theirs))
    showing = [at for at, many in changed.items() if many]
    clear = tuple(places[at] for at in showing if changed[at] >= TWO_OF_THREE)
    return clear if len(showing) <= max(1, FEW_SHARE * len(places) / 2) else ()


def _differs(measured: Deviations, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which weights are not the same numbers: another extreme, or a norm or mean off by more than the order of summation."""
    size, floor = measured.size[rows], measured.floor[rows]
    summed = np.nan_to_num(size[:, [NORM, SUM]], nan=0.0) > SUMMATION * floor[:, [NORM, SUM]]
    other_peak = np.nan_to_num(size[:, PEAK], nan=0.0) > 0
    unknown = np.isnan(size[:, PEAK]) & ~measured.exact[rows]
    different: NDArray[np.bool_] = ~measured.exact[rows] & (other_peak | unknown | np.any(summed, axis=1))
    return different


def _move(pair: RowPair) -> float:
    """How far the elements of a weight moved at most, by what its statistics show beyond their rounding."""
    target, golden = pair
    if target.shape != golden.shape:
        return np.inf
    half = 2.0 ** -PRECISION_BITS.get(golden.dtype, 24)
    moved = 0.0
    for mine, theirs in ((target.max, golden.max), (target.min, golden.min), (target.mean, golden.mean)):
        if mine is not None and theirs is not None:
            gap = abs(mine - theirs)
            moved = max(moved, gap - 2 * half * abs(theirs) if np.isfinite(gap) else np.inf)
    return moved


def judge_rows(forest: Forest, measured: Deviations) -> tuple[bool | None, str]:
    """Whether both sides saw the same rows: token ids and masks, shapes, and what the first module made of them."""
    seen = False
    for node in _roots_first(forest):
        for row in node.inputs:
            target, golden = forest.rows[row]
            if target.shape != golden.shape:
                return False, f"{target.name} {target.position} has the shape {target.shape} against {golden.shape}"
            if golden.dtype.startswith(("int", "uint")):
                if not measured.exact[row]:
                    return False, f"{target.name} {target.position} holds other numbers"
                seen = True
    lookup = _lookup(forest)
    if lookup is None:
        return _first_inputs(forest, measured) if not seen else True, ""
    node, row = lookup
    weights_agree = all(measured.exact[weight] for weight in node.weights)
    size = measured.size[row]
    if weights_agree and size[2] > OTHER_ROWS_SUM and size[2] > 4 * size[0] and not _one_shift(forest.rows[row]):
        return False, f"the {node.pair.target.module} of both sides looked up other rows from the same weights"
    return True, ""


def _roots_first(forest: Forest) -> Sequence[Node]:
    """The calls that the rows enter through: forwards of the outermost modules, and the first of all."""
    forwards = [node for node in forest.nodes if node.pair.target.kind == "forward"]
    outermost = [node for node in forest.roots if node.pair.target.kind == "forward"]
    outer = [node for node in outermost if not node.pair.target.operation] or forwards[:1]
    return [*sorted(outer, key=lambda node: node.start), *[node for node in forwards if _is_lookup(node)][:1]]


def _is_lookup(node: Node) -> bool:
    return "embed" in node.pair.target.module.rpartition(".")[2].lower() or ".Embedding." in node.pair.target.name


def _lookup(forest: Forest) -> tuple[Node, int] | None:
    """The first embedding's output."""
    for node in forest.nodes:
        if node.pair.target.kind == "forward" and _is_lookup(node) and node.outputs:
            return node, node.outputs[0]
    return None


def _one_shift(pair: RowPair) -> bool:
    """Whether all elements were moved by one number: mean, max and min moved alike."""
    target, golden = pair
    gaps: list[float] = []
    for mine, theirs in ((target.mean, golden.mean), (target.max, golden.max), (target.min, golden.min)):
        if mine is None or theirs is None:
            return False
        gaps.append(mine - theirs)
    largest = max(abs(gap) for gap in gaps)
    return largest > 0 and max(gaps) - min(gaps) < 0.2 * largest


def _first_inputs(forest: Forest, measured: Deviations) -> bool | None:
    """Without token ids: whether the first call's inputs are the same numbers."""
    for node in forest.roots:
        known = [row for row in node.inputs if measured.known[row]]
        if known:
            return True if all(measured.exact[row] for row in known) else None
    return None
