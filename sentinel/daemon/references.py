# SPDX-License-Identifier: Apache-2.0
"""What a run is compared with, from whatever holds it: a bundle, a recording, or any metric file that can be read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentinel import sources
from sentinel.errors import BaselineError
from sentinel.records import GoldenDump, Reference, ReferenceRun
from sentinel.storage.bundle import Bundle, is_bundle, open_bundle
from sentinel.storage.fingerprint import facts_fingerprint
from sentinel.storage.manifest import utc_text
from sentinel.storage.recording import Recording, is_recording, read_recording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Material:
    """What one source gives to a baseline, with everything on disk."""

    name: str
    created: str
    runs: tuple[ReferenceRun, ...]
    made: str = ""
    dumps: tuple[GoldenDump, ...] = ()
    rollouts: Path | None = None
    rollouts_elsewhere: Path | None = None
    """Where a recorded run wrote its rollout text, if that folder is here; nobody asked for it yet."""
    fingerprint: Mapping[str, object] | None = None
    notes: tuple[str, ...] = ()
    """What was left out and why, for people."""
    calibration: bytes | None = None
    """Of triage, where the bundle holds one."""


def load_reference(path: Path | str) -> Reference:
    """Return everything in a bundle, a recording, or a metric file of any format that `sentinel read` knows.

    Raises:
        BaselineError: the bundle or recording cannot be used.
        UnreadableLog: the metric file is refused.
    """
    path = Path(path)
    if path.is_file() and is_bundle(path):
        return open_bundle(path).reference()
    if path.is_file() and is_recording(path):
        recording = read_recording(path)
        return Reference(
            name=_recorded_name(recording),
            runs=(recording.run,),
            dumps=recording.dumps,
            fingerprint={"facts": facts_fingerprint(recording.facts)},
        )
    return Reference(name=path.stem, runs=(_read_run(path),))


def load_references(baselines: Sequence[Path | str], twins: Sequence[Path | str] = ()) -> Reference | None:
    """Return one reference made of several sources: every seed, every twin, and all golden dumps.

    Args:
        baselines: reference runs of one recipe.
        twins: clean repeats of one of them on the same rollouts.

    Returns:
        None where nothing was given.

    Raises:
        BaselineError: a bundle or recording cannot be used.
        UnreadableLog: a metric file is refused.
    """
    loaded = [load_reference(path) for path in baselines]
    loaded += [_as_twin(load_reference(path)) for path in twins]
    if not loaded:
        return None
    return Reference(
        name=loaded[0].name,
        runs=tuple(sorted((run for reference in loaded for run in reference.runs), key=lambda run: run.twin)),
        dumps=tuple(dump for reference in loaded for dump in reference.dumps),
        fingerprint=loaded[0].fingerprint,
        rollout_steps=tuple(sorted({step for reference in loaded for step in reference.rollout_steps})),
    )


def golden_path(reference_path: Path | str, reference: Reference, step: int, stage: str, cache: Path) -> str | None:
    """Return a folder on disk with the golden dump of a stage, in the form `step0/rank<r>/dump.json` below it.

    Args:
        reference_path: where `reference` was loaded from.
        reference: as `load_reference` returned it.
        step: the step that was dumped.
        stage: the stage that was dumped.
        cache: folder for what has to be unpacked; one below it for each version of a bundle.

    Returns:
        None where the reference has no such dump.

    Raises:
        BaselineError: the bundle was damaged since it was loaded, or cannot be unpacked.
    """
    dump = next((d for d in reference.dumps if d.step == step and d.stage == stage), None)
    if dump is None:
        return None
    path = Path(reference_path)
    if path.is_file() and is_bundle(path):
        bundle = open_bundle(path)
        return str(bundle.extract_dump(step, stage, cache / bundle.contents.digest()[:16]))
    return dump.path if Path(dump.path).is_dir() else None


def gather(path: Path | str, scratch: Path) -> Material:
    """Return what a source gives to a baseline; the parts of a bundle are unpacked below `scratch`.

    Raises:
        BaselineError: the bundle or recording cannot be used.
        UnreadableLog: the metric file is refused.
    """
    path = Path(path)
    if path.is_file() and is_bundle(path):
        return _from_bundle(open_bundle(path), scratch)
    if path.is_file() and is_recording(path):
        return _from_recording(read_recording(path))
    return Material(name=path.stem, created=utc_text(), runs=(_read_run(path),))


def _from_bundle(bundle: Bundle, scratch: Path) -> Material:
    reference = bundle.reference()
    return Material(
        name=reference.name,
        created=bundle.contents.created,
        made=bundle.contents.made,
        runs=reference.runs,
        dumps=bundle.extract_dumps(scratch / "dumps"),
        rollouts=bundle.extract_rollouts(scratch / "rollouts"),
        fingerprint=reference.fingerprint,
        calibration=bundle.calibration(),
    )


def _from_recording(recording: Recording) -> Material:
    notes = list(recording.notes)
    if not recording.ended:
        notes.append("the run has not said goodbye: it still goes on, or was killed")
    return Material(
        name=_recorded_name(recording),
        created=recording.created,
        runs=(recording.run,),
        dumps=recording.dumps,
        fingerprint={"facts": facts_fingerprint(recording.facts)},
        rollouts_elsewhere=_rollouts_elsewhere(recording),
        notes=tuple(f"{recording.path}: {note}" for note in notes),
    )


def _rollouts_elsewhere(recording: Recording) -> Path | None:
    folder = recording.facts.get("rollout_data_dir")
    return Path(folder) if isinstance(folder, str) and folder and Path(folder).is_dir() else None


def _recorded_name(recording: Recording) -> str:
    experiment = recording.facts.get("experiment")
    told = experiment if isinstance(experiment, str) and experiment else Path(recording.path).stem
    return recording.name or told


def _read_run(path: Path) -> ReferenceRun:
    if not path.exists():
        raise BaselineError(path, "no such file or folder")
    read = sources.read_file(path)
    if not read.steps:
        raise BaselineError(path, "holds no step with metrics")
    return ReferenceRun(source=str(path), readings=read.steps, resolution=read.resolution)


def _as_twin(reference: Reference) -> Reference:
    return replace(reference, runs=tuple(replace(run, twin=True) for run in reference.runs))
