# SPDX-License-Identifier: Apache-2.0
"""Where the first NaN or Inf of one dump comes from, and whether an input, a weight or an operation made it.

Infinity alone is no alarm: attention masks are filled with it, or with the least number of the dtype, whose mean and norm
overflow, in every healthy dump. NaN counts everywhere, +Inf wherever it is an element, -Inf where no mask explains it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from sentinel.core.triage.forest import Forest, Node, grow
from sentinel.core.triage.outline import outline
from sentinel.core.triage.pairing import pair_up
from sentinel.core.triage.single import operation_of
from sentinel.core.triage.tell import blamed_module, module_of, statistics_of
from sentinel.core.triage.walk import NOTHING, Fault, Level, Walk
from sentinel.records import STAGES, Divergence, LayerStat, Triage

# What a mask is filled with: the least number of the dtype, or near it.
_FILL_LIMIT = {"float32": 3.0e38, "bfloat16": 3.0e38, "float16": 6.0e4, "float64": 1.0e308}
# Operations that put a mask's infinities in, and such whose output is whatever the memory held.
_MASKING = frozenset({"where", "masked_fill", "masked_fill_", "full", "full_like", "triu", "fill_", "new_full"})
_UNINITIALISED = frozenset({"empty", "empty_like", "new_empty", "empty_strided"})


def first_non_finite(
    target: Mapping[str, Mapping[int, Sequence[LayerStat]]], *, target_step: int | None = None
) -> Triage:
    """Find the first NaN or Inf of a dump, in order of the data flow, then of execution."""
    found: list[Divergence] = []
    compared = 0
    per_rank: list[str] = []
    for stage in sorted(target, key=lambda stage: (STAGES.index(stage) if stage in STAGES else len(STAGES), stage)):
        for rank, stats in sorted(target[stage].items()):
            compared += len(stats)
            here = list(_origins(stage, stats))
            if here:
                per_rank.append(f"{stage} rank {rank}: {here[0].module} ({here[0].direction})")
            found += here
    ranks = tuple(sorted({rank for by_rank in target.values() for rank in by_rank}))
    notes = tuple(per_rank) if len(per_rank) > 1 else ()
    return Triage(
        verdict="non_finite" if found else "clean",
        comparable=None,
        first=found[0] if found else None,
        compared=compared,
        ranks=ranks,
        step=target_step,
        notes=notes,
        suspects=tuple(found[1:4]),
    )


def _origins(stage: str, stats: Sequence[LayerStat]) -> Iterator[Divergence]:
    entries = outline(stats)
    forest = grow(pair_up(entries, entries).pairs)
    judge = _NotFinite(forest)
    if judge.bad:
        for fault in Walk(forest, judge).faults():
            yield _told(stage, forest, fault)


class _NotFinite:
    """Judges rows by whether they hold NaN or an infinity that no mask explains."""

    def __init__(self, forest: Forest) -> None:
        self.bad: set[int] = set()
        for node in forest.nodes:
            masked_in = any(_masked(forest.rows[row][0]) for row in node.inputs)
            uninitialised = node.pair.target.module.rpartition(".")[2] in _UNINITIALISED
            for row in () if uninitialised else (*node.inputs, *node.outputs, *node.weights, *node.gradients):
                if _is_bad(forest.rows[row][0], operation=node.pair.target.operation, masked_in=masked_in):
                    self.bad.add(row)

    def level(self, row: int) -> Level:
        return (math.inf, math.inf, 0.0) if row in self.bad else NOTHING

    def outputs(self, node: Node, explained: Level) -> None:
        pass

    def score(self, row: int, node: Node, explained: Level, role: str) -> float:  # noqa: ARG002
        return math.inf if row in self.bad and explained[1] < math.inf else 0.0


def _masked(row: LayerStat) -> bool:
    """Whether a row looks like an attention mask, or like scores that one was added to."""
    if row.min is None or row.max is None:
        return False
    fill = _FILL_LIMIT.get(row.dtype, 3.0e38)
    return row.min <= -fill and row.max < fill


def _is_bad(row: LayerStat, *, operation: bool, masked_in: bool) -> bool:
    numbers = [value for value in (row.max, row.min, row.mean, row.norm) if value is not None]
    if all(math.isfinite(value) for value in numbers):
        return False
    if row.max is None or row.min is None or math.isnan(row.max) or math.isnan(row.min):
        return True
    if not _masked(row):
        # Finite elements whose squares or sum overflow are large, not infinite.
        return math.isinf(row.max) or math.isinf(row.min)
    if math.isfinite(row.min) or "mask" in row.position:
        return False
    role = row.position.partition(".")[0]
    if operation:
        return role == "output" and not masked_in and row.name.split(".")[1] not in _MASKING
    return role in {"output", "parameters", "parameters_grad"} or row.direction == "backward" or row.max != 0


def _told(stage: str, forest: Forest, fault: Fault) -> Divergence:
    row = forest.rows[fault.row][0]
    module = blamed_module(fault)
    direction = "backward" if fault.node.backward else "forward"
    what = "NaN" if row.max is None or math.isnan(row.max) or (row.min is not None and math.isnan(row.min)) else "Inf"
    role, operation = row.position.partition(".")[0], operation_of(fault)
    alone = f"; it is one operation, {operation}" if operation else ""
    if role == "parameters":
        why = f"weight to blame: {row.position.partition('.')[2]} of {module} already holds {what}"
        direction = "parameters"
    elif fault.owner is fault.node:
        source = "gradient" if fault.node.backward else "input"
        why = f"operation to blame: every {source} and weight of {module} is finite, its {row.position} holds {what}{alone}"
    elif fault.owner is not None:
        why = f"operation to blame: {module} was given finite numbers, and its own code hands {what} to {module_of(fault.node)}"
    elif fault.before is None and not fault.node.backward:
        why = f"input to blame: {what} stands in {row.position} of {module}, where the data enters"
    elif fault.node.backward and (fault.before is None or not fault.before.backward):
        why = f"input to blame: the gradient is {what} where it enters ({module}): the loss, or a module that was not dumped"
    else:
        why = f"{what} arises between {module_of(fault.before) if fault.before else 'the start'} and {module_of(fault.node)}"
    return Divergence(stage, row.name, module, direction, row.position, why, statistics_of(row), None, operation)
