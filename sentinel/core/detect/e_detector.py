# SPDX-License-Identifier: Apache-2.0
"""Evidence that adds up: an e-detector over all series together, in free runs and under replay.

Each series carries bets against the run being healthy (`compare.betting`). What each has won is multiplied up since the step from which
that is most (a CUSUM, on both sides), and the mean over all bets of all series is the evidence (Shin, Ramdas and Rinaldo, "E-detectors", 2022).
It may be looked at at every step: were healthy steps independent, a healthy run would alarm less than once in `odds` steps, whatever the
number of series. They are not quite, so the rate that is kept is measured (`sentinel evaluate`). It finds shifts that are too small for a window of
steps to tell; a mean, for series move together, and a product would count one cause many times. Misses on purpose: shifts within what seeds or twins themselves stand off for 20 steps.
Silent with fewer than three seeds (three twins): it knows no offset then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.compare.betting import BETS, SIDES, STAKES, Bets, gains
from sentinel.core.detect.base import band_of, brief, strongest
from sentinel.core.frames import Bools, Floats, Integers, frozen, grown
from sentinel.records import Finding

BEYOND = 1e3
"""Winnings end at so many times what alone would be an alarm, so that evidence is gone some steps after its cause."""
NAMED = 0.1
"""Share of the strongest series' winnings from which a series is named beside it."""
NOTHING = 10.0
"""Winnings below which a shift has not begun."""


@dataclass(frozen=True)
class EDetectorState:
    """Memory of one run; rows are series."""

    won: Floats
    """(series, BETS): winnings of each bet."""
    since: Integers
    """(series,): last step at which no bet on the series had won anything to speak of."""
    regime: str = ""
    """In which the bets were laid: in another one they begin anew."""


@dataclass(frozen=True)
class EDetector:
    """Deviations that add up over steps, all series at one rate of alarms."""

    name: str = "e_detector"

    def initial(self) -> EDetectorState:
        """Nothing bet."""
        return EDetectorState(won=np.zeros((0, BETS)), since=np.zeros(0, dtype=np.int64))

    def observe(self, state: EDetectorState, look: Look) -> tuple[EDetectorState, tuple[Finding, ...]]:
        """Judge one step; where the baseline says nothing the memory rests."""
        bets = look.bets
        if bets is None:
            return state, ()
        rows = len(look.ratio)
        state = state if state.regime == look.regime else self.initial()
        won, since = grown(state.won, rows, 0.0), grown(state.since, rows, look.frame.step - 1)
        open_to, sides = _bettable(look, bets)
        if not sides.any():
            return EDetectorState(frozen(won), frozen(since), look.regime), ()
        most = BEYOND * bets.odds * sides.size
        known = slice(0, len(bets.cells))
        factor = np.ones((rows, BETS))
        factor[known] = gains(look.stake[known], bets).T
        now = np.isfinite(look.stake)[:, None] & sides
        won = np.where(now, np.minimum(factor * np.maximum(won, 1.0), most), won)
        since = np.where(won.max(axis=1) < NOTHING, look.frame.step, since)
        evidence = float((won * sides).sum() / max(int(open_to.sum()) * BETS, 1))
        after = EDetectorState(frozen(won), frozen(since), look.regime)
        if evidence < bets.odds:
            return after, ()
        each = (won * sides).mean(axis=1)
        alarms = (each >= NAMED * each.max()) & look.frame.finite & np.isfinite(look.stake)
        share = np.log(np.maximum(each, 1.0)) / np.log(max(float(each.max()), np.e))
        score = np.log(evidence) / np.log(bets.odds) * share
        return after, tuple(
            _finding(look, row, float(score[row]), _told(won[row], int(since[row]) + 1, evidence))
            for row in strongest(alarms, score)
        )


def _bettable(look: Look, bets: Bets) -> tuple[Bools, Bools]:
    """Series that are bet on, and of them each bet on a side that is bad, shape (series, BETS)."""
    index, rows = look.frame.index, len(look.ratio)
    open_to = np.zeros(rows, dtype=np.bool_)
    open_to[: len(bets.cells)] = bets.cells > 0
    bad = {1.0: index.up, -1.0: index.down} if look.regime == "free" else dict.fromkeys(SIDES, open_to)
    sides = np.stack([bad[side] & open_to for side in SIDES for _ in STAKES], axis=1)
    return open_to, np.asarray(sides, dtype=np.bool_)


def _told(won: Floats, since: int, evidence: float) -> tuple[str, int, int]:
    """Side on which a series' bets won, the step since which they did, and the evidence as a power of ten."""
    above = won[: len(STAKES)].max() >= won[len(STAKES) :].max()
    return "above" if above else "below", since, int(np.log10(evidence))


def _finding(look: Look, row: int, score: float, told: tuple[str, int, int]) -> Finding:
    frame = look.frame
    key, value = frame.index.keys[row], float(frame.values[row])
    side, since, odds = told
    return Finding(
        detector="e_detector",
        metric=key,
        step=frame.step,
        value=value,
        expected=band_of(look, row),
        because=(
            f"{key} has stood {side} what was expected since step {since}, further than healthy runs do for long: {brief(value)} at step {frame.step} "
            f"where {brief(float(look.expected[row]))} was expected; with all metrics together the odds are 10^{odds} to one "
            "against a healthy run."
        ),
        stage=frame.index.entries[row].stage,
        kind="drift",
        score=max(score, 1.0),
    )
