# SPDX-License-Identifier: Apache-2.0
"""Which of a capture's dumps are compared with which golden ones, and which of the answers counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.core.capture.healthy import standing_out
from sentinel.core.engine.moments import HEALTHY
from sentinel.daemon.recomputing import is_tensor_dump, recompute, tensor_bytes
from sentinel.daemon.triaging import triage_paths
from sentinel.errors import SentinelError
from sentinel.records import DUMPABLE_STAGES, TrainerDescribed, Triage
from sentinel.sources.msprobe_dump import find_dumps, read_rank

if TYPE_CHECKING:
    from sentinel.core.triage.calibration import Calibration
    from sentinel.daemon.run_watch import RunWatch
    from sentinel.records import AskTriage, Effect, Reference

# From the one that says most: a difference, or a NaN, before its absence, before no answer.
_RANK = ("diverged", "non_finite", "same", "clean", "not_comparable")
_STEP = re.compile(r"step_(\d+)$")


def tell_of_trainer(watch: RunWatch, at_seconds: float) -> tuple[Effect, ...]:
    """Tell a run's engine what its trainer said that decides about captures; nothing where that is known already."""
    book = watch.state.book
    size = book.size.parameters if book.size is not None else 0.0
    known = TrainerDescribed(ranks=book.ranks, parameters=size, stages=book.stages, recorder=book.recorder)
    recorder = watch.prepared.plan.flight_recorder_bytes > 0
    now = described(watch.facts, watch.description.facts, recorder=recorder)
    # What is not said now may have been said before; it stays.
    now = replace(
        now,
        ranks=now.ranks or known.ranks,
        parameters=now.parameters or known.parameters,
        stages=now.stages or known.stages,
    )
    return () if now == known else watch.tell(replace(now, at_seconds=at_seconds))


def described(facts: Mapping[str, Any], more: Mapping[str, Any], *, recorder: bool) -> TrainerDescribed:
    """Return what a trainer's facts, and its workers', say that decides about captures; 0 where they do not say it."""
    workers = more.get("workers")
    listed = [worker for worker in workers if isinstance(worker, Mapping)] if isinstance(workers, list) else []
    sizes = [size for worker in listed if isinstance(size := worker.get("parameters"), (int, float))]
    ranks = facts.get("ranks")
    stages = facts.get("stages")
    return TrainerDescribed(
        stages=tuple(s for s in stages if s in DUMPABLE_STAGES) if isinstance(stages, (list, tuple)) else (),
        ranks=ranks if isinstance(ranks, int) and ranks > 0 else 0,
        parameters=float(max(sizes, default=0)),
        recorder=recorder,
    )


@dataclass(frozen=True, slots=True)
class Golden:
    """Where golden dumps come from."""

    baseline: str | None
    reference: Reference | None
    cache: Path
    healthy: tuple[str, ...] = ()
    """Stage directories of the run's own dump while it was healthy."""

    def beside_itself(self, stage: str) -> str | None:
        """Return the run's own healthy dump of a stage."""
        return next((path for path in self.healthy if Path(path).name == stage), None)

    def find(self, step: int, stage: str) -> str | None:
        """Return the folder with the golden dump of a stage of a step; None where there is none.

        Raises:
            BaselineError: the bundle was damaged since it was loaded.
        """
        if self.baseline is None or self.reference is None:
            return None
        from sentinel.daemon.references import golden_path  # here for the reason that `planning` states

        return golden_path(self.baseline, self.reference, step, stage, self.cache)

    def calibration(self) -> Calibration:
        """Return what clean pairs taught, those of the baseline's own twins included."""
        from sentinel.daemon.calibrations import of_baseline  # here for the reason that `planning` states

        return of_baseline(self.baseline)


def healthy_of(watch: RunWatch) -> tuple[str, ...]:
    """Return the stage directories of a run's own healthy dump."""
    found = (c.receipt for c in watch.state.book.captures if c.id == f"{watch.run}:{HEALTHY}" and c.receipt is not None)
    return next((receipt.paths for receipt in found), ())


def triage(ask: AskTriage, golden: Golden) -> Triage:
    """Return what the dumps of a capture show: the first answer of the highest worth, by step, then by suspicion."""
    best: Triage | None = None
    notes: list[str] = []
    dumps = list(_dumps(ask))
    for step, stage, path in dumps:
        answer = _one(ask, golden, step, stage, path)
        if len(dumps) > 1:
            notes.append(f"step {step}, {stage}: {answer.verdict}")
        notes += answer.notes
        if best is None or _RANK.index(answer.verdict) < _RANK.index(best.verdict):
            best = answer
        if _RANK.index(best.verdict) <= _RANK.index("non_finite"):
            break
    if best is None:
        return nothing(f"the capture left no dump of {', '.join(ask.stages)}: {ask.receipt.outcome} {ask.receipt.why}")
    return replace(best, notes=tuple(dict.fromkeys(notes)))


def _dumps(ask: AskTriage) -> Iterator[tuple[int, str, str]]:
    """Yield (step, stage, stage directory) of what was dumped, oldest step first, most suspicious stage first."""
    found: list[tuple[int, int, str, str]] = []
    for path in ask.receipt.paths:
        folder = Path(path)
        match = _STEP.search(folder.parent.name)
        if match is not None and folder.name in ask.stages:
            found.append((int(match[1]), ask.stages.index(folder.name), folder.name, path))
    for step, _, stage, path in sorted(found):
        yield step, stage, path


def _one(ask: AskTriage, golden: Golden, step: int, stage: str, path: str) -> Triage:
    try:
        if ask.non_finite:
            return triage_paths(path, None)
        if is_tensor_dump(path):
            # Its own inputs and weights are the golden: nothing has to agree with another machine, step or history.
            return recompute(step, stage, path)
        other = golden.find(step, stage)
        if other is None:
            return _beside_itself(golden.beside_itself(stage), step, stage, path)
        return _priced(triage_paths(path, other, calibration=golden.calibration()), path)
    except (SentinelError, OSError) as error:
        return nothing(str(error), step=step, target=path)


def _beside_itself(healthy: str | None, step: int, stage: str, path: str) -> Triage:
    """Return what a dump shows beside the run's own healthy one: suspects at most, for step, rows and weights differ."""
    none = nothing(f"the baseline holds no golden dump of {stage} at step {step}", step=step, target=path)
    match = None if healthy is None else _STEP.search(Path(healthy).parent.name)
    if healthy is None or match is None:
        return none
    mine = {place.rank: place for place in find_dumps(path)}
    for place in find_dumps(healthy):
        if place.rank in mine:
            rows, theirs = read_rank(mine[place.rank].file).stats, read_rank(place.file).stats
            suspects = standing_out(stage, rows, theirs, int(match[1]))
            if suspects:
                said = f"beside the run's own healthy dump {suspects[0].module} stands out: {suspects[0].why}"
                price = tensor_bytes(path, suspects[0].module)
                return replace(none, suspects=suspects, tensor_bytes=price, golden=healthy, notes=(*none.notes, said))
    said = f"no module stands out beside the run's own healthy dump of step {match[1]}"
    return replace(none, golden=healthy, notes=(*none.notes, said))


def _priced(answer: Triage, path: str) -> Triage:
    """Return the answer with what the tensors of the module that it names would take."""
    if answer.first is None or not answer.first.module:
        return answer
    return replace(answer, tensor_bytes=tensor_bytes(path, answer.first.module))


def nothing(why: str, *, step: int | None = None, target: str = "") -> Triage:
    """Return the answer that nothing could be compared, and why."""
    return Triage(
        verdict="not_comparable", comparable=None, first=None, compared=0, notes=(why,), step=step, target=target
    )
