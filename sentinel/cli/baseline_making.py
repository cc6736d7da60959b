# SPDX-License-Identifier: Apache-2.0
"""Making a bundle out of what a command line names: sources read, merged, described, written."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli.output import note
from sentinel.core.triage.calibration import together
from sentinel.daemon.calibrations import learnt, restored, stored
from sentinel.daemon.references import gather
from sentinel.errors import BaselineError, SettingsError
from sentinel.sources.fingerprint import read_fingerprint
from sentinel.sources.run_config import config_fingerprint
from sentinel.sources.weights import model_fingerprint
from sentinel.storage.bundle import write_bundle
from sentinel.storage.dump_tree import find_dumps

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from sentinel.daemon.references import Material
    from sentinel.records import GoldenDump, ReferenceRun
    from sentinel.storage.manifest import Manifest


def gather_all(args: argparse.Namespace, scratch: Path, says: Callable[[str], None]) -> list[Material]:
    """Read every source and twin that the command names; what they leave out is said on standard error."""
    found = []
    named = [(source, False) for source in args.sources] + [(twin, True) for twin in args.twin]
    for number, (source, twin) in enumerate(named):
        says(f"reading {source} ({number + 1} of {len(named)})")
        material = gather(source, scratch / str(number))
        for text in material.notes:
            note(text)
        if twin:
            material = replace(material, runs=tuple(replace(run, twin=True) for run in material.runs))
        found.append(material)
    return found


def write(
    args: argparse.Namespace,
    path: Path,
    materials: Sequence[Material],
    says: Callable[[str], None],
    *,
    rollouts: Sequence[Path] = (),
    created: str | None = None,
) -> Manifest:
    """Write the bundle of all materials and of the folders that the command names.

    Args:
        args: with `dumps`, `model`, `config`, and with `name` where the verb has it.
        path: of the bundle.
        materials: what was read; the first one gives the name.
        says: is told what is being done.
        rollouts: folders of rollouts, beside those of the materials.
        created: time in the manifest; None for now.

    Raises:
        BaselineError: a part cannot be used, or the bundle not be written.
    """
    runs = [run for material in materials for run in material.runs]
    _warn_of_repeats(runs)
    fingerprint = _fingerprint(args, materials, says)
    # A twin's dumps are no golden ones: they show how far two healthy machines part.
    twins = [dump for one in materials if _is_twin(one) for dump in one.dumps] + _named_dumps(args.twin_dumps)
    dumps = _kept_dumps([one for one in materials if not _is_twin(one)]) + _named_dumps(args.dumps)
    says(f"packing {path}")
    return write_bundle(
        path,
        name=getattr(args, "name", None) or materials[0].name,
        runs=runs,
        dumps=dumps,
        rollouts=[*_kept_rollouts(materials), *rollouts],
        fingerprint=fingerprint,
        calibration=_calibration(materials, dumps, twins),
        made="\n".join(text for text in (*(m.made for m in materials), _command(args)) if text),
        created=created,
    )


def _is_twin(material: Material) -> bool:
    return bool(material.runs) and all(run.twin for run in material.runs)


def _calibration(
    materials: Sequence[Material], golden: Sequence[GoldenDump], twins: Sequence[GoldenDump]
) -> bytes | None:
    """Return what dumps of twins teach, with what the bundle knew before."""
    known = [restored(one.calibration, one.name) for one in materials if one.calibration is not None]
    fresh = learnt(golden, twins)
    if twins and fresh is None:
        note("the dumps of twins are left out: none is of the step and stage of a golden dump")
    found = [*known, *([fresh] if fresh is not None else [])]
    return stored(together(found)) if found else None


def named_rollouts(args: argparse.Namespace, materials: Sequence[Material], scratch: Path) -> list[Path]:
    """Return the rollout folders that the command names, or samples of them.

    Raises:
        BaselineError: a sample was asked of a folder without rollout text.
    """
    if args.rollout_rows is not None and not args.rollouts:
        raise SettingsError("baseline: --rollout-rows needs --rollouts DIR")
    for material in materials:
        if material.rollouts_elsewhere is not None and not args.rollouts:
            note(f"{material.name}: its rollouts lie in {material.rollouts_elsewhere} (--rollouts takes them along)")
    if args.rollout_rows is None:
        return list(args.rollouts)
    return [_sample(folder, args.rollout_rows, scratch / f"sample{i}") for i, folder in enumerate(args.rollouts)]


def _sample(folder: Path, rows: int, into: Path) -> Path:
    """Copy the first rows of each step's rollout text; other files are left out."""
    texts = [path for path in sorted(folder.glob("*.jsonl")) if path.stem.isdecimal()]
    if not texts:
        raise BaselineError(folder, "holds no rollout text <step>.jsonl that a sample could be taken of")
    into.mkdir(parents=True)
    for path in texts:
        with path.open("rb") as source, (into / path.name).open("wb") as target:
            target.writelines(islice(source, rows))
    return into


def content_hash(run: ReferenceRun) -> str:
    """Return a hash of a run's steps and values, whatever its source is called."""
    digest = hashlib.sha256()
    for reading in sorted(run.readings, key=lambda r: (r.attempt, r.step, r.kind)):
        digest.update(repr((reading.step, reading.kind, reading.attempt, sorted(reading.metrics.items()))).encode())
    return digest.hexdigest()


def _kept_dumps(materials: Sequence[Material]) -> list[GoldenDump]:
    """Return the golden dumps of all seeds, of each step and stage the first: every recorded seed dumps the same steps."""
    kept: dict[tuple[int, str], GoldenDump] = {}
    for material in materials:
        new = [dump for dump in material.dumps if (dump.step, dump.stage) not in kept]
        if len(new) < len(material.dumps):
            left_out = len(material.dumps) - len(new)
            note(f"{material.name}: {left_out} of its golden dumps are left out: there are some of those steps already")
        kept |= {(dump.step, dump.stage): dump for dump in new}
    return list(kept.values())


def _kept_rollouts(materials: Sequence[Material]) -> list[Path]:
    """Return the rollouts of the first bundle that has some: those of other seeds have the same names."""
    found = [(material.name, material.rollouts) for material in materials if material.rollouts is not None]
    for name, _ in found[1:]:
        note(f"the rollouts of {name} are left out: those of {found[0][0]} are kept, of each step there can be one")
    return [rollouts for _, rollouts in found[:1]]


def _command(args: argparse.Namespace) -> str:
    """Return the command as it can be typed again."""
    output = getattr(args, "output", None)
    words = ["record" if output else "add", *([] if output else [str(args.bundle)]), *args.sources]
    words += ["-o", str(output)] if output else []
    for option in ("twin", "dumps", "twin_dumps", "model", "config", "fingerprint", "rollouts", "rollout_rows", "name"):
        value = getattr(args, option, None)
        for one in value if isinstance(value, list) else [value]:
            words += [f"--{option.replace('_', '-')}", str(one)] if one is not None else []
    return f"sentinel baseline {shlex.join(words)}"


def _warn_of_repeats(runs: Sequence[ReferenceRun]) -> None:
    """Say so if a seed is there twice: it would tell the engine that healthy runs never differ."""
    seen: dict[str, ReferenceRun] = {}
    for run in runs:
        first = run if run.twin else seen.setdefault(content_hash(run), run)
        if first is not run:
            note(f"{run.source} has exactly the metrics of {first.source}: a run twice says nothing about other seeds")


def _named_dumps(folders: Sequence[Path]) -> list[GoldenDump]:
    dumps: list[GoldenDump] = []
    for folder in folders:
        found = find_dumps(folder)
        if not found:
            form = "holds no dumps of the form step_<N>/<stage>/step0/rank<r>/dump.json"
            raise BaselineError(folder, form if folder.is_dir() else "no such folder")
        dumps += found
    return dumps


def agreed(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all of several nested mappings say: two seeds differ in their names, not in their recipe."""
    first, *others = parts
    kept: dict[str, Any] = {}
    for key, value in first.items():
        if not all(key in other for other in others):
            continue
        values = [value, *(other[key] for other in others)]
        if all(isinstance(one, dict) for one in values):
            kept[key] = agreed(values)
        elif all(_is_rows(one) and len(one) == len(value) for one in values):
            kept[key] = [agreed(rows) for rows in zip(*values, strict=True)]
        elif all(one == value for one in values):
            kept[key] = value
    return kept


def _is_rows(value: object) -> bool:
    """Return whether a value is a list of mappings, such as the workers of a run."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _fingerprint(
    args: argparse.Namespace, materials: Sequence[Material], says: Callable[[str], None]
) -> dict[str, object] | None:
    """Return what is known of model and configuration; of several seeds' facts, those that all agree on.

    A twin is another kernel or split on purpose: what it computes with is not the baseline's.
    """
    seeds = [material for material in materials if not all(run.twin for run in material.runs)]
    known = [material.fingerprint for material in seeds if material.fingerprint is not None]
    merged = {key: value for one in reversed(known) for key, value in one.items()}
    facts = [part for one in known if isinstance(part := one.get("facts"), dict)]
    if facts:
        merged["facts"] = agreed(facts)
    if args.fingerprint is not None:
        merged |= read_fingerprint(args.fingerprint)
    if args.model is not None:
        merged["model"] = model_fingerprint(args.model, says)
    if args.config is not None:
        merged["config"] = config_fingerprint(args.config)
    return dict(sorted(merged.items())) or None
