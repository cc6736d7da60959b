# SPDX-License-Identifier: Apache-2.0
"""The rollout text that belongs to an incident, read from the run's folder and from its baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sentinel.core.report.samples import SamplePair, pair_samples
from sentinel.errors import SentinelError
from sentinel.records import RolloutRow
from sentinel.sources.rollout_text import read_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentinel.records import Incident

STAGES_OF_TEXT = frozenset({"rollout", "data", "compute_rm_score"})


def samples(incident: Incident, folder: str, baseline: str | None) -> tuple[SamplePair, ...]:
    """Return rows of the first step at which text is involved, beside the baseline's; none where there is nothing to show.

    Args:
        incident: what is reported.
        folder: the run's `trainer.rollout_data_dir`; empty: it writes none.
        baseline: path of the bundle or recording, if any.
    """
    steps = [found.step for found in incident.findings if found.stage in STAGES_OF_TEXT]
    if not folder or not (steps or incident.stage in STAGES_OF_TEXT):
        return ()
    step = min(steps, default=incident.opened_at_step)
    rows = _rows(Path(folder) / f"{step}.jsonl")
    return pair_samples(step, rows, _golden(baseline, step)) if rows else ()


def _rows(path: Path) -> Sequence[RolloutRow]:
    try:
        part = read_step(path) if path.is_file() else None
    except (SentinelError, OSError):
        return ()
    return part.rows if part is not None else ()


def _golden(baseline: str | None, step: int) -> Sequence[RolloutRow]:
    from sentinel.storage.bundle import is_bundle, open_bundle  # loads pyarrow: only where there is text
    from sentinel.storage.recording import is_recording, read_recording

    path = Path(baseline) if baseline is not None else None
    try:
        if path is None or not path.is_file():
            return ()
        if is_bundle(path):
            bundle = open_bundle(path)
            plain = bundle.rollouts(step) if step in bundle.reference().rollout_steps else []
            return [_row(row, step) for row in plain]
        if is_recording(path):
            folder = read_recording(path).facts.get("rollout_data_dir")
            return _rows(Path(str(folder)) / f"{step}.jsonl") if folder else ()
    except (SentinelError, OSError):
        return ()
    return ()


def _row(plain: dict[str, object], step: int) -> RolloutRow:
    score = plain.get("score")
    return RolloutRow(
        prompt=str(plain.get("input") or ""),
        output=str(plain.get("output") or ""),
        score=float(score) if isinstance(score, (int, float)) else None,
        step=step,
    )
