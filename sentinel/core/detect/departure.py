# SPDX-License-Identifier: Apache-2.0
"""Under replay: a metric left the course of the run that is replayed.

Judged is the lower median of its deviation over 1, 3, 5 and 10 steps, each against what healthy replays reach over so many steps
(`compare.windows`): a jump alarms at its step, a small shift that stays within some. Metrics that single tokens decide are no evidence
over one step or three. Misses on purpose: deviations that grow as healthy replays' do, and shifts within one standard deviation.
Without twins, a run whose first steps were bit-identical has shown that it can be, and is held to rounding (`strictly`).
After the weights have parted for a known reason (`since`), a series must depart from its own parted course instead.
False alarms: see `sentinel evaluate`; the scale comes from the twins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sentinel.core.catalogue import REPLAY_WINDOWS
from sentinel.core.compare import Look
from sentinel.core.compare.windows import REPLAY_MEMORY, jumped, lasting, pushed
from sentinel.core.detect.base import band_of, brief, strongest
from sentinel.core.frames import Floats, frozen, grown
from sentinel.records import Finding

RELEARN = 3
"""Steps after a parting that are looked at only to learn the new course."""
PARTED = 8.0
ENTROPY, LOG_PROBS = "actor/entropy", "rollout_corr/training_log_ppl"
OTHERWISE = 3.0
"""Standard deviations, and times the log-probs' own, from which an entropy at equal weights is computed otherwise: autocast keeps the
softmax in bf16 on some backends, which shifts every entropy and changes no training."""
BORNE_OUT = 0.7
"""Share of their limit from which the log-probs bear such an entropy out all the same."""
PROVEN, PROVEN_BESIDE_TWINS = 2, 3
"""Bit-identical steps that prove a replay to be reproducible on this machine; more where twins say that it need not be."""
STRICT_LIMITS = (1.0, 0.7, 0.7, 0.7)
"""Limits over the windows in units of the strict tolerance."""


@dataclass(frozen=True)
class DepartureState:
    """Memory of one run; rows are series."""

    largest: Floats
    """Largest ratio of a single step since the parting; 0 before there was one."""
    recent: Floats
    """(series, REPLAY_MEMORY): |deviation| of the last steps in standard deviations, newest last."""
    since: int | None = None
    """Step at which the weights are known to have parted from the replayed run's."""
    learned: int = 0
    """Steps looked at since then."""
    identical: int = 0
    """Steps from the first one on that were bit-identical to the replayed run's; negative once one was not before `PROVEN`."""
    otherwise: bool = False
    """This run's entropy is computed otherwise than the baseline's."""


@dataclass(frozen=True)
class DepartureDetector:
    """Paired comparison with the replayed run."""

    name: str = "departure"

    def initial(self) -> DepartureState:
        """Nothing seen."""
        return DepartureState(largest=np.zeros(0), recent=np.zeros((0, REPLAY_MEMORY)))

    def observe(self, state: DepartureState, look: Look) -> tuple[DepartureState, tuple[Finding, ...]]:
        """Judge one step; in other regimes, and at steps that the baseline does not have, the memory rests."""
        if look.regime != "replayed" or not len(look.limits):
            return state, ()
        index, rows = look.frame.index, len(look.ratio)
        state = replace(state, largest=grown(state.largest, rows, 0.0), recent=grown(state.recent, rows, 0.0))
        now = np.where(index.paired, np.nan_to_num(np.abs(look.standard), nan=0.0, posinf=1e300), 0.0)
        single = np.where(index.paired, np.nan_to_num(look.ratio, nan=0.0, posinf=1e300), 0.0)
        window = np.zeros(rows, dtype=np.int64)
        otherwise = _otherwise(state, look)
        course = np.concatenate([state.recent, now[:, None]], axis=1)
        if state.since is None:
            score, window = lasting(course, look.limits, REPLAY_WINDOWS)
            if otherwise and score[index.rows[LOG_PROBS]] < BORNE_OUT:
                score[index.rows[ENTROPY]] = min(score[index.rows[ENTROPY]], 1.0)
            alarms = score > 1.0
        else:
            score = single / (1.0 + PARTED * _own_course(state, look))
            alarms = (score > 1.0) & ~index.heavy & (state.learned >= RELEARN)
        found = tuple(
            _finding(look, row, float(score[row]), REPLAY_WINDOWS[int(window[row])], at_once=jumped(course[row]))
            for row in strongest(alarms, score)
        )
        return replace(_after(state, look, now, single), otherwise=otherwise), found


def parted(state: DepartureState, step: int) -> DepartureState:
    """The memory after the weights are known to have left the replayed run's at `step`."""
    return DepartureState(
        largest=frozen(np.zeros_like(state.largest)),
        recent=frozen(np.zeros_like(state.recent)),
        since=step,
        otherwise=state.otherwise,
    )


def strictly(state: DepartureState, look: Look) -> Look:
    """A run that was bit-identical for some steps is held to rounding, not to coarser tolerances of the catalogue or of its twins.

    Asked before any detector looks, so that localisation sees what moved by the same measure.
    """
    proven = PROVEN_BESIDE_TWINS if look.calibrated else PROVEN
    if state.identical < proven or not len(look.limits):
        return look
    apart = look.deviation / look.strict
    rows = look.frame.index.paired & ~look.frame.index.control & (np.abs(apart) > look.ratio)
    centre, reach = look.expected, np.abs(look.deviation) / np.maximum(np.abs(apart), 1e-300)
    return replace(
        look,
        ratio=np.where(rows, np.abs(apart), look.ratio),
        measured=np.where(rows, np.fmax(np.abs(apart), look.measured), look.measured),  # stricter is never less moved
        standard=np.where(rows, apart, look.standard),
        limits=np.where(rows[None], np.array(STRICT_LIMITS)[:, None], look.limits),
        low=np.where(rows & (reach > 0), np.minimum(centre, centre - reach), look.low),
        high=np.where(rows & (reach > 0), np.maximum(centre, centre + reach), look.high),
    )


def _identical(state: DepartureState, look: Look) -> int:
    if state.identical < 0 or state.identical >= PROVEN_BESIDE_TWINS:
        return state.identical
    rows = look.frame.index.paired & np.isfinite(look.deviation)
    same = bool(rows.any()) and not bool(look.deviation[rows].any())
    # Once proven it stays proven: what parts later is what is looked for.
    return state.identical + 1 if same else (PROVEN if state.identical >= PROVEN and not look.calibrated else -1)


def _otherwise(state: DepartureState, look: Look) -> bool:
    """Whether this run computes its entropy otherwise than the baseline's did.

    Then it is off at the first step, where weights are equal, while the tokens' own log-probs, of the same logits, hold.
    """
    row, held = (look.frame.index.rows.get(key) for key in (ENTROPY, LOG_PROBS))
    if look.baseline is None or look.frame.step != look.baseline.steps[0] or row is None or held is None:
        return state.otherwise
    apart, beside = abs(float(look.standard[row])), abs(float(look.standard[held]))
    return apart >= OTHERWISE and apart >= OTHERWISE * beside


def _own_course(state: DepartureState, look: Look) -> Floats:
    """How far a run whose weights have parted usually is out: each series' largest, or what is common where that is luck."""
    judged = look.frame.index.paired & np.isfinite(look.ratio)
    common = float(np.median(state.largest[judged])) if judged.any() else 0.0
    return np.maximum(state.largest, common)


def _after(state: DepartureState, look: Look, now: Floats, single: Floats) -> DepartureState:
    return DepartureState(
        largest=state.largest if state.since is None else frozen(np.maximum(state.largest, single)),
        recent=frozen(pushed(state.recent, now)),
        since=state.since,
        learned=state.learned + 1,
        identical=_identical(state, look),
    )


def _finding(look: Look, row: int, score: float, window: int, *, at_once: bool) -> Finding:
    frame = look.frame
    key, value, expected = frame.index.keys[row], float(frame.values[row]), float(look.expected[row])
    source = "what clean repeats show" if look.calibrated else "what is allowed without twins"
    how = (
        f"{brief(score)} times {source}"
        if window == 1
        else f"for most of {window} steps by {brief(score)} times {source} over that time"
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
        jumped=at_once,
    )
