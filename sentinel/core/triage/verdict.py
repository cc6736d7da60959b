# SPDX-License-Identifier: Apache-2.0
"""The verdict on a pair of dumps: comparable at all, and where the two part first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sentinel.core.triage.calibration import Calibration, calibrate
from sentinel.core.triage.comparable import Weights, judge_rows, judge_weights
from sentinel.core.triage.deviation import Deviations
from sentinel.core.triage.forest import Forest
from sentinel.core.triage.joint import Evidence, Sighting
from sentinel.core.triage.judging import Deviating, background
from sentinel.core.triage.noise import Noise
from sentinel.core.triage.outline import Entry
from sentinel.core.triage.pairing import Pairing
from sentinel.core.triage.sides import Side, Stats, prepare, rank_pairs, stage_pairs
from sentinel.core.triage.single import operation_of
from sentinel.core.triage.structure import structure
from sentinel.core.triage.tell import divergence_of_fault, divergence_of_weights
from sentinel.core.triage.tolerance import Tolerance
from sentinel.core.triage.walk import Fault, Walk
from sentinel.records import Comparable, Divergence, Triage

# Weights further apart than this are another model, not a few updates: their outputs prove nothing.
MOVED_TOO_FAR = 0.02
# Below this, fp32 arithmetic agrees.
LEAST_BACKGROUND = 2e-5
# A border case (below so many allowances) is no origin where another stands so many times further out: large faults move the
# weights by up to the learning rate within one step, and what that does to early modules just crosses the line.
BORDER = 8.0
CLEARLY = 10.0


@dataclass(frozen=True, slots=True)
class RankVerdict:
    """What one rank of one stage says."""

    stage: str
    rank: int
    rows: bool | None
    rows_why: str
    weights: Weights
    first: Divergence | None
    suspects: tuple[Divergence, ...]
    compared: int
    pairing: Pairing
    structure: str
    """What the pair lacks on a side that it should have; empty where it is complete."""


def compare(
    target: Side,
    golden: Side,
    *,
    target_step: int | None = None,
    golden_step: int | None = None,
    clean: Sequence[tuple[Side, Side]] = (),
    mapping: Mapping[str, str] | None = None,
    elements: Mapping[str, float] | None = None,
    calibration: Calibration | None = None,
) -> Triage:
    """Say where the target parts from the golden dump first.

    Args:
        target: stage -> rank -> statistics in order of completion.
        golden: the same of the reference.
        target_step: step of the target, where known.
        golden_step: step of the golden dump, where known.
        clean: pairs (target, golden) that differ by hardware or kernels only; they widen what is tolerated.
        mapping: target's module path -> golden's, where the two name things differently.
        elements: file of a target's tensor -> relative norm of its difference, where tensors were compared by element.
        calibration: what is known of clean pairs already; None: the factory's factors, and no evidence from rows together.
    """
    known = calibration or Calibration()
    for pair in clean:
        known = known.merged(calibrate(pair, mapping or {}))
    notes: list[str] = []
    verdicts: list[RankVerdict] = []
    for stage, mine, theirs in stage_pairs(target, golden, notes):
        for rank, other in rank_pairs(mine, theirs, stage, notes):
            verdicts.append(
                _judge((stage, rank), (mine[rank], theirs[other]), known, (mapping or {}, elements or {}), notes)
            )
    step = None if target_step is None or golden_step is None else target_step == golden_step
    return _summary(verdicts, step, target_step, notes)


def _judge(
    place: tuple[str, int],
    sides: tuple[Stats, Stats],
    known: Calibration,
    given: tuple[Mapping[str, str], Mapping[str, float]],
    notes: list[str],
) -> RankVerdict:
    stage, rank = place
    pairing, forest, measured, note = prepare(*sides, *given)
    notes += [note] if note and note not in notes else []
    compared = int(measured.known.sum())
    rows, rows_why = judge_rows(forest, measured)
    weights = judge_weights(forest, measured, frozen=stage == "ref_compute_log_prob")
    tolerance = Tolerance(known.widened, moved=weights.typical if weights.moved else None)
    found, added = _faults(forest, measured, tolerance, known.noise)
    if added:
        notes.append(
            f"{stage} rank {rank}: every operation adds about {added:.1g} of its own: another arithmetic (TF32, HF32?)"
        )
    told = [divergence_of_weights(stage, forest, place, weights) for place in weights.blamed]
    told += [
        divergence_of_fault(stage, forest, fault, operation_of(fault) if weights.agree is not None else "")
        for fault in _by_owner(found)
    ]
    return RankVerdict(
        stage,
        rank,
        rows,
        rows_why,
        weights,
        told[0] if told else None,
        tuple(told[1:4]),
        compared,
        pairing,
        structure(pairing),
    )


def _faults(forest: Forest, measured: Deviations, tolerance: Tolerance, noise: Noise) -> tuple[list[Fault], float]:
    """The origins, and what every operation adds on its own, which is learnt in a first pass."""
    judge = Deviating(forest, measured, tolerance)
    sighting = Sighting(judge, forest, measured)
    found = judge.confirmed(list(Walk(forest, sighting if sighting.useful else judge).faults()))
    added = background(judge.fresh, LEAST_BACKGROUND) if found and tolerance.moved is None else 0.0
    if added:
        found = list(Walk(forest, Deviating(forest, measured, replace(tolerance, background=added))).faults())
    if not found:
        together = Evidence(sighting, noise).first()
        return ([together] if together is not None else []), added
    return _without_border_cases(found), added


def _without_border_cases(faults: Sequence[Fault]) -> list[Fault]:
    """The faults, without those that just cross the line where another is clear."""
    clearest = max((fault.score for fault in faults), default=0.0)
    return [fault for fault in faults if fault.score >= BORDER or fault.score * CLEARLY >= clearest]


def _by_owner(faults: Sequence[Fault]) -> list[Fault]:
    """One fault for each call that is to blame, in order."""
    seen: set[int] = set()
    kept = []
    for fault in faults:
        blamed = id(fault.owner or fault.node)
        if blamed not in seen:
            seen.add(blamed)
            kept.append(fault)
    return kept


def _summary(verdicts: list[RankVerdict], step: bool | None, target_step: int | None, notes: list[str]) -> Triage:
    compared = sum(verdict.compared for verdict in verdicts)
    if not compared:
        notes.append("nothing in the two dumps has the same name and a common measure")
        return Triage("not_comparable", Comparable(step, None, None), None, 0, notes=tuple(notes), step=target_step)
    for verdict in verdicts:
        notes += _notes_of(verdict)
    notes += _sick_ranks(verdicts)
    usable = [verdict for verdict in verdicts if _proves(verdict, step)]
    blamed = [verdict for verdict in usable if verdict.first is not None] or [
        verdict for verdict in verdicts if verdict.weights.blamed and step is not False
    ]
    leading = blamed[0] if blamed else (usable or verdicts)[0]
    return Triage(
        verdict="diverged" if blamed else _without_fault(usable, notes),
        comparable=Comparable(step, _all(v.rows for v in verdicts if v.stage == leading.stage), leading.weights.agree),
        first=leading.first if blamed else None,
        compared=compared,
        only_in_target=_names(entry for verdict in verdicts for entry in verdict.pairing.only_in_target),
        only_in_golden=_names(entry for verdict in verdicts for entry in verdict.pairing.only_in_golden),
        ranks=tuple(sorted({verdict.rank for verdict in verdicts})),
        step=target_step,
        notes=tuple(dict.fromkeys(notes)),
        suspects=leading.suspects if blamed else (),
    )


def _proves(verdict: RankVerdict, step: bool | None) -> bool:
    """Whether this rank's pair is of the same computation."""
    if not verdict.compared or verdict.rows is False:
        return False
    same_start = verdict.rows is True and verdict.weights.agree is True
    return (step is not False or same_start) and verdict.weights.moved <= MOVED_TOO_FAR


def _without_fault(usable: list[RankVerdict], notes: list[str]) -> str:
    if not usable or any(verdict.structure for verdict in usable):
        return "not_comparable"
    if any(verdict.weights.moved for verdict in usable):
        notes.append("nothing stands out beyond what the moved weights explain")
    return "same"


def _notes_of(verdict: RankVerdict) -> list[str]:
    where = f"{verdict.stage} rank {verdict.rank}"
    notes = []
    if verdict.rows is False:
        notes.append(f"{where}: other rows: {verdict.rows_why}")
    if verdict.weights.moved:
        notes.append(
            f"{where}: {verdict.weights.differing} of {verdict.weights.compared} weights differ, most by up to "
            f"{verdict.weights.moved:.2g}: moved by updates, not blamed"
        )
    if verdict.weights.moved > MOVED_TOO_FAR:
        notes.append(f"{where}: weights are too far apart for their outputs to prove anything")
    if verdict.structure:
        notes.append(f"{where}: {verdict.structure}")
    return notes


def _sick_ranks(verdicts: Sequence[RankVerdict]) -> list[str]:
    """Where ranks of one stage disagree: which of them part, and where each does first."""
    notes = []
    for stage in dict.fromkeys(verdict.stage for verdict in verdicts):
        ranks = [verdict for verdict in verdicts if verdict.stage == stage]
        sick = [f"rank {verdict.rank} at {verdict.first.module}" for verdict in ranks if verdict.first is not None]
        if sick and len(ranks) > 1:
            notes.append(f"{stage}: {len(sick)} of {len(ranks)} ranks part: {', '.join(sick)}")
    return notes


def _all(answers: Iterable[bool | None]) -> bool | None:
    listed = list(answers)
    if False in listed:
        return False
    return None if None in listed or not listed else True


def _names(entries: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entry.name for entry in entries))
