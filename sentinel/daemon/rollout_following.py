# SPDX-License-Identifier: Apache-2.0
"""The daemon reads what a run generates while it goes: `trainer.rollout_data_dir`, and whether a replay really happens.

A chore beside the watch: nothing here runs in the training process or holds the daemon's lock while it reads. verl
writes the file of a step on a thread of its own, so one is read when a later step was reported or when it no longer
grows. Recordings (pickles) are never opened, only looked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sentinel.core.rollout import live, replayed
from sentinel.core.rollout.decision import METRICS, UNDECIDED, decide
from sentinel.core.rollout.place import place_of
from sentinel.core.rollout.rows import HEALTHY, judge_step
from sentinel.core.rollout.side import Circumstances
from sentinel.daemon.rollout_baseline import BaselineText, baseline_text, text_hash
from sentinel.errors import SentinelError
from sentinel.records import EvidenceFound, Finding, RolloutRow, Suspect, WorkerSaid
from sentinel.sources.rollout_recording import META, recordings
from sentinel.sources.rollout_text import read_step

if TYPE_CHECKING:
    from sentinel.core.rollout.decision import Decision
    from sentinel.daemon.rollout_state import Following
    from sentinel.daemon.run_watch import RunWatch
    from sentinel.daemon.watchdog import Watchdog
    from sentinel.records import Reference

GEN, STEP = "timing_s/gen", "timing_s/step"
LENGTHS = ("response_length/mean", "response_length/max", "response_length/min")
EQUAL = 1e-6
_STEPS_AT_ONCE = 64
_KEPT = 512
_V = TypeVar("_V")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Look:
    """What is needed of a watch, taken at one moment."""

    following: Following
    folder: str
    last_step: int | None
    config: Mapping[str, Any]
    trainer: str | None
    baseline: str | None
    reference: Reference | None
    regime: str
    non_finite: tuple[int, ...]
    series: Mapping[str, Mapping[int, float]]
    finished: bool


def follow(watchdog: Watchdog, run: str) -> None:
    """Look at what is new of a run, and tell its engine what came of it."""
    look = watchdog.with_watch(run, _look)
    if look.last_step is None or look.following.first is None:
        return
    for event in (*_replay(look, watchdog.clock()), *_texts(look, watchdog.clock())):
        watchdog.tell(run, event)
    if (said := watchdog.with_watch(run, _decided)) is not None:
        watchdog.tell(run, WorkerSaid(f"decision_{said.side}", said.because, watchdog.clock()))


def _decided(watch: RunWatch) -> Decision | None:
    """The answer of a replay that happened, once there is one: at the first incident, or when the run is over."""
    following, engine = watch.following, watch.prepared.engine
    proofs = {proof.verdict for proof in following.proved.values()}
    if replayed.REPLAYED not in proofs or replayed.NOT_REPLAYED in proofs:
        return None
    snapshot = watch.prepared.engine.snapshot(watch.state)
    if not (snapshot.incidents or watch.finished):
        return None
    found = decide(snapshot.regime, snapshot.incidents, engine.charts(watch.state, METRICS))
    if found.side == UNDECIDED or following.decided:
        return None
    following.decided = found.side
    return found


def _look(watch: RunWatch) -> _Look:
    state = watch.state
    effective = (watch.description.facts.get("config") or {}).get("effective")
    rows = state.index.rows if state.index is not None else {}
    series = {
        name: {
            p.step: float(p.values[rows[name]])
            for p in state.past
            if rows[name] < len(p.present) and p.present[rows[name]]
        }
        for name in (GEN, STEP, *LENGTHS)
        if name in rows
    }
    trainer = watch.facts.get("trainer")
    return _Look(
        following=watch.following,
        folder=str(watch.facts.get("rollout_data_dir") or ""),
        last_step=state.last_step,
        config=effective if isinstance(effective, dict) else {},
        trainer=str(trainer) if trainer else None,
        baseline=watch.prepared.plan.baseline,
        reference=watch.prepared.reference,
        regime=watch.prepared.plan.regime,
        non_finite=tuple(i.last_seen_step for i in watch.incidents.values() if i.kind == "non_finite"),
        series=series,
        finished=watch.finished,
    )


# --------------------------------------------------------------------------- text


def _texts(look: _Look, now: float) -> list[EvidenceFound | WorkerSaid]:
    if not look.folder:
        return []
    folder = Path(look.folder)
    events: list[EvidenceFound | WorkerSaid] = []
    for step, path in _ready(folder, look)[:_STEPS_AT_ONCE]:
        try:
            part = read_step(path)
        except SentinelError as error:
            look.following.judged[step] = "unknown"
            events.append(WorkerSaid("rollout_text_unread", str(error), now))
            continue
        if part is not None:
            events += _judged(step, part.rows, look, now)
    return events


def _ready(folder: Path, look: _Look) -> list[tuple[int, Path]]:
    """Files that are whole, in order of steps."""
    following, last = look.following, look.last_step or 0
    assert following.first is not None
    found = []
    try:
        entries = [e for e in folder.iterdir() if e.suffix == ".jsonl" and e.stem.isdecimal()]
        for path in sorted(entries, key=lambda e: int(e.stem)):
            step, size = int(path.stem), path.stat().st_size
            if not following.first <= step <= last or step in following.judged:
                continue
            if look.finished or step < last or following.sizes.get(step) == size:
                found.append((step, path))
            following.sizes[step] = size
    except OSError:
        # Another machine's folder, or not made yet: preflight and `status` say that text is unknown.
        return []
    return found


def _judged(step: int, rows: Sequence[RolloutRow], look: _Look, now: float) -> list[EvidenceFound | WorkerSaid]:
    following = look.following
    baseline = _baseline(look)
    text = judge_step(step, rows)
    around = Circumstances(
        first_step=following.first or step,
        healthy_steps=tuple(s for s, verdict in following.judged.items() if verdict == HEALTHY)
        or ((step - 1,) if following.seen_before else ()),
        non_finite_step=max((s for s in look.non_finite if s < step), default=None),
        load_format=_load_format(look.config),
        folder=look.folder,
    )
    found = live.judge(step, text, baseline.tally if baseline else None, around)
    _keep(following.judged, step, found.verdict)
    if found.unknown:
        return [WorkerSaid("rollout_text_unknown", found.unknown, now)]
    return [EvidenceFound(found.finding, found.suspects, found.notes, now)] if found.finding else []


def _load_format(config: Mapping[str, Any]) -> str | None:
    rollout = (config.get("actor_rollout_ref") or {}).get("rollout") or {}
    found = rollout.get("load_format")
    return str(found) if found else None


def _baseline(look: _Look) -> BaselineText | None:
    """The baseline's text; read once for each baseline."""
    following = look.following
    if following.baseline is None or following.baseline[0] != look.baseline:
        following.baseline = (look.baseline, baseline_text(look.baseline) if look.baseline else None)
    return following.baseline[1]


# --------------------------------------------------------------------------- replay


def _replay(look: _Look, now: float) -> list[EvidenceFound]:
    request = replayed.request_of(look.config, look.trainer)
    # Recording and replaying are the same settings; a run that is compared with a baseline means to replay it.
    if request is None or look.reference is None or look.regime == "free":
        return []
    following = look.following
    if request.void:
        if following.void_told:
            return []
        following.void_told = True
        return [_not_replayed(look, look.last_step or 1, request.void, request, now)]
    for step in sorted(look.series.get(GEN, {})):
        if step in request.steps and step not in following.proved:
            _keep(following.proved, step, replayed.prove(_evidence(step, look, request)))
    news = [proof for proof in replayed.settled(following.proved) if proof.step not in following.reported]
    following.reported |= {proof.step for proof in news}
    return [_not_replayed(look, proof.step, proof.because, request, now) for proof in news]


def _evidence(step: int, look: _Look, request: replayed.ReplayRequest) -> replayed.StepEvidence:
    recorded = _recorded(step, look.reference)
    equal = [
        abs(look.series[name][step] - recorded[name]) <= EQUAL * max(1.0, abs(recorded[name]))
        for name in LENGTHS
        if name in recorded and step in look.series.get(name, {})
    ]
    gen, whole = recorded.get(GEN), recorded.get(STEP)
    # A baseline that was replayed itself says nothing of the time that generating takes.
    generated = gen is not None and (whole is None or gen >= replayed.QUICK_PART * whole)
    return replayed.StepEvidence(
        step=step,
        loaded=_found_before(step, look, request),
        gen_seconds=look.series.get(GEN, {}).get(step),
        recorded_gen_seconds=gen if generated else None,
        step_seconds=look.series.get(STEP, {}).get(step),
        lengths_equal=all(equal) if equal else None,
        text_equal=_text_equal(step, look),
    )


def _found_before(step: int, look: _Look, request: replayed.ReplayRequest) -> bool | None:
    """False where the recording of a step was written while this run went: verl found none and recorded what it generated."""
    place, root = place_of(look.config), Path(request.folder).expanduser()
    if place is None or not root.is_absolute() or not look.following.began:
        return None
    folder = root / place.folder / str(step)
    try:
        written = next(path.stat().st_mtime for path in (folder / META, folder / "0" / META) if path.is_file())
    except (OSError, StopIteration):
        # Another machine's folder, or none.
        return None
    return False if written >= look.following.began else None


def _recorded(step: int, reference: Reference | None) -> Mapping[str, float]:
    runs = [run for run in reference.runs if not run.twin] if reference else []
    for run in runs:
        for reading in run.readings:
            if reading.step == step and reading.kind == "train":
                return reading.metrics
    return {}


def _text_equal(step: int, look: _Look) -> bool | None:
    baseline = _baseline(look)
    theirs = baseline.hashes.get(step) if baseline else None
    if theirs is None or not look.folder or step >= (look.last_step or 0):
        return None
    try:
        part = read_step(Path(look.folder) / f"{step}.jsonl")
    except SentinelError:
        return None
    return None if part is None else text_hash(part.rows) == theirs


def _not_replayed(look: _Look, step: int, why: str, request: replayed.ReplayRequest, now: float) -> EvidenceFound:
    finding = Finding(
        detector="replay_proof",
        metric=GEN,
        step=step,
        value=look.series.get(GEN, {}).get(step, float("nan")),
        expected=None,
        because=f"A replay was asked for (skip.{request.section}.enable=True) and did not happen at step {step}: {why}.",
        stage="config",
        kind="mismatch",
        score=100.0,
    )
    suspect = Suspect(
        "config", 0.95, "the run generates its own rollouts and nothing of it can be compared step by step"
    )
    return EvidenceFound(finding, (suspect,), _where(look, request), now)


def _where(look: _Look, request: replayed.ReplayRequest) -> tuple[str, ...]:
    """Where the run looks, and what lies there."""
    place = place_of(look.config)
    notes = ["sentinel stub replay prints the overrides of a replay and checks the recording beforehand."]
    if place is None or not request.folder:
        return tuple(notes)
    root = Path(request.folder).expanduser()
    notes.append(f"The run looks for its recording in {root / place.folder}.")
    try:
        there = [found for found in recordings(root) if found.steps]
    except (SentinelError, OSError):
        there = []
    others = [f"{f.names}/{f.shape}" for f in there if f"{f.names}/{f.shape}" != place.folder]
    if others:
        notes.append(f"What lies there is {', '.join(others[:3])}: names, batch, n and lengths are part of the path.")
    return tuple(notes)


def _keep(kept: dict[int, _V], step: int, value: _V) -> None:
    kept[step] = value
    while len(kept) > _KEPT:
        del kept[next(iter(kept))]
