# SPDX-License-Identifier: Apache-2.0
"""The daemon reads what a run generates while it goes: `trainer.rollout_data_dir`, and whether a replay really happens.

A chore beside the watch: nothing here runs in the training process or holds the daemon's lock while it reads. verl
writes the file of a step on a thread of its own, so one is read when a later step was reported or when it no longer
grows. Recordings (pickles) are never opened, only looked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.core.rollout import live, replayed
from sentinel.core.rollout.decision import METRICS, UNDECIDED, decide
from sentinel.core.rollout.rows import HEALTHY, judge_step
from sentinel.core.rollout.side import Circumstances
from sentinel.daemon.replay_proof import look_at_replay
from sentinel.daemon.rollout_state import GEN, LENGTHS, STEP, Look, baseline_of, keep
from sentinel.errors import SentinelError
from sentinel.records import EvidenceFound, RolloutRow, WorkerSaid
from sentinel.sources.rollout_text import read_step

if TYPE_CHECKING:
    from sentinel.core.rollout.decision import Decision
    from sentinel.daemon.run_watch import RunWatch
    from sentinel.daemon.watchdog import Watchdog

_STEPS_AT_ONCE = 64


def follow(watchdog: Watchdog, run: str) -> None:
    """Look at what is new of a run, and tell its engine what came of it."""
    look = watchdog.with_watch(run, _look)
    if look.last_step is None or look.following.first is None:
        return
    for event in (*look_at_replay(look, watchdog.clock()), *_texts(look, watchdog.clock())):
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


def _look(watch: RunWatch) -> Look:
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
    return Look(
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


def _texts(look: Look, now: float) -> list[EvidenceFound | WorkerSaid]:
    if not look.folder:
        return []
    folder = Path(look.folder)
    if not folder.is_dir():
        return _unseen(look, now)
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


def _unseen(look: Look, now: float) -> list[EvidenceFound | WorkerSaid]:
    """Say once that text is not judged, when the run should have written some."""
    following = look.following
    assert following.first is not None
    if following.unseen_told or (look.last_step or 0) <= following.first:
        return []
    following.unseen_told = True
    why = f"{look.folder} cannot be seen from the daemon's machine: rollout text is not judged (a shared folder is needed)"
    return [WorkerSaid("rollout_text_unseen", why, now)]


def _ready(folder: Path, look: Look) -> list[tuple[int, Path]]:
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
        # It went while it was read.
        return []
    return found


def _judged(step: int, rows: Sequence[RolloutRow], look: Look, now: float) -> list[EvidenceFound | WorkerSaid]:
    following = look.following
    baseline = baseline_of(look)
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
    keep(following.judged, step, found.verdict)
    if found.unknown:
        return [WorkerSaid("rollout_text_unknown", found.unknown, now)]
    return [EvidenceFound(found.finding, found.suspects, found.notes, now)] if found.finding else []


def _load_format(config: Mapping[str, Any]) -> str | None:
    rollout = (config.get("actor_rollout_ref") or {}).get("rollout") or {}
    found = rollout.get("load_format")
    return str(found) if found else None
