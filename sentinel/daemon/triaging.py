# SPDX-License-Identifier: Apache-2.0
"""Triage of dumps on disk: reads both sides and asks the core. Shared by the daemon and the command line."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sentinel.core.triage import compare, first_non_finite
from sentinel.core.triage.calibration import Calibration
from sentinel.core.triage.sides import Side
from sentinel.daemon.calibrations import shipped
from sentinel.errors import UnreadableDump
from sentinel.records import Triage
from sentinel.sources.msprobe_dump import Dump, find_dumps, read_dump, steps_of
from sentinel.sources.msprobe_tensors import ElementGap, measure


def triage_paths(
    target: str,
    golden: str | None = None,
    *,
    stages: Sequence[str] | None = None,
    clean: tuple[str, str] | None = None,
    mapping: Mapping[str, str] | None = None,
    calibration: Calibration | None = None,
) -> Triage:
    """Say where a dump parts from its golden one, or, without a golden one, where its first NaN or Inf arises.

    Args:
        target: a dump root, step, stage or rank directory, or a dump.json.
        golden: the same of the reference; where it holds several steps, the target's is taken.
        stages: look at these only.
        clean: a pair (target, golden) known to be healthy, which shows how far the two machines part.
        mapping: target's module path -> golden's.
        calibration: what clean pairs taught; None: what comes with Sentinel.

    Raises:
        UnreadableDump: either cannot be read.
    """
    with _collector_paused():
        return _triage(target, golden, tuple(stages) if stages else None, clean, mapping, calibration or shipped())


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A dump is hundreds of thousands of records and no cycles: looking for some costs a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _triage(  # noqa: PLR0917  # the arguments of triage_paths, in its order
    target: str,
    golden: str | None,
    wanted: tuple[str, ...] | None,
    clean: tuple[str, str] | None,
    mapping: Mapping[str, str] | None,
    calibration: Calibration,
) -> Triage:
    if golden is None:
        dump = read_dump(target, step=_first_step(target), stages=wanted)
        answer = first_non_finite(dump.stages, target_step=dump.step)
        return replace(answer, target=target, notes=(*answer.notes, *dump.notes))
    mine, theirs = _read_pair(target, golden, wanted)
    gaps, said, asked = _element_gaps(mine, theirs)
    answer = compare(
        mine.stages,
        theirs.stages,
        target_step=mine.step,
        golden_step=theirs.step,
        clean=[_sides(clean, wanted)] if clean else (),
        mapping=mapping,
        calibration=calibration,
        elements={paths[0]: gap.relative for paths, gap in gaps.items()},
    )
    answer = _partial(answer, mine, theirs, whole=len(gaps) == asked)
    notes = [*answer.notes, *_remarks(mine, theirs), *([said] if said else [])]
    if answer.first is not None:
        notes += [
            f"{answer.first.name} {answer.first.position}, element by element: cosine {gap.cosine:.9f}, "
            f"{gap.within_thousandth:.2%} of the elements within a thousandth, difference {gap.relative:.3g} of the norm, "
            f"most at element {gap.worst}{_units(gap)}"
            for paths, gap in gaps.items()
            if paths[0].endswith(f"{answer.first.name}.{answer.first.position}.pt")
        ]
    return replace(answer, target=target, golden=golden, notes=tuple(notes))


def _units(gap: ElementGap) -> str:
    if gap.units_median is None:
        return ""
    return f"; ULP: median {gap.units_median}, 99 % within {gap.units_high}"


def _partial(answer: Triage, mine: Dump, theirs: Dump, *, whole: bool) -> Triage:
    """The answer; what was compared in part only is never called the same."""
    missing = [
        *(["of operations or modules that one side did not dump"] if mine.level != theirs.level else []),
        *(["of the tensors that one side did not keep"] if mine.task != theirs.task else []),
        *(["of the tensors that could not be loaded"] if not whole else []),
    ]
    if answer.verdict != "same" or not missing:
        return answer
    note = f"a partial comparison: nothing parts among {answer.compared} rows, but nothing is known {' and '.join(missing)}"
    return replace(answer, verdict="not_comparable", notes=(note, *answer.notes))


def _element_gaps(mine: Dump, theirs: Dump) -> tuple[Mapping[tuple[str, str], ElementGap], str, int]:
    """Compare the tensors that both sides kept; the last value is how many those are."""
    if "tensor" not in mine.task or "tensor" not in theirs.task:
        return {}, "", 0
    pairs = []
    for stage in mine.stages.keys() & theirs.stages.keys():
        for rank in mine.stages[stage].keys() & theirs.stages[stage].keys():
            files = {(row.name, row.position): row.data for row in theirs.stages[stage][rank] if row.data}
            for row in mine.stages[stage][rank]:
                other = files.get((row.name, row.position))
                if row.data and other:
                    pairs.append((row.data, other))
    gaps, said = measure(pairs)
    there = sum(1 for pair in dict.fromkeys(pairs) if all(Path(path).is_file() for path in pair))
    return gaps, said, there


def _sides(clean: tuple[str, str], stages: tuple[str, ...] | None) -> tuple[Side, Side]:
    one, other = _read_pair(clean[0], clean[1], stages)
    return one.stages, other.stages


def _read_pair(target: str, golden: str, stages: tuple[str, ...] | None) -> tuple[Dump, Dump]:
    """Read both sides at the first step that both hold."""
    mine, theirs = steps_of(find_dumps(target)), steps_of(find_dumps(golden))
    common = sorted(set(mine) & set(theirs))
    step = common[0] if common else None
    if step is None and len(mine) > 1:
        raise UnreadableDump(golden, f"holds none of the target's steps {', '.join(map(str, mine))}")
    if step is None and len(theirs) > 1:
        raise UnreadableDump(golden, f"does not hold the target's step {', '.join(map(str, mine)) or '(unknown)'}")
    return read_dump(target, step=step, stages=stages), read_dump(golden, step=step, stages=stages)


def _first_step(path: str) -> int | None:
    steps = steps_of(find_dumps(path))
    return steps[0] if steps else None


def _remarks(mine: Dump, theirs: Dump) -> tuple[str, ...]:
    remarks = []
    if mine.level != theirs.level:
        remarks.append(f"levels differ ({mine.level} against {theirs.level}): only what both dumped was compared")
    if mine.task != theirs.task:
        remarks.append(f"tasks differ ({mine.task} against {theirs.task}): compared by their statistics")
    return tuple(dict.fromkeys([*remarks, *mine.notes, *theirs.notes]))
