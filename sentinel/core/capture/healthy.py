# SPDX-License-Identifier: Apache-2.0
"""A run beside itself while it was healthy: which module stands out of how far all of them moved.

Step, rows and weights differ between the two dumps, so this proves nothing; it says where a dump of whole tensors, which needs no
golden, is worth its price. Outputs that grew or shrank like all the others did are no sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from sentinel.records import Divergence, LayerStat

STANDS_OUT = math.log(1.5)
"""Least change of an output's size beside the others', as a logarithm: other rows alone move single outputs by up to a fifth."""
SPREADS = 8.0
"""And so many times the spread of all of them."""
FEWEST = 4
SHOWN = 3


def standing_out(
    stage: str, now: Sequence[LayerStat], healthy: Sequence[LayerStat], step: int
) -> tuple[Divergence, ...]:
    """The modules whose outputs changed most beside the others, in the order of execution; at most SHOWN.

    Args:
        stage: that both are dumps of.
        now: the dump of the incident, one rank.
        healthy: the same rank's, while the run was healthy.
        step: of the healthy dump.
    """
    before = _sizes(healthy)
    pairs = [(row, before[row.name, row.position]) for row in now if (row.name, row.position) in before and _size(row)]
    for direction in ("forward", "backward"):
        here = [(row, size) for row, size in pairs if row.direction == direction and row.position == "output.0"]
        if len(here) < FEWEST:
            continue
        moved = np.array([math.log(_size(row) / size) for row, size in here])
        around = moved - np.median(moved)
        allowed = max(STANDS_OUT, SPREADS * 1.4826 * float(np.median(np.abs(around))))
        out = [place for place in range(len(here)) if abs(around[place]) > allowed]
        if out:
            return tuple(_told(stage, *here[place], float(np.exp(around[place])), step) for place in out[:SHOWN])
    return ()


def _sizes(rows: Sequence[LayerStat]) -> Mapping[tuple[str, str], float]:
    return {(row.name, row.position): _size(row) for row in rows if _size(row)}


def _size(row: LayerStat) -> float:
    """Root mean square of a module's tensor; 0 where it says nothing."""
    elements = math.prod(row.shape)
    usable = (
        row.name.startswith("Module.")
        and row.norm is not None
        and math.isfinite(row.norm)
        and row.norm > 0
        and elements
    )
    return row.norm / math.sqrt(elements) if usable and row.norm is not None else 0.0


def _told(stage: str, row: LayerStat, size: float, times: float, step: int) -> Divergence:
    return Divergence(
        stage=stage,
        name=row.name,
        module=row.module,
        direction=row.direction,
        position=row.position,
        why=f"its output is {times:.3g} times as large as at healthy step {step}, beside all other modules of the stage",
        target={"rms": _size(row)},
        golden={"rms": size, "step": step},
    )
