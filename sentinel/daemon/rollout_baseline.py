# SPDX-License-Identifier: Apache-2.0
"""The rollout text of a baseline: how much of it is bad, and a hash of each step, from a bundle or a recorded run's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.core.rollout.rows import Tally, judge_step, total
from sentinel.errors import SentinelError
from sentinel.records import RolloutRow
from sentinel.sources.rollout_text import Notices, read_step, rollout_files

if TYPE_CHECKING:
    from sentinel.storage.bundle import Bundle

JUDGED_ROWS = 4000
"""Rows of a baseline that are judged, spread over its steps: its share needs no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineText:
    """What is known of it."""

    tally: Tally
    hashes: Mapping[int, str]
    """Step -> hash, as `text_hash`."""


def baseline_text(path: str) -> BaselineText | None:
    """Read the text that belongs to a baseline; None where it has none, or none that is at hand."""
    try:
        return _judged(list(_steps(Path(path))))
    except (SentinelError, OSError):
        return None


def text_hash(rows: Sequence[RolloutRow]) -> str:
    """Hash of all prompts and outputs of a step, whatever their order."""
    each = sorted(hashlib.sha256(f"{r.prompt}\0{r.output}".encode("utf-8", "surrogatepass")).digest() for r in rows)
    return hashlib.sha256(b"".join(each)).hexdigest()[:32]


def _judged(steps: list[tuple[int, Sequence[RolloutRow]]]) -> BaselineText | None:
    if not steps:
        return None
    every = max(1, -(-sum(len(rows) for _, rows in steps) // JUDGED_ROWS))
    tallies = (judge_step(step, rows[::every]).tally for step, rows in steps)
    return BaselineText(tally=total(tallies), hashes={step: text_hash(rows) for step, rows in steps})


def _steps(path: Path) -> Iterator[tuple[int, Sequence[RolloutRow]]]:
    from sentinel.storage.bundle import is_bundle, open_bundle
    from sentinel.storage.recording import is_recording, read_recording

    if path.is_file() and is_bundle(path):
        bundle = open_bundle(path)
        for step in bundle.reference().rollout_steps:
            if rows := _rows_of(bundle, step):
                yield step, rows
    elif path.is_file() and is_recording(path):
        folder = read_recording(path).facts.get("rollout_data_dir")
        for file in rollout_files(Path(str(folder)), Notices()) if folder else ():
            if (part := read_step(file)) is not None and part.step is not None:
                yield part.step, part.rows


def _rows_of(bundle: Bundle, step: int) -> list[RolloutRow]:
    """Text of a step; none where the bundle holds a recording for replays only."""
    try:
        return [_row(plain, step) for plain in bundle.rollouts(step)]
    except SentinelError:
        return []


def _row(plain: Mapping[str, Any], step: int) -> RolloutRow:
    score = plain.get("score")
    return RolloutRow(
        prompt=str(plain.get("input") or ""),
        output=str(plain.get("output") or ""),
        score=float(score) if isinstance(score, (int, float)) else None,
        step=step,
    )
