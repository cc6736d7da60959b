# SPDX-License-Identifier: Apache-2.0
"""What a reference run recorded of itself: the append-only file of `SENTINEL_RECORD`, and the dumps beside it.

One JSON object a line, as the trainer side writes them: `start`, `step`, `receipt`, `health`, `end`. It is read as
it is, also while the run goes on, and after a kill -9: the last line counts only if it is whole. A later `start`
in the same file is another attempt of the run. Golden dumps lie at `<path>.dumps/step_<N>/<stage>/step0/rank<r>/`; one
counts only if a receipt says that it was finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sentinel.errors import BaselineError
from sentinel.records import GoldenDump, Reading, ReferenceRun
from sentinel.storage.dump_tree import find_dumps, stage_folder
from sentinel.storage.manifest import utc_text

VAL_PREFIXES = ("val-core/", "val-aux/", "val/", "test_score/", "eval_")
# `recording`: the order goes on, the steps that its receipt names are finished.
_FINISHED = frozenset({"complete", "partial", "recording"})
# A line of 10,000 metrics has some 500 kB; a start line holds the configuration.
_MAX_LINE = 64 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """A recording as read."""

    path: str
    run: ReferenceRun
    dumps: tuple[GoldenDump, ...]
    """Finished ones, with their stage folders on disk."""
    name: str | None
    """Name of the run, where it was said."""
    facts: Mapping[str, object]
    """What the last attempt said of itself when it started."""
    config: str | None
    """Text of the settings that were in force."""
    created: str
    """When it began, in the manifest's form."""
    ended: bool
    """True if the last attempt said goodbye; false while it runs, and for ever after a kill."""
    notes: tuple[str, ...]
    """What was left out and why, for people."""


@dataclass(slots=True)
class _Tally:
    """What the lines read so far amount to."""

    attempt: int = 1
    attempts: list[dict[tuple[int, str], dict[str, float]]] = field(default_factory=lambda: [{}])
    started: list[dict[str, Any]] = field(default_factory=list)
    receipts: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False
    damaged: int = 0


def dumps_folder(path: Path) -> Path:
    """Return where the golden dumps of a recording lie."""
    return path.with_name(path.name + ".dumps")


def is_recording(path: Path) -> bool:
    """Tell by content whether a file is a recording: its first line is a `start` record."""
    try:
        with path.open("rb") as stream:
            first = stream.readline(_MAX_LINE)
    except OSError:
        return False
    record = _parse(first)
    return record is not None and record["t"] == "start" and isinstance(record.get("facts"), dict)


def read_recording(path: Path | str) -> Recording:
    """Read a recording up to its last whole line.

    Raises:
        BaselineError: it cannot be read, or is no recording.
    """
    path = Path(path)
    if not is_recording(path):
        why = "is no recording: its first line is no start record" if path.is_file() else "no such file"
        raise BaselineError(path, why)
    tally, notes = _read_lines(path)
    dumps, unfinished = _finished(find_dumps(dumps_folder(path)), tally.receipts)
    notes += [
        f"the dump of step {d.step}, {d.stage} has no receipt (not finished) and was left out" for d in unfinished
    ]
    last = tally.started[-1]
    name, config = last.get("run"), last.get("config")
    return Recording(
        path=str(path),
        run=ReferenceRun(source=str(path), readings=tuple(_readings(tally))),
        dumps=dumps,
        name=name if isinstance(name, str) and name else None,
        facts=last["facts"],
        config=config.get("text") if isinstance(config, dict) else None,
        created=_time(tally.started[0].get("at")),
        ended=tally.ended,
        notes=tuple(notes),
    )


def _read_lines(path: Path) -> tuple[_Tally, list[str]]:
    """Return what the whole lines amount to, and what was left out."""
    tally = _Tally()
    torn = False
    try:
        for line in _lines(path):
            record = _parse(line)
            torn = record is None and not line.endswith(b"\n")
            if record is not None:
                _count(tally, record)
            elif not torn:
                tally.damaged += 1
    except OSError as error:
        raise BaselineError(path, f"cannot be read: {error.strerror or error}") from error
    notes = ["the last line was cut off and left out"] if torn else []
    if tally.damaged:
        notes.append(f"damaged lines that were left out: {tally.damaged}")
    return tally, notes


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while line := stream.readline(_MAX_LINE):
            yield line


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("t"), str) else None


def _count(tally: _Tally, record: dict[str, Any]) -> None:
    kind = record["t"]
    if kind == "start" and isinstance(record.get("facts"), dict):
        # A start without steps before it (the run died while loading) begins no attempt of its own.
        if tally.attempts[-1]:
            tally.attempts.append({})
        tally.started.append(record)
        tally.ended = False
    elif kind == "facts" and isinstance(record.get("facts"), dict) and tally.started:
        # What the run and its workers said later, once they were asked.
        tally.started[-1]["facts"] |= record["facts"]
    elif kind == "step":
        _count_step(tally, record)
    elif kind == "receipt" and isinstance(record.get("receipt"), dict):
        tally.receipts.append(record["receipt"])
    elif kind == "end":
        tally.ended = True


def _count_step(tally: _Tally, record: dict[str, Any]) -> None:
    step, values = record.get("step"), record.get("values")
    if not isinstance(step, int) or isinstance(step, bool) or not isinstance(values, dict):
        tally.damaged += 1
        return
    numbers = {
        key: float(value)
        for key, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    if numbers:
        kind = "val" if all(key.startswith(VAL_PREFIXES) for key in numbers) else "train"
        # verl logs a step more than once (validation apart): what came later is added, and wins.
        tally.attempts[-1].setdefault((step, kind), {}).update(numbers)


def _readings(tally: _Tally) -> Iterator[Reading]:
    for number, steps in enumerate(tally.attempts, start=1):
        for (step, kind), metrics in sorted(steps.items()):
            yield Reading(step=step, metrics=metrics, kind=kind, attempt=number)


def _finished(
    found: tuple[GoldenDump, ...], receipts: list[dict[str, Any]]
) -> tuple[tuple[GoldenDump, ...], list[GoldenDump]]:
    """Part the dumps on disk into those that receipts vouch for, with the ranks these name, and the others."""
    finished, unfinished = [], []
    for dump in found:
        vouching = [receipt for receipt in receipts if _vouches(receipt, dump)]
        named = {rank for receipt in vouching for rank in receipt.get("ranks") or dump.ranks}
        ranks = tuple(rank for rank in dump.ranks if rank in named)
        if ranks:
            finished.append(replace(dump, ranks=ranks))
        else:
            unfinished.append(dump)
    return tuple(finished), unfinished


def _vouches(receipt: Mapping[str, Any], dump: GoldenDump) -> bool:
    """Tell whether a receipt says that this dump was finished: by its paths, or by its steps where it names none."""
    if receipt.get("outcome") not in _FINISHED:
        return False
    if paths := receipt.get("paths"):
        # The recording may lie elsewhere now: the end of the path is what counts.
        return any(str(path).rstrip("/").endswith(f"/{stage_folder(dump.step, dump.stage)}") for path in paths)
    first, last = receipt.get("first_step"), receipt.get("last_step")
    steps_named = isinstance(first, int) and isinstance(last, int) and first <= dump.step <= last
    return steps_named and dump.stage in (receipt.get("stages") or ())


def _time(at: object) -> str:
    try:
        return utc_text(datetime.fromtimestamp(float(at), tz=timezone.utc))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, OSError):
        return utc_text()
