# SPDX-License-Identifier: Apache-2.0
"""Under replay: a metric left the tolerance around the run that is replayed.

Catches, at the step itself: a sudden departure (a metric that was quiet so far is out by a third more than its tolerance, or three
metrics leave together) and a far one (7 tolerances). A metric that creeps over its tolerance must do so on 2 of 3 steps. A shift
that stays is seen in the median over 3 or 7 steps, where single steps are noise. Metrics that single tokens decide count for half
and never alone. Misses on purpose: deviations that grow as smoothly as a healthy replay's do.
Without twins, a run whose first steps were bit-identical has shown that it can be, and is held to rounding (`strictly`).
After the weights have parted for a known reason (`since`), a series must depart from its own parted course instead.
False alarms: see `sentinel evaluate`; the tolerances come from the twins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.detect.base import band_of, brief, strongest
from sentinel.core.frames import Bools, Floats, frozen, grown
from sentinel.records import Finding

FAR = 7.0
SUDDEN = 1.33
JUMP = 3.0
QUIET = 1 / 6
"""Ratio up to which a series counts as quiet, whatever it did before."""
TOGETHER = 3
FADE = 0.8
"""A series' largest ratio so far is forgotten by this factor a step."""
HEAVY = 2.0
BURSTY = 1.5
"""Metrics that burst in healthy runs too count for two thirds at a single step."""
RELEARN = 3
"""Steps after a parting that are looked at only to learn the new course."""
PARTED = 8.0
PROVEN = 2
"""Bit-identical steps that prove a replay to be reproducible on this machine."""
MEMORY = 6
"""Deviations kept: the longest window less the step itself."""


@dataclass(frozen=True)
class DepartureState:
    """Memory of one run; columns are series."""

    largest: Floats
    """Largest ratio so far, fading (since the parting, if there was one, not fading)."""
    lately: Floats
    """Steps since the tolerance was last left; infinite: never."""
    recent: Floats
    """(series, MEMORY) signed deviations, newest last; NaN: none."""
    since: int | None = None
    """Step at which the weights are known to have parted from the replayed run's."""
    learned: int = 0
    """Steps looked at since then."""
    identical: int = 0
    """Steps from the first one on that were bit-identical to the replayed run's; negative once one was not before `PROVEN`."""


@dataclass(frozen=True)
class DepartureDetector:
    """Paired comparison with the replayed run."""

    name: str = "departure"

    def initial(self) -> DepartureState:
        """Nothing seen."""
        return DepartureState(largest=np.zeros(0), lately=np.zeros(0), recent=np.zeros((0, MEMORY)))

    def observe(self, state: DepartureState, look: Look) -> tuple[DepartureState, tuple[Finding, ...]]:
        """Judge one step; in other regimes, and at steps that the baseline does not have, the memory rests."""
        index = look.frame.index
        if look.regime != "replayed" or not look.sustained:
            return state, ()
        rows = len(look.ratio)
        state = replace(
            state,
            largest=grown(state.largest, rows, 0.0),
            lately=grown(state.lately, rows, np.inf),
            recent=grown(state.recent, rows, np.nan),
        )
        weight = np.where(index.heavy, HEAVY, np.where(index.bursty, BURSTY, 1.0))
        ratio = np.where(index.paired, np.nan_to_num(look.ratio, nan=0.0, posinf=1e300), 0.0) / weight
        lasting = np.where(index.paired, _lasting(state, look), 0.0) / np.where(index.heavy, HEAVY, 1.0)
        if state.since is None:
            alarms = _alarms(ratio, lasting, state, index.heavy)
        else:
            ratio, lasting = ratio / (1.0 + PARTED * _own_course(state, look)), np.zeros(rows)
            alarms = (ratio > 1.0) & ~index.heavy if state.learned >= RELEARN else np.zeros(rows, dtype=np.bool_)
        score = np.maximum(ratio, lasting)
        after = _after(state, look, ratio)
        return after, tuple(
            _finding(look, row, float(score[row]), float(ratio[row])) for row in strongest(alarms, score)
        )


def parted(state: DepartureState, step: int) -> DepartureState:
    """The memory after the weights are known to have left the replayed run's at `step`."""
    return DepartureState(
        largest=frozen(np.zeros_like(state.largest)),
        lately=frozen(np.full_like(state.lately, np.inf)),
        recent=frozen(np.full_like(state.recent, np.nan)),
        since=step,
    )


def strictly(state: DepartureState, look: Look) -> Look:
    """Without twins: a run that was bit-identical for some steps is held to rounding, not to the catalogue's coarse tolerances.

    Asked before any detector looks, so that localisation sees what moved by the same measure.
    """
    if look.calibrated or state.identical < PROVEN or not look.sustained:
        return look
    apart = look.deviation / look.strict
    centre, reach = look.expected, np.abs(look.deviation) / np.maximum(np.abs(apart), 1e-300)
    rows = look.frame.index.paired & np.isfinite(apart)
    return replace(
        look,
        ratio=np.where(rows, np.abs(apart), look.ratio),
        measured=np.where(rows, np.abs(apart), look.measured),
        low=np.where(rows & (reach > 0), np.minimum(centre, centre - reach), look.low),
        high=np.where(rows & (reach > 0), np.maximum(centre, centre + reach), look.high),
    )


def _identical(state: DepartureState, look: Look) -> int:
    if state.identical < 0 or state.identical >= PROVEN:
        return state.identical
    rows = look.frame.index.paired & np.isfinite(look.deviation)
    same = bool(rows.any()) and not bool(look.deviation[rows].any())
    return state.identical + 1 if same else -1


def _own_course(state: DepartureState, look: Look) -> Floats:
    """How far a run whose weights have parted usually is out: each series' largest, or what is common where that is luck."""
    judged = look.frame.index.paired & np.isfinite(look.ratio)
    common = float(np.median(state.largest[judged])) if judged.any() else 0.0
    return np.maximum(state.largest, common)


def _lasting(state: DepartureState, look: Look) -> Floats:
    """Largest ratio of a median over the last steps to what such a median may be."""
    out = np.zeros(len(look.ratio))
    course = np.concatenate([state.recent, look.deviation[:, None]], axis=1)
    for window, tolerance in look.sustained.items():
        middle = np.median(course[:, course.shape[1] - window :], axis=1)
        out = np.maximum(out, np.nan_to_num(np.abs(middle) / tolerance, nan=0.0, posinf=1e300))
    return out


def _alarms(ratio: Floats, lasting: Floats, state: DepartureState, heavy: Bools) -> Bools:
    out = ratio > 1.0
    stays = lasting > 1.0
    nothing = np.zeros_like(out)
    alarms = stays & ~heavy
    if int(stays.sum()) >= TOGETHER:
        alarms |= stays
    if not out.any():
        return alarms
    jumped = out & (ratio > JUMP * np.maximum(state.largest, QUIET))
    together = jumped if int(jumped.sum()) >= TOGETHER and bool((jumped & ~heavy).any()) else nothing
    again = out & (state.lately <= 2.0)
    alone = ~heavy & out & ((ratio > FAR) | (jumped & (ratio > SUDDEN)) | again)
    backed = bool((out & ~heavy).any()) or int(out.sum()) >= TOGETHER
    with_others = out & heavy & (again | (ratio > FAR)) if backed else nothing
    return alarms | together | alone | with_others


def _after(state: DepartureState, look: Look, ratio: Floats) -> DepartureState:
    if state.since is None:
        largest = np.maximum(FADE * state.largest, ratio)
    else:
        whole = np.where(look.frame.index.paired, np.nan_to_num(look.ratio, nan=0.0, posinf=1e300), 0.0)
        largest = np.maximum(state.largest, whole)
    return DepartureState(
        largest=frozen(largest),
        lately=frozen(np.where(ratio > 1.0, 1.0, state.lately + 1.0)),
        recent=frozen(np.concatenate([state.recent[:, 1:], look.deviation[:, None]], axis=1)),
        since=state.since,
        learned=state.learned + 1,
        identical=_identical(state, look),
    )


def _finding(look: Look, row: int, score: float, ratio: float) -> Finding:
    frame = look.frame
    key, value, expected = frame.index.keys[row], float(frame.values[row]), float(look.expected[row])
    source = "what clean repeats show" if look.calibrated else "what is allowed without twins"
    how = (
        f"{brief(score)} times {source}"
        if ratio >= score
        else f"for several steps now by {brief(score)} times {source} over that time"
    )
    return Finding(
        detector="departure",
        metric=key,
        step=frame.step,
        value=value,
        expected=band_of(look, row),
        because=(
            f"{key} is {brief(value)} at step {frame.step} where the replayed run has {brief(expected)}: "
            f"apart by {brief(abs(value - expected))}, {how}."
        ),
        stage=frame.index.entries[row].stage,
        kind="drift",
        score=score,
    )
