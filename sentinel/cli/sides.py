# SPDX-License-Identifier: Apache-2.0
"""The two sides of the checklist and what is known of the run, from what a command line names."""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.core.checklist import Evidence, Side, comparable
from sentinel.daemon.references import load_reference
from sentinel.errors import BaselineError, SentinelError
from sentinel.sources import fingerprint
from sentinel.sources.printed_config import replayed_steps
from sentinel.sources.rollout_order import order_facts
from sentinel.storage.bundle import is_bundle, open_bundle

if TYPE_CHECKING:
    import argparse

_REPLAYS = ("skip.rollout", "skip.rollout_tq", "skip.async_rollout")


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """One side, and what was said about reading it."""

    side: Side
    notes: tuple[str, ...] = ()
    dumps: int | None = None
    """How many golden dumps it holds; None: it is no baseline with dumps."""
    named: bool | None = None
    """Whether its launch names a run that is watched; False: switched off; None: not known."""


def recorded(path: Path) -> Known:
    """Return the side that a fingerprint, a bundle or a recording holds.

    Raises:
        BaselineError, UnreadableLog: it cannot be read.
    """
    if fingerprint.is_fingerprint(path):
        return _side(fingerprint.read_fingerprint(path), str(path))
    reference = load_reference(path)
    if reference.fingerprint is None:
        known = Known(side=Side(), notes=(f"{path}: holds metrics and no fingerprint, so nothing of it is known",))
    else:
        known = _side(dict(reference.fingerprint), str(path))
    if path.is_file() and is_bundle(path) and reference.rollout_steps and known.side.order is None:
        known = replace(known, side=replace(known.side, order=_order_in(path)))
    return replace(known, dumps=len(reference.dumps))


def _order_in(path: Path) -> dict[int, Any] | None:
    """Return the data order of the rollouts that a bundle holds."""
    with tempfile.TemporaryDirectory(prefix="sentinel_rollouts_") as scratch:
        folder = open_bundle(path).extract_rollouts(Path(scratch))
        if folder is None:
            return None
        # A recording of a replay may hold other files of this kind; those of rollout text are named by step.
        places = sorted({found.parent for found in folder.rglob("*.jsonl") if found.stem.isdecimal()})
        return {int(step): entry for step, entry in order_facts(places[0]).items()} if places else None


def looked_at(parts: fingerprint.Parts, says: Callable[[str], None]) -> Known:
    """Return the side that the command looks at itself: this machine, and the files that are named.

    Raises:
        SettingsError, UnreadableLog: a file cannot be read.
    """
    document = fingerprint.take(parts, says)
    known = _side(document, "here")
    config = document.get("config", {})
    named: bool | None = True if config.get("named") or os.environ.get("SENTINEL_RUN") else None
    if config.get("disabled") or os.environ.get("SENTINEL_DISABLED", "") not in ("", "0"):
        named = False
    return replace(known, named=named)


def _side(document: dict[str, Any], where: str) -> Known:
    notes = [f"{where}: {note}" for note in document.get("notes", ())]
    try:
        return Known(side=Side.from_plain(document), notes=tuple(notes))
    except ValueError as error:
        reason = f"{where}: {error}"
        return Known(side=Side(effective_why=reason, explicit_why=reason), notes=(*notes, reason))


def evidence(args: argparse.Namespace, target: Known, golden: Known, home: Path) -> Evidence:
    """Return what is known of the run itself: its log, its recording, its incidents.

    Raises:
        UnreadableLog: the log cannot be read.
    """
    return Evidence(
        replayed=None if args.log is None else replayed_steps(args.log),
        steps=() if args.log is None else _steps(args.log),
        recording=_recording(target.side),
        golden_dumps=golden.dumps,
        armed=target.named,
        text=None if args.rollouts is None else _text(args.rollouts),
        triaged=None if args.run_name is None else tuple(_verdicts(home, args.run_name)),
    )


def _text(folder: Path) -> tuple[str, float] | None:
    """Judge the run's rollout text; None where there is none to judge."""
    from sentinel.core.rollout.rows import judge_step, total
    from sentinel.sources.rollout_text import Notices, read_rollouts

    try:
        tally = total(judge_step(part.step, part.rows).tally for part in read_rollouts(folder, Notices()))
    except SentinelError:
        return None
    return tally.verdict(), tally.share


def _steps(log: Path) -> tuple[int, ...]:
    from sentinel import sources

    try:
        read = sources.read_file(log)
    except SentinelError:
        return ()
    return tuple(sorted({reading.step for reading in read.steps if reading.kind == "train"}))


def _recording(side: Side) -> dict[str, object] | None:
    """Return what lies in the folder that a replay would read; None where it cannot be told which that is."""
    on = [name for name in _REPLAYS if comparable(side.value(f"{name}.enable")) is True]
    folder = side.value(f"{on[0]}.dump_dir") if on else None
    if not isinstance(folder, str) or not folder:
        return None
    root = Path(folder.replace("<user>", getpass.getuser())).expanduser()
    names = (side.value("trainer.experiment_name"), side.value("trainer.project_name"))
    run = root / f"{names[0]}_{names[1]}"
    steps = sorted({int(path.name) for path in run.glob("GBS*/*") if path.is_dir() and path.name.isdecimal()})
    return {"path": str(run), "steps": steps}


def _verdicts(home: Path, run: str) -> Iterable[str]:
    """Yield the verdicts of the dump comparisons of a run's incidents."""
    from sentinel.cli.incident_files import answer

    for row in answer(home, "incidents", {"run": run, "state": None})["incidents"]:
        triage = answer(home, "incident", {"id": row["id"]}).get("triage")
        if isinstance(triage, dict):
            yield str(triage.get("verdict"))


def baseline(path: Path) -> Known:
    """Return the baseline's side.

    Raises:
        BaselineError, UnreadableLog: it cannot be read.
    """
    if not path.exists():
        raise BaselineError(path, "no such file (a fingerprint, a bundle, or a recording)")
    return recorded(path)
