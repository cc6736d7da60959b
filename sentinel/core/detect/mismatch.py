# SPDX-License-Identifier: Apache-2.0
"""Under replay: what must be equal is not, or a setting differs. No matter of precision; the numeric comparison stops being evidence.

Misses on purpose: everything in free runs but settings (learning rate, coefficients).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.detect.base import band_of, brief, strongest
from sentinel.core.frames import Bools
from sentinel.records import Band, Finding

STAGES = {"prompt": "data", "length": "config", "score": "compute_rm_score"}
"""Evidence group -> stage that a difference under replay implicates first."""
WHY = {
    "prompt": "the prompts are other ones: data, order or tokenizer differ",
    "length": "these are not the recorded responses: the replay is not in force or is of another recording",
    "score": "the recorded responses are scored otherwise: reward function, reward model or ground truth differ",
    "control": "a setting differs",
}


@dataclass(frozen=True)
class MismatchDetector:
    """Exact metrics under replay, settings everywhere."""

    name: str = "mismatch"

    def initial(self) -> None:
        """No memory."""

    def observe(self, state: None, look: Look) -> tuple[None, tuple[Finding, ...]]:
        """Find what should be equal and is not."""
        rows = look.different | _settings(look)
        if not rows.any():
            return state, ()
        return state, tuple(_finding(look, row) for row in strongest(rows, np.nan_to_num(look.ratio)))


def _settings(look: Look) -> Bools:
    """Settings that leave their schedule: beyond the tolerance in a replay, beyond every seed in a free run."""
    frame = look.frame
    control = frame.index.control
    baseline = look.baseline
    place = None if baseline is None else baseline.line.get(frame.step)
    if baseline is None or place is None or not control.any():
        return np.zeros(len(frame.values), dtype=np.bool_)
    if look.regime == "replayed":
        return control & (np.nan_to_num(look.ratio) > 1.0)
    known = len(baseline.index)
    seeds = baseline.seeds[:, place]
    values = frame.values[:known]
    margin = np.maximum(1e-3 * np.abs(seeds), 1e-12)
    near = (np.abs(seeds - values) <= margin) | ~np.isfinite(seeds)
    out = np.zeros(len(frame.values), dtype=np.bool_)
    out[:known] = ~near.any(axis=0) & np.isfinite(values)
    return out & control


def _finding(look: Look, row: int) -> Finding:
    frame = look.frame
    key, entry, value = frame.index.keys[row], frame.index.entries[row], float(frame.values[row])
    expected = float(look.expected[row])
    band = band_of(look, row)
    if look.regime == "free" and look.baseline is not None:
        # Free run: the first seed's value stands for the schedule.
        expected = float(np.nanmax(look.baseline.seeds[:, look.baseline.line[frame.step], row]))
        band = Band(low=expected, high=expected)
    return Finding(
        detector="mismatch",
        metric=key,
        step=frame.step,
        value=value,
        expected=band,
        because=f"{key} is {brief(value)} at step {frame.step} where the baseline has {brief(expected)}: {WHY.get(entry.group, 'equal inputs would give equal numbers')}.",
        stage=STAGES.get(entry.group, entry.stage),
        kind="mismatch",
        score=float(np.nan_to_num(look.ratio[row], nan=1.0, posinf=1e6)),
    )
