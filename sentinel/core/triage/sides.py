# SPDX-License-Identifier: Apache-2.0
"""Two dumps side by side: which stage and rank of one belongs to which of the other, and their rows paired and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sentinel.core.triage.deviation import Deviations, deviations
from sentinel.core.triage.forest import Forest, grow
from sentinel.core.triage.outline import outline
from sentinel.core.triage.pairing import Pairing, pair_up, renaming
from sentinel.records import STAGES, LayerStat

Stats = Sequence[LayerStat]
Side = Mapping[str, Mapping[int, Stats]]
"""Stage -> rank -> statistics in order of completion."""


def stage_pairs(
    target: Side, golden: Side, notes: list[str]
) -> list[tuple[str, Mapping[int, Stats], Mapping[int, Stats]]]:
    """The stages that both sides dumped, in the order of the data flow; `notes` takes the others."""
    common = sorted(set(target) & set(golden), key=_flow)
    if not common and len(target) == len(golden) == 1:
        stage, other = next(iter(target)), next(iter(golden))
        return [(stage if stage in STAGES else other, target[stage], golden[other])]
    notes += [f"stage {stage} was dumped in the target only" for stage in sorted(set(target) - set(golden), key=_flow)]
    notes += [
        f"stage {stage} was dumped in the golden run only" for stage in sorted(set(golden) - set(target), key=_flow)
    ]
    return [(stage, target[stage], golden[stage]) for stage in common]


def _flow(stage: str) -> tuple[int, str]:
    return (STAGES.index(stage) if stage in STAGES else len(STAGES), stage)


def rank_pairs(
    mine: Mapping[int, Stats], theirs: Mapping[int, Stats], stage: str, notes: list[str]
) -> list[tuple[int, int]]:
    """The ranks that are compared; `notes` takes what has no partner."""
    common = sorted(set(mine) & set(theirs))
    if common:
        if set(mine) != set(theirs):
            notes.append(
                f"{stage}: ranks {_list(mine)} against {_list(theirs)}; compared {_list(common)}, the others have no partner"
            )
        return [(rank, rank) for rank in common]
    one, other = min(mine), min(theirs)
    notes.append(f"{stage}: rank {one} of the target compared with rank {other} of the golden dump, no rank is common")
    return [(one, other)]


def _list(ranks: Mapping[int, Stats] | Sequence[int]) -> str:
    return ", ".join(str(rank) for rank in sorted(ranks))


def prepare(
    mine: Stats, theirs: Stats, mapping: Mapping[str, str], elements: Mapping[str, float] | None = None
) -> tuple[Pairing, Forest, Deviations, str]:
    """Pair and measure the rows of one rank; the last value is a note about names."""
    rename, note = renaming(mine, theirs, mapping)
    pairing = pair_up(outline(mine, rename), outline(theirs))
    forest = grow(pairing.pairs)
    return pairing, forest, deviations(forest.rows, elements), note
