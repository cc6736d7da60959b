# SPDX-License-Identifier: Apache-2.0
"""The baseline bundle: one portable file with everything that a run is compared with.

A sealed zip (`archive.py`) of

    manifest.json                                     what is in it, how it was made, hashes of the other parts
    metrics.parquet                                   every step of every run (`metrics_table.py`)
    dumps/step_<N>/<stage>/step0/rank<r>/*.json       golden dumps, statistics only
    rollouts/...                                      rollout text `<N>.jsonl`, or a rollout recording, as found

It opens on a machine that has neither torch nor verl. Opening verifies; whatever is wrong is one `BaselineError`.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sentinel.errors import BaselineError
from sentinel.records import GoldenDump, Reference, ReferenceRun
from sentinel.storage import manifest as manifests
from sentinel.storage import metrics_table
from sentinel.storage.archive import Archive, ArchiveWriter, is_archive, is_safe_name
from sentinel.storage.dump_tree import DUMP_FILE, FILES, check_dump_file, rank_folder, stage_folder
from sentinel.storage.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

MANIFEST = "manifest.json"
METRICS = "metrics.parquet"
CALIBRATION = "triage_calibration.json"
"""What clean pairs of dumps taught, where the baseline has dumps of twins."""
_MANIFEST_LIMIT = 64 << 20
_METRICS_LIMIT = 4 << 30
_CALIBRATION_LIMIT = 64 << 20
_ROLLOUT_LIMIT = 2 << 30


def is_bundle(path: Path) -> bool:
    """Tell by content whether a file is meant as a bundle."""
    return is_archive(path)


def rollout_files(roots: Sequence[Path]) -> dict[str, Path]:
    """Return the files of rollout folders: path below its folder -> file.

    Raises:
        BaselineError: a folder holds none, two hold one of the same name, or a name cannot be packed.
    """
    found: dict[str, Path] = {}
    for root in roots:
        files = {p.relative_to(root).as_posix(): p for p in sorted(root.rglob("*")) if p.is_file()}
        files = {name: p for name, p in files.items() if not any(part.startswith(".") for part in name.split("/"))}
        if not files:
            raise BaselineError(root, "holds no rollout files")
        for name, path in files.items():
            if not is_safe_name(name):
                raise BaselineError(path, "has a name that cannot travel; use letters, digits and . _ - + = @")
            if name in found:
                raise BaselineError(path, f"rollouts named {name} are there already; keep one")
        found |= files
    return found


def write_bundle(
    path: Path,
    *,
    name: str,
    runs: Sequence[ReferenceRun],
    dumps: Sequence[GoldenDump] = (),
    rollouts: Path | Sequence[Path] | None = None,
    fingerprint: Mapping[str, object] | None = None,
    calibration: bytes | None = None,
    made: str = "",
    created: str | None = None,
) -> Manifest:
    """Write a bundle, replacing what lies there only when the new one is whole; return its manifest.

    The same arguments give the same bytes (with the same pyarrow); `created` is now unless given.

    Args:
        path: where it goes.
        name: of the baseline, for people.
        runs: seeds and twins; seeds are put first.
        dumps: golden dumps with the stage folders on disk that hold them.
        rollouts: folder or folders of rollout files, packed whole.
        fingerprint: of model and configuration.
        calibration: of triage, learnt from dumps of twins.
        made: how it was made.
        created: time in the manifest's form.

    Raises:
        BaselineError: a dump is unfinished, there twice or has odd names; or the bundle cannot be written.
    """
    ordered = sorted(runs, key=lambda run: run.twin)
    keys = metrics_table.metric_keys([run.readings for run in ordered])
    packed = rollout_files([rollouts] if isinstance(rollouts, Path) else rollouts or [])
    golden = _dump_files(dumps)
    try:
        with ArchiveWriter(path) as archive:
            table = metrics_table.to_parquet([run.readings for run in ordered], keys)
            archive.add(METRICS, io.BytesIO(table), packed=True)
            if calibration is not None:
                archive.add(CALIBRATION, io.BytesIO(calibration), packed=True)
            _add_files(archive, golden | {f"rollouts/{below}": file for below, file in packed.items()})
            manifest = Manifest(
                format=manifests.FORMAT,
                name=name,
                created=created or manifests.utc_text(),
                made=made,
                runs=[manifests.describe_run(run) for run in ordered],
                metrics=list(keys),
                rollout_steps=manifests.rollout_steps(packed),
                dumps=manifests.describe_dumps(dumps),
                fingerprint=dict(fingerprint) if fingerprint is not None else None,
                parts=dict(archive.parts),
            )
            archive.add(MANIFEST, io.BytesIO(manifests.encode(manifest)))
    except OSError as error:
        raise BaselineError(path, f"cannot be written: {error.strerror or error}") from error
    return manifest


def _add_files(archive: ArchiveWriter, files: Mapping[str, Path]) -> None:
    for member, source in files.items():
        with source.open("rb") as stream:
            archive.add(member, stream)


def _dump_files(dumps: Sequence[GoldenDump]) -> dict[str, Path]:
    """Return the members of golden dumps and the files that they come from, each checked."""
    found: dict[str, Path] = {}
    for dump in sorted(dumps, key=lambda dump: (dump.step, dump.stage)):
        for rank in dump.ranks:
            folder = Path(dump.path) / rank_folder(rank)
            member = f"dumps/{stage_folder(dump.step, dump.stage)}/{rank_folder(rank)}"
            if not is_safe_name(member):
                raise BaselineError(folder, f"stage {dump.stage!r} is no name that can travel")
            if f"{member}/{DUMP_FILE}" in found:
                raise BaselineError(
                    folder, f"a golden dump of step {dump.step}, {dump.stage}, rank {rank} is there already; keep one"
                )
            check_dump_file(folder / DUMP_FILE)
            found |= {f"{member}/{file}": folder / file for file in FILES if (folder / file).is_file()}
    return found


class Bundle:
    """An opened bundle: verified, its metrics in memory, the rest read when asked for."""

    def __init__(self, archive: Archive, manifest: Manifest, table: pa.Table) -> None:
        self.path = archive.path
        self.contents = manifest
        self._archive = archive
        self._table = table

    @property
    def manifest(self) -> dict[str, Any]:
        """The form that `sentinel baseline show` prints."""
        plain: dict[str, Any] = msgspec.to_builtins(self.contents)
        del plain["parts"]
        return plain

    def reference(self) -> Reference:
        """Return what the engine compares with; paths of dumps are prefixes of members."""
        return Reference(
            name=self.contents.name,
            runs=self._runs(),
            dumps=tuple(
                GoldenDump(
                    step=dump.step,
                    stage=dump.stage,
                    ranks=tuple(dump.ranks),
                    path=f"dumps/{stage_folder(dump.step, dump.stage)}",
                )
                for dump in self.contents.dumps
            ),
            fingerprint=self.contents.fingerprint,
            rollout_steps=tuple(self.contents.rollout_steps),
        )

    def extract_dump(self, step: int, stage: str, into: Path) -> Path:
        """Unpack the golden dump of a stage; return its folder `<into>/step_<N>/<stage>`.

        Raises:
            BaselineError: there is none, or it is damaged.
        """
        folder = stage_folder(step, stage)
        if self._extract(f"dumps/{folder}/", into / folder) == 0:
            raise BaselineError(self.path, f"holds no golden dump of step {step}, {stage}")
        return into / folder

    def extract_dumps(self, into: Path) -> tuple[GoldenDump, ...]:
        """Unpack every golden dump; return them with their folders on disk."""
        return tuple(
            GoldenDump(
                step=d.step, stage=d.stage, ranks=tuple(d.ranks), path=str(self.extract_dump(d.step, d.stage, into))
            )
            for d in self.contents.dumps
        )

    def extract_rollouts(self, into: Path) -> Path | None:
        """Unpack every rollout file below a folder and return it; None where the bundle has none."""
        return into if self._extract("rollouts/", into) else None

    def rollouts(self, step: int) -> list[dict[str, object]]:
        """Return the rollout rows of a step, as in verl's `<N>.jsonl`.

        Raises:
            BaselineError: there are none, or they are no JSON lines.
        """
        member = f"rollouts/{step}.jsonl"
        part = self.contents.parts.get(member)
        if part is None:
            raise BaselineError(self.path, f"holds no rollout text of step {step}")
        text = self._archive.read(member, limit=_ROLLOUT_LIMIT, sha256=part.sha256)
        try:
            return [json.loads(line) for line in text.split(b"\n") if line.strip()]
        except (ValueError, RecursionError) as error:
            raise BaselineError(self.path, f"its part {member} is no JSON lines: {error}") from error

    def calibration(self) -> bytes | None:
        """Return what dumps of twins taught, as it was stored; None where the baseline has none.

        Raises:
            BaselineError: it is damaged.
        """
        part = self.contents.parts.get(CALIBRATION)
        return None if part is None else self._archive.read(CALIBRATION, limit=_CALIBRATION_LIMIT, sha256=part.sha256)

    def _runs(self) -> tuple[ReferenceRun, ...]:
        entries = self.contents.runs
        readings = metrics_table.readings_of(self._table, self.contents.metrics, len(entries))
        return tuple(
            ReferenceRun(source=run.source, readings=steps, twin=run.twin, resolution=run.resolution)
            for run, steps in zip(entries, readings, strict=True)
        )

    def _extract(self, prefix: str, into: Path) -> int:
        members = {name: part for name, part in self.contents.parts.items() if name.startswith(prefix)}
        try:
            for name, part in members.items():
                self._archive.extract(name, into / name[len(prefix) :], part.sha256)
        except OSError as error:
            raise BaselineError(into, f"cannot be unpacked to: {error.strerror or error}") from error
        return len(members)


def open_bundle(path: Path | str) -> Bundle:
    """Open a bundle and verify it.

    Raises:
        BaselineError: no bundle, an unknown version, a missing part, a changed byte, or one that must not be unpacked.
    """
    archive = Archive(Path(path))
    if MANIFEST not in archive.names:
        raise BaselineError(path, f"is a zip file but no baseline bundle: it holds no {MANIFEST}")
    manifest = manifests.decode(archive.read(MANIFEST, limit=_MANIFEST_LIMIT), path)
    _check_parts(archive, manifest)
    if not archive.seal_holds():
        for name, part in manifest.parts.items():  # say which part it is, where it can be told
            archive.verify(name, part.sha256)
        raise BaselineError(path, "was changed or packed again after it was recorded (its seal is broken)")
    table = archive.read(METRICS, limit=_METRICS_LIMIT, sha256=manifest.parts[METRICS].sha256)
    return Bundle(archive, manifest, metrics_table.open_table(table, manifest.metrics, len(manifest.runs), path))


def _check_parts(archive: Archive, manifest: Manifest) -> None:
    """Refuse a bundle whose manifest and members do not agree."""
    needed = {METRICS, *manifest.parts}
    for dump in manifest.dumps:
        folder = f"dumps/{stage_folder(dump.step, dump.stage)}"
        needed.update(f"{folder}/{rank_folder(rank)}/{DUMP_FILE}" for rank in dump.ranks)
    if missing := sorted(needed - (archive.names & set(manifest.parts))):
        raise BaselineError(archive.path, f"its part {missing[0]} is missing; copy the bundle again")
    if extra := sorted(archive.names - set(manifest.parts) - {MANIFEST}):
        raise BaselineError(archive.path, f"has a part that its manifest does not name: {extra[0]}; refused")
