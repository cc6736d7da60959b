# SPDX-License-Identifier: Apache-2.0
"""Under replay: a metric left the tolerance around the run that is replayed.

Catches, at the step itself: a sudden departure (a metric that was quiet so far leaves its tolerance by half as much again, or three
metrics leave it together) and a far one (6 tolerances). A metric that creeps over its tolerance must do so on 2 of 3 steps.
Misses on purpose: deviations that grow as smoothly as a healthy replay's do. After the weights have parted for a known reason
(`state.since`), a series must depart from its own parted course (5 times its largest deviation) instead.
False alarms: tolerances are 8 fitted standard deviations of the twins; see `sentinel evaluate`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.detect.base import band_of, brief, strongest
from sentinel.core.frames import Bools, Floats, frozen, grown
from sentinel.records import Finding

FAR = 6.0
SUDDEN = 1.5
JUMP = 5.0
TOGETHER = 3
RELEARN = 2
"""Steps after a parting that are looked at only to learn the new course."""


@dataclass(frozen=True)
class DepartureState:
    """Memory of one run; rows are series."""

    largest: Floats
    """Largest ratio so far (since the parting, if there was one)."""
    lately: Floats
    """Steps since the tolerance was last left; infinite: never."""
    since: int | None = None
    """Step at which the weights are known to have parted from the replayed run's."""
    learned: int = 0
    """Steps looked at since then."""


@dataclass(frozen=True)
class DepartureDetector:
    """Paired comparison with the replayed run."""

    name: str = "departure"

    def initial(self) -> DepartureState:
        """Nothing seen."""
        return DepartureState(largest=np.zeros(0), lately=np.zeros(0))

    def observe(self, state: DepartureState, look: Look) -> tuple[DepartureState, tuple[Finding, ...]]:
        """Judge one step; in other regimes the memory rests."""
        if look.regime != "replayed":
            return state, ()
        rows = len(look.ratio)
        largest, lately = grown(state.largest, rows, 0.0), grown(state.lately, rows, np.inf)
        ratio = np.where(look.frame.index.paired, np.nan_to_num(look.ratio, nan=0.0, posinf=1e300), 0.0)
        if state.since is not None:
            ratio = ratio / (1.0 + JUMP * largest)
        alarms = np.zeros(rows, dtype=np.bool_) if self._relearning(state) else _alarms(ratio, largest, lately, state)
        after = DepartureState(
            largest=frozen(
                np.maximum(largest, np.nan_to_num(np.where(look.frame.index.paired, look.ratio, 0.0), posinf=1e300))
            ),
            lately=frozen(np.where(ratio > 1.0, 1.0, lately + 1.0)),
            since=state.since,
            learned=state.learned + 1,
        )
        return after, tuple(_finding(look, row, float(ratio[row])) for row in strongest(alarms, ratio))

    def _relearning(self, state: DepartureState) -> bool:
        return state.since is not None and state.learned < RELEARN


def parted(state: DepartureState, step: int) -> DepartureState:
    """The memory after the weights are known to have left the replayed run's at `step`."""
    return DepartureState(
        largest=frozen(np.zeros_like(state.largest)),
        lately=frozen(np.full_like(state.lately, np.inf)),
        since=step,
        learned=0,
    )


def _alarms(ratio: Floats, largest: Floats, lately: Floats, state: DepartureState) -> Bools:
    out = ratio > 1.0
    if not out.any():
        return out
    jumped = out & (ratio > JUMP * largest if state.since is None else out)
    together = jumped if int(jumped.sum()) >= TOGETHER else np.zeros_like(out)
    return out & ((ratio > FAR) | (jumped & (ratio > SUDDEN)) | together | (lately <= 2.0))


def _finding(look: Look, row: int, score: float) -> Finding:
    frame = look.frame
    key, value, expected = frame.index.keys[row], float(frame.values[row]), float(look.expected[row])
    allowed = (float(look.high[row]) - float(look.low[row])) / 2
    source = "what clean repeats show" if look.calibrated else "the catalogue allows"
    return Finding(
        detector="departure",
        metric=key,
        step=frame.step,
        value=value,
        expected=band_of(look, row),
        because=(
            f"{key} is {brief(value)} at step {frame.step} where the replayed run has {brief(expected)}: "
            f"apart by {brief(abs(value - expected))}, {brief(score)} times {source} ({brief(allowed)})."
        ),
        stage=frame.index.entries[row].stage,
        kind="drift",
        score=score,
    )
