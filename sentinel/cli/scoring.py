# SPDX-License-Identifier: Apache-2.0
"""A corpus judged by the live engine and by the reference detectors, several processes at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np

from sentinel.core.catalogue import FREE_WINDOWS, REPLAY_WINDOWS, Catalogue
from sentinel.core.compare.windows import lasting
from sentinel.core.detect.evaluate import Alarm, Outcome, Row, finding_alarm, score
from sentinel.core.detect.references import RULES, Rule, Series
from sentinel.core.detect.sweep import Point, ScoredRun, curve
from sentinel.core.engine import Engine, EngineSettings, WatchState
from sentinel.daemon.house import load_catalogue
from sentinel.records import IncidentChanged, Reading, Reference, StepReported
from sentinel.storage.corpus import Corpus, CorpusGroup, CorpusRun

Job = tuple[str, Reference, tuple[CorpusRun, ...]]
"""A group's name and reference, and some of its runs."""

CHUNK = 12
"""Runs that one process judges at a time."""
UNWATCHED = ("timing_s/", "perf/", "training/global_step", "training/epoch")
"""Columns that no reference detector is shown."""
WATCHING = {"replayed": ("departure", REPLAY_WINDOWS), "free": ("drift", FREE_WINDOWS)}
"""Regime -> the detector that remembers deviations, and the windows over which they are judged."""
NO_TRAINER = "a corpus is judged: no trainer is attached that could dump a step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is judged, and against how much of each reference."""

    regime: str | None = None
    twins: bool = True
    seeds: int | None = None
    """So many seeds of each reference; None: all."""
    jobs: int = 0
    """Processes; 0: one per CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceScore:
    """One reference detector: at its published threshold, and at all of them."""

    rule: Rule
    outcomes: tuple[Outcome, ...]
    rows: tuple[Row, ...]
    curves: dict[str, tuple[Point, ...]]
    """By regime; empty where the rule has no threshold to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The whole answer."""

    split: str
    outcomes: tuple[Outcome, ...]
    rows: tuple[Row, ...]
    references: tuple[ReferenceScore, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One run: the engine's outcome, and each rule's score per step."""

    outcome: Outcome
    scores: tuple[np.ndarray, ...]


def evaluate(corpus: Corpus, options: Options, says: Callable[[str], None] = lambda _: None) -> Evaluation:
    """Judge every clean and faulty run of the corpus."""
    catalogue = load_catalogue()
    everything = judged([(job, catalogue) for job in jobs_of(corpus, options)], options.jobs, says)
    says("scoring the reference detectors")
    return evaluated(corpus.split, everything)


def evaluated(split: str, everything: Sequence[Judged]) -> Evaluation:
    """The score of runs that were judged."""
    outcomes = tuple(one.outcome for one in everything)
    references = tuple(_reference_score(number, rule, everything) for number, rule in enumerate(RULES))
    return Evaluation(split=split, outcomes=outcomes, rows=score(outcomes), references=references)


def judged(
    jobs: Sequence[tuple[Job, Catalogue]],
    processes: int,
    says: Callable[[str], None] = lambda _: None,
    settings: EngineSettings | None = None,
) -> list[Judged]:
    """What `judge` says of each run, in their order."""
    tasks = [(*job, settings or EngineSettings()) for job in jobs]
    return [one for part in _in_parts(tasks, processes, says) for one in part]


def _in_parts(
    tasks: Sequence[tuple[Job, Catalogue, EngineSettings]], processes: int, says: Callable[[str], None]
) -> list[list[Judged]]:
    workers = min(processes or os.cpu_count() or 1, len(tasks))
    if workers <= 1:
        return [judge(*task) for task in tasks]
    parts: dict[int, list[Judged]] = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(judge, *task): number for number, task in enumerate(tasks)}
        for done, future in enumerate(as_completed(futures), 1):
            parts[futures[future]] = future.result()
            says(f"{done} of {len(tasks)} parts of the corpus judged")
    return [parts[number] for number in range(len(tasks))]


def jobs_of(corpus: Corpus, options: Options) -> Iterator[Job]:
    """The corpus in parts that are judged apart."""
    for group in corpus.groups:
        if options.regime in {None, group.regime}:
            reference = limited(group, options)
            for first in range(0, len(group.judged), CHUNK):
                yield group.id, reference, group.judged[first : first + CHUNK]


def limited(group: CorpusGroup, options: Options) -> Reference:
    """The group's reference with as many seeds and twins as the options leave it."""
    seeds = [run for run in group.reference.runs if not run.twin][: options.seeds]
    twins = [run for run in group.reference.runs if run.twin and options.twins]
    return replace(group.reference, runs=(*seeds, *twins))


def judge(job: Job, catalogue: Catalogue, plain: EngineSettings) -> list[Judged]:
    """The engine as `sentinel replay` and the daemon run it, and every rule, on runs of one group."""
    name, reference, runs = job
    settings = replace(plain, capture=replace(plain.capture, enabled=False, why_not=NO_TRAINER))
    engine = Engine(settings, catalogue)
    baseline = _middle([_series(run.readings) for run in reference.runs if not run.twin])
    fresh = engine.initial(name, reference)
    out = []
    for run in runs:
        outcome = _walked(engine, fresh, run)
        if run.fault is not None and finding_alarm(outcome) is None:
            outcome = replace(outcome, closest=_closest(engine, fresh, run, run.fault.onset))
        series = _series(run.readings)
        out.append(Judged(outcome=outcome, scores=tuple(rule.scores(series, baseline) for rule in RULES)))
    return out


def _walked(engine: Engine, state: WatchState, run: CorpusRun) -> Outcome:
    alarms = []
    for reading in run.readings:
        state, effects = engine.advance(state, _event(reading))
        alarms += [_alarm(effect, reading.step) for effect in effects if _opened(effect)]
    return Outcome(run=run.id, regime=run.regime, steps=len(run.readings), fault=run.fault, alarms=tuple(alarms))


def _closest(engine: Engine, state: WatchState, run: CorpusRun, onset: int) -> str:
    """How near the stage's own metrics came from the onset on to what healthy runs reach over some window."""
    stage = run.fault.stage if run.fault is not None else ""
    best: tuple[float, str, int, int] = (0.0, "", 0, 0)
    for reading in run.readings:
        state, _ = engine.advance(state, _event(reading))
        if reading.step >= onset:
            best = max(best, _nearest(state, stage))
    if not best[1]:
        return f"no metric of {stage} left what was expected"
    ratio, metric, step, window = best
    return f"nearest of its stage: {metric} at step {step}, {ratio:.2g} of what healthy runs reach over {window} steps"


def _nearest(state: WatchState, stage: str) -> tuple[float, str, int, int]:
    """The stage's metric that is nearest to its limit at the last step: ratio, metric, step, window."""
    look, nothing = state.look, (0.0, "", 0, 0)
    if look is None or look.regime not in WATCHING or not len(look.limits):
        return nothing
    detector, windows = WATCHING[look.regime]
    if detector not in state.memory:
        return nothing
    recent = state.memory[detector].recent
    course = np.concatenate([np.zeros((len(recent), 1)), recent], axis=1)
    index = look.frame.index
    own = np.fromiter((entry.stage == stage for entry in index.entries), dtype=np.bool_, count=len(index))
    ratio, window = lasting(course, np.where(own, look.limits, 0.0), windows)
    row = int(np.argmax(ratio))
    return float(ratio[row]), index.keys[row] if ratio[row] > 0 else "", look.frame.step, windows[int(window[row])]


def _event(reading: Reading) -> StepReported:
    return StepReported(step=reading.step, values=reading.metrics, kind=reading.kind)


def _opened(effect: object) -> bool:
    return isinstance(effect, IncidentChanged) and effect.change == "opened"


def _alarm(effect: object, step: int) -> Alarm:
    """The incident as it opened. It counts from the step at which people hear of it, whatever step it dates itself to."""
    assert isinstance(effect, IncidentChanged)
    incident = effect.incident
    others = [suspect.stage for suspect in incident.suspects if suspect.stage != incident.stage]
    return Alarm(step=step, stages=(incident.stage, *others), because=incident.because)


def _series(readings: Sequence[Reading]) -> Series:
    metrics = sorted({key for reading in readings for key in reading.metrics if not key.startswith(UNWATCHED)})
    rows = [[reading.metrics.get(key, np.nan) for key in metrics] for reading in readings]
    always = [all(key in reading.metrics for reading in readings) for key in metrics]
    kept = tuple(key for key, there in zip(metrics, always, strict=True) if there)
    return Series(metrics=kept, values=np.array(rows, dtype=np.float64)[:, always])


def _middle(runs: Sequence[Series]) -> Series:
    """The mean of the seeds, step by step."""
    steps = min(len(run.values) for run in runs)
    return Series(metrics=runs[0].metrics, values=np.mean([run.values[:steps] for run in runs], axis=0))


def _reference_score(number: int, rule: Rule, judged: Sequence[Judged]) -> ReferenceScore:
    scored = [
        ScoredRun(run=one.outcome.run, regime=one.outcome.regime, fault=one.outcome.fault, scores=one.scores[number])
        for one in judged
    ]
    outcomes = tuple(run.outcome(rule.threshold) for run in scored)
    curves = {}
    if rule.swept:
        for regime in dict.fromkeys(run.regime for run in scored):
            curves[regime] = curve([run for run in scored if run.regime == regime])
    return ReferenceScore(rule=rule, outcomes=outcomes, rows=score(outcomes), curves=curves)
