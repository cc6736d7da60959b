# SPDX-License-Identifier: Apache-2.0
"""Is this run a replay of recorded rollouts, and of which reference run? Recognised from metrics that sampling would change.

Evidence per step and reference run, in bans (log10 of the odds for a replay):
the mean response length and score, and the rollout engine's own perplexity. Equal values that never vary say nothing.
Prompts are left out: they are equal in free runs of one recipe too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sentinel.core.compare.learn import Baseline
from sentinel.core.frames import Floats, SeriesFrame

EQUAL = 1e-6
"""Relative difference up to which two numbers count as equal: a sum in another order (verl V1 replays: 1e-7)."""

WEIGHTS = (
    ("rollout_corr/rollout_log_ppl", 6.0, 0.0),
    ("rollout_corr/rollout_ppl", 6.0, 0.0),
    ("response_length/mean", 4.0, -6.0),
    ("critic/score/mean", 1.5, -2.0),
    ("global_seqlen/mean", 1.0, -2.0),
    ("completions/mean_length", 4.0, -6.0),
    ("reward", 1.5, -2.0),
    ("rollout/response_len/mean", 4.0, -6.0),
    ("rollout/raw_reward", 1.5, -2.0),
)
"""Key, bans for a replay when it is equal at a step, bans when it differs. A score's mean may agree by chance, and differ by a fault
of the reward; a perplexity does not agree by chance, and may be computed anew in a replay."""
SURE = 2.0
"""Bans at which a regime is decided: odds of 100 to 1."""
PATIENCE = 3
"""Steps without a decision after which a run counts as free; at once where it shares no telling metric with the baseline."""
FIRM = 12.0
"""Bans beyond which evidence is not counted, so that a run that stops replaying is noticed."""


@dataclass(frozen=True)
class Recognition:
    """What is known so far; a value."""

    wanted: str
    """auto, replayed or free."""
    bans: tuple[float, ...] = ()
    """Per seed."""
    regime: str = "unknown"
    """unknown, replayed, free."""
    seed: int = 0
    """Reference run that is replayed."""
    undecided: int = 0
    """Steps that told nothing."""
    firm: bool = False
    """The evidence for a replay was overwhelming: later differences are faults, not another regime."""


def recognise(known: Recognition, frame: SeriesFrame, baseline: Baseline) -> Recognition:
    """Add one step's evidence."""
    place = baseline.line.get(frame.step)
    seeds = len(baseline.seeds)
    bans = np.array(known.bans or (0.0,) * seeds)
    if place is None or (known.regime == "free" and known.wanted == "free"):
        return replace(known, bans=tuple(bans), regime=known.wanted if known.wanted != "auto" else known.regime)
    told = False
    for key, equal, other in WEIGHTS:
        row = baseline.index.rows.get(key)
        if row is None or not np.isfinite(frame.values[row]):
            continue
        told = True
        bans += _bans(frame.values[row], baseline.seeds[:, place, row], baseline.seeds[:, :, row], (equal, other))
    bans = np.clip(bans, -FIRM, FIRM)
    undecided = known.undecided + (1 if told else PATIENCE)
    return _decided(replace(known, bans=tuple(bans.tolist()), undecided=undecided))


def _bans(value: float, expected: Floats, course: Floats, weights: tuple[float, float]) -> Floats:
    """Evidence of one metric for each seed; 0 where the seed lacks it or where it never varies."""
    known = np.isfinite(expected)
    equal = np.abs(value - expected) <= EQUAL * np.abs(expected)
    finite = course[np.isfinite(course)]
    varies = finite.size > 1 and bool(np.ptp(finite) > EQUAL * np.abs(finite).max())
    single = finite.size == 1
    gain = weights[0] if varies or (single and weights[0] > 2.0) else 0.0
    return np.where(known, np.where(equal, gain, weights[1]), 0.0)


def _decided(known: Recognition) -> Recognition:
    if known.wanted == "free":
        return replace(known, regime="free")
    best = int(np.argmax(known.bans)) if known.bans else 0
    most = known.bans[best] if known.bans else 0.0
    if known.firm:
        return known
    if known.wanted == "replayed":
        return replace(known, regime="replayed", seed=best, firm=True)
    if most >= SURE:
        return replace(known, regime="replayed", seed=best, firm=most >= 3 * SURE)
    if most <= -SURE or (known.regime == "unknown" and known.undecided >= PATIENCE):
        return replace(known, regime="free", seed=best)
    return known
