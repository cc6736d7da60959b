# SPDX-License-Identifier: Apache-2.0
"""Whether a replay that was asked for really happens, step by step, while the run goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sentinel.core.rollout import replayed
from sentinel.core.rollout.place import place_of
from sentinel.daemon.rollout_baseline import text_hash
from sentinel.daemon.rollout_state import GEN, LENGTHS, STEP, baseline_of, keep
from sentinel.errors import SentinelError
from sentinel.records import EvidenceFound, Finding, Suspect
from sentinel.sources.rollout_recording import META, recordings
from sentinel.sources.rollout_text import read_step

if TYPE_CHECKING:
    from sentinel.daemon.rollout_state import Look
    from sentinel.records import Reference

EQUAL = 1e-6


def look_at_replay(look: Look, now: float) -> list[EvidenceFound]:
    """Return what shows that steps which should have been replayed were not; each step once."""
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
            keep(following.proved, step, replayed.prove(_evidence(step, look, request)))
    news = [proof for proof in replayed.settled(following.proved) if proof.step not in following.reported]
    following.reported |= {proof.step for proof in news}
    return [_not_replayed(look, proof.step, proof.because, request, now) for proof in news]


def _evidence(step: int, look: Look, request: replayed.ReplayRequest) -> replayed.StepEvidence:
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


def _found_before(step: int, look: Look, request: replayed.ReplayRequest) -> bool | None:
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


def _text_equal(step: int, look: Look) -> bool | None:
    baseline = baseline_of(look)
    theirs = baseline.hashes.get(step) if baseline else None
    if theirs is None or not look.folder or step >= (look.last_step or 0):
        return None
    try:
        part = read_step(Path(look.folder) / f"{step}.jsonl")
    except SentinelError:
        return None
    return None if part is None else text_hash(part.rows) == theirs


def _not_replayed(look: Look, step: int, why: str, request: replayed.ReplayRequest, now: float) -> EvidenceFound:
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


def _where(look: Look, request: replayed.ReplayRequest) -> tuple[str, ...]:
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
