# SPDX-License-Identifier: Apache-2.0
"""Bets against a run being healthy, step by step: what an e-detector multiplies up.

A bet on a series pays `exp(stake x deviation)` over what it pays on healthy runs on average (the baseline's own seeds or twins, this step
among them: a conformal e-value), so that who bets against a healthy run gains nothing in the long run, however heavy its tails are.
Healthy runs keep an offset of their own for a while, which sums would take for proof: a bet is on what lies beyond the `leeway`, the most that
any seed or twin itself stood off over 20 steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.core.frames import Bools, Floats, frozen

STAKES = (1.0, 2.0)
"""Exponents: the smaller one gains most from shifts of about one standard deviation beyond the leeway, the larger one from two."""
SIDES = (1.0, -1.0)
BETS = len(STAKES) * len(SIDES)
"""Bets on a series: above with each stake, then below with each."""
CLIP = 3.5
"""Standard deviations beyond which a step gains no more: single steps are other detectors' business."""
OFFSET_STEPS = 20
"""Steps over which a healthy run's own offset is measured."""
LEAST_RUNS = 3
"""Seeds, or twins, that are needed to know how far healthy runs stand off."""
LEAST_CELLS = 50
MOST_CELLS, LEAST_STEPS = 10_000_000, 500
"""Numbers of the baseline that are learned from, and its first steps that always are."""


@dataclass(frozen=True)
class Bets:
    """What bets on each series of a baseline pay in healthy runs."""

    paid: Floats
    """(BETS, series): sum of what was paid over the healthy cells."""
    cells: Floats
    """(series,): how many cells that are; 0: no bet."""
    leeway: Floats
    """(series,): standard deviations that healthy runs stand off for long."""
    odds: float
    """Odds against a healthy run that are an alarm."""


def learn_bets(
    healthy: Floats, rows: Bools, *, leeway: Floats | float, odds: float, least: Floats | float = 0.0
) -> Bets | None:
    """Learn from deviations of healthy runs; None where there are too few of them.

    Args:
        healthy: deviations in standard deviations, shape (runs, steps, series); NaN where a run has nothing.
        rows: series that are bet on.
        leeway: multiple of the largest offset that any of the runs shows, shape (series,) or one for all.
        odds: of all series together, from which on it is an alarm.
        least: standard deviations of leeway, at least, likewise.
    """
    healthy = healthy[:, : steps_learned(len(healthy), healthy.shape[-1])]
    if len(healthy) < LEAST_RUNS or not healthy.shape[1]:
        return None
    seen = np.isfinite(healthy)
    cells = np.where(rows, seen.sum(axis=(0, 1)), 0.0)
    known = np.where(seen, healthy, 0.0)
    paid = np.array([np.where(seen, wager(side * known, stake), 0.0).sum(axis=(0, 1)) for side, stake in _bets()])
    return Bets(
        paid=frozen(paid),
        cells=frozen(np.where(cells >= LEAST_CELLS, cells, 0.0)),
        leeway=frozen(np.maximum(leeway * _offset(known), least)),
        odds=odds,
    )


def steps_learned(runs: int, series: int) -> int:
    """So many first steps of the baseline are learned from."""
    return max(LEAST_STEPS, MOST_CELLS // max(runs * series, 1))


def gains(standard: Floats, bets: Bets) -> Floats:
    """Factor by which each bet grows at a step, shape (BETS, series); at most 1 on average in a healthy run.

    Args:
        standard: deviations in standard deviations, shape (series,); absent ones gain what 0 gains.
        bets: of the same series.
    """
    now = np.clip(np.nan_to_num(standard), -1e6, 1e6)
    won = np.array([wager(side * now - bets.leeway, stake) for side, stake in _bets()])
    return np.asarray((bets.cells + 1.0) * won / (bets.paid + won), dtype=np.float64)


def wager(standard: Floats, stake: float) -> Floats:
    """What a bet pays, before it is set in relation to healthy runs."""
    return np.asarray(np.exp(stake * np.clip(standard, -CLIP, CLIP)), dtype=np.float64)


def _bets() -> list[tuple[float, float]]:
    return [(side, stake) for side in SIDES for stake in STAKES]


def _offset(known: Floats) -> Floats:
    """Largest mean over `OFFSET_STEPS` steps that any run shows, shape (series,)."""
    window = min(OFFSET_STEPS, known.shape[1])
    sums = np.cumsum(np.concatenate([np.zeros_like(known[:, :1]), known], axis=1), axis=1)
    return np.asarray(np.abs(sums[:, window:] - sums[:, :-window]).max(axis=(0, 1)) / window, dtype=np.float64)
