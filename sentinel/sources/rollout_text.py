# SPDX-License-Identifier: Apache-2.0
"""Rollout text: verl's `<step>.jsonl` of `trainer.rollout_data_dir`, a folder of them, or a W&B table of generations.

Read as it is found: a line that is still being written waits for its end, `NaN` without quotes is a score, bytes that
are no UTF-8 are replaced. What was left out is a warning code, never an error, unless nothing is left.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentinel.errors import UnreadableLog
from sentinel.records import RolloutRow

MAX_LINE = 64 << 20
_OUTPUTS = ("output", "response", "completion")
_INPUTS = ("input", "prompt")
_SCORES = ("score", "reward")


@dataclass(slots=True)
class Notices:
    """Warning codes in order of first appearance."""

    codes: list[str] = field(default_factory=list)

    def add(self, code: str) -> None:
        """Note a code once."""
        if code not in self.codes:
            self.codes.append(code)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRows:
    """The rows of one step of one file."""

    step: int | None
    rows: tuple[RolloutRow, ...]
    path: str = ""


def read_rollouts(path: Path, notices: Notices) -> Iterator[StepRows]:
    """Yield the rows of a file or folder, step by step, in order of steps; one file is in memory at a time.

    Raises:
        UnreadableLog: no such path, nothing in it that is rollout text, or not one row.
    """
    files = [path] if path.is_file() else rollout_files(path, notices)
    found = False
    for file in files:
        for rows in _read_file(file, notices, alone=len(files) == 1):
            found = True
            yield rows
    if not found:
        raise UnreadableLog(
            path, "empty_file", "holds no rollout row; verl writes them with trainer.rollout_data_dir=DIR"
        )


def rollout_files(folder: Path, notices: Notices | None = None) -> list[Path]:
    """Return the files of a rollout folder in order of steps: `<step>.jsonl`, or any `.jsonl` where none is named so.

    Raises:
        UnreadableLog: no such folder, or none in it.
    """
    if not folder.is_dir():
        raise UnreadableLog(folder, "unreadable", "no such file or folder")
    every = [file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")]
    named = [file for file in every if file.suffix == ".jsonl" and file.stem.isdecimal()]
    files = named or [file for file in every if file.suffix == ".jsonl"]
    if not files:
        raise UnreadableLog(folder, "unreadable", "holds no rollout text <step>.jsonl (trainer.rollout_data_dir)")
    if notices is not None and len(files) < len(every):
        notices.add("other_files")
    if notices is not None and named:
        steps = sorted(int(file.stem) for file in named)
        if steps[-1] - steps[0] + 1 > len(steps):
            notices.add("missing_steps")
    return sorted(files, key=lambda file: (int(file.stem) if file.stem.isdecimal() else 0, file.name))


def read_step(path: Path, notices: Notices | None = None) -> StepRows | None:
    """Return the rows of one `<step>.jsonl`; None where it holds no whole row (yet)."""
    parts = list(_read_file(path, notices or Notices(), alone=False))
    if not parts:
        return None
    rows = tuple(row for part in parts for row in part.rows)
    return StepRows(step=parts[0].step, rows=rows, path=str(path))


def _read_file(path: Path, notices: Notices, *, alone: bool) -> Iterator[StepRows]:
    try:
        if path.suffix == ".json" and (table := _table(path)) is not None:
            yield from table
            return
        rows = list(_rows(path, notices))
    except OSError as error:
        raise UnreadableLog(path, "unreadable", f"cannot be read: {error.strerror or error}") from error
    if not rows:
        if not alone:
            notices.add("empty_files")
        return
    steps: dict[int | None, list[RolloutRow]] = {}
    for row in rows:
        steps.setdefault(row.step, []).append(row)
    for step in sorted(steps, key=lambda step: (step is None, step or 0)):
        yield StepRows(step=step, rows=tuple(steps[step]), path=str(path))


def _rows(path: Path, notices: Notices) -> Iterator[RolloutRow]:
    from_name = int(path.stem) if path.stem.isdecimal() else None
    decoder = json.JSONDecoder(parse_constant=lambda word: _bare(word, notices))
    known = 0
    with path.open("rb") as stream:
        while line := stream.readline(MAX_LINE):
            if line.isspace():
                continue
            record = _record(line, decoder, notices)
            if record is None:
                continue
            row = _row(record, from_name)
            if row is None:
                notices.add("no_output")
            else:
                known += 1
                yield row
    if not known and "no_output" in notices.codes:
        raise UnreadableLog(path, "unknown_format", "is no rollout text: no line has an `output`")


def _record(line: bytes, decoder: json.JSONDecoder, notices: Notices) -> Mapping[str, Any] | None:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        notices.add("invalid_utf8")
        text = line.decode("utf-8", "replace")
    try:
        record = decoder.decode(text.lstrip("\ufeff").strip())
    except (ValueError, RecursionError):
        notices.add("corrupt_line" if line.endswith(b"\n") else "truncated_line")
        return None
    if isinstance(record, dict):
        return record
    notices.add("corrupt_line")
    return None


def _row(record: Mapping[str, Any], from_name: int | None) -> RolloutRow | None:
    output = next((record[key] for key in _OUTPUTS if key in record), None)
    if not isinstance(output, str):
        return None
    prompt = next((record[key] for key in _INPUTS if key in record), "")
    step = record.get("step")
    return RolloutRow(
        prompt=prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False),
        output=output,
        score=_number(next((record[key] for key in _SCORES if key in record), None)),
        step=step if isinstance(step, int) and not isinstance(step, bool) else from_name,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _bare(word: str, notices: Notices) -> float:
    notices.add("bare_nan")
    return {"NaN": math.nan, "Infinity": math.inf}.get(word, -math.inf)


def _table(path: Path) -> list[StepRows] | None:
    """Return the rows of a W&B table of generations (`columns`, `data`); None where the file is none."""
    try:
        found = json.loads(path.read_bytes().decode("utf-8", "replace"))
    except ValueError:
        return None
    if (
        not isinstance(found, dict)
        or not isinstance(found.get("columns"), list)
        or not isinstance(found.get("data"), list)
    ):
        return None
    columns = [str(name) for name in found["columns"]]
    return [
        _table_step(dict(zip(columns, line, strict=False)), path) for line in found["data"] if isinstance(line, list)
    ]


def _table_step(cells: Mapping[str, Any], path: Path) -> StepRows:
    step = cells.get("step")
    step = step if isinstance(step, int) else None
    numbers = [name.partition("_")[2] for name in cells if name.startswith("output_")]
    rows = tuple(
        RolloutRow(
            prompt=str(cells.get(f"input_{number}") or ""),
            output=str(cells[f"output_{number}"] or ""),
            score=_number(cells.get(f"score_{number}")),
            step=step,
        )
        for number in numbers
    )
    return StepRows(step=step, rows=rows, path=str(path))
