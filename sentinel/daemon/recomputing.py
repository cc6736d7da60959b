# SPDX-License-Identifier: Apache-2.0
"""A tensor dump judged by itself: which call does not compute what its own inputs and weights say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from sentinel.records import Divergence, Triage
from sentinel.sources.msprobe_dump import find_dumps, read_rank
from sentinel.sources.rerun import compute_again, first_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentinel.records import LayerStat
    from sentinel.sources.rerun import Again

_BYTES = {"64": 8, "32": 4, "16": 2, "8": 1}
_COPIES = 2
"""A module's tensors are dumped with the module and with the operation inside it."""


def recompute(step: int, stage: str, path: str) -> Triage:
    """Return what a stage's tensor dump shows when its calls are computed again; the first rank with a finding counts.

    Raises:
        UnreadableDump: there is no dump, or it cannot be read.
    """
    notes: list[str] = []
    checked = 0
    ranks: list[int] = []
    for place in find_dumps(path):
        calls, why = compute_again(place.file)
        checked += len(calls)
        ranks.append(place.rank or 0)
        if why:
            notes.append(f"rank {place.rank or 0}: {why}")
        found = first_out(calls)
        if found is not None:
            first = _told(stage, found, calls, read_rank(place.file).stats)
            said = f"{len(calls)} calls computed again from their own inputs and weights: {sum(c.out for c in calls)} are out"
            return Triage(
                "diverged", None, first, checked, ranks=tuple(ranks), step=step, target=path, notes=(*notes, said)
            )
    verdict = "same" if checked else "not_comparable"
    said = f"{checked} calls computed again from their own inputs and weights: each is what they say"
    none = "no call of the dump could be computed again"
    return Triage(
        verdict,
        None,
        None,
        checked,
        ranks=tuple(ranks),
        step=step,
        target=path,
        notes=(*notes, said if checked else none),
    )


def _told(stage: str, found: Again, calls: Sequence[Again], rows: Sequence[LayerStat]) -> Divergence:
    outputs = [row for row in rows if row.position == "output.0"]
    here = next((row for row in outputs if row.name == found.name), None)
    name, why = found.name, found.why
    module = here.module if here is not None else ""
    if found.name.startswith("Module.") and here is not None and ".forward." in found.name:
        # What its class computes is right or was not dumped; then the operation that made its output is none of its own.
        maker = next((row for row in reversed(_before(outputs, here)) if _same(row, here)), None)
        if maker is not None and not any(call.name == maker.name and call.out for call in calls):
            name = maker.name
            why = f"{found.name}: {why}; its output is made by {maker.name}"
    elif here is not None:
        after = outputs[outputs.index(here) :]
        module = next((row.module for row in after if row.name.startswith("Module.")), here.module)
    statistics: dict[str, object] = {"norm": found.norm, "again_in_fp32": found.again, "worst_element": found.place}
    direction = "backward" if ".backward" in found.name else "forward"
    return Divergence(stage, name, module, direction, found.position, why, statistics, None)


def _before(rows: Sequence[LayerStat], row: LayerStat) -> list[LayerStat]:
    """The operations that ended between the module's predecessor and its own end."""
    before: list[LayerStat] = []
    for other in rows[: rows.index(row)]:
        before = [] if other.name.startswith("Module.") else [*before, other]
    return before


def _same(one: LayerStat, other: LayerStat) -> bool:
    return one.norm is not None and one.norm == other.norm and one.max == other.max


def tensor_bytes(path: str, module: str) -> int | None:
    """Return what one step of a module's tensors would take on disk, on the dearest rank, by the shapes in a dump of it.

    Raises:
        UnreadableDump: there is no dump, or it cannot be read.
    """
    most = 0
    for place in find_dumps(path):
        rows = [
            row for row in read_rank(place.file).stats if row.module == module or row.module.startswith(f"{module}.")
        ]
        most = max(most, sum(math.prod(row.shape) * _width(row.dtype) for row in rows))
    return _COPIES * most or None


def _width(dtype: str) -> int:
    return next((size for bits, size in _BYTES.items() if dtype.endswith(bits)), 4)


def is_tensor_dump(path: str) -> bool:
    """Whether a stage's dump kept tensors."""
    return any((Path(place.file).parent / "dump_tensor_data").is_dir() for place in find_dumps(path))
