# SPDX-License-Identifier: Apache-2.0
"""Is this run a replay of recorded rollouts, and of which reference run? Recognised from what sampling would change.

Evidence per reference run, in bans (log10 of the odds for a replay):
- the rollout engine's own perplexity is equal: the recorded log-probs are used, no chance does that;
- all lengths are equal, all scores are equal: as unlikely as the baseline's own runs and steps agree by chance in their means;
- it is not, although the baseline's twins have it equal in all steps: the engine computed it anew. The text may be the recorded one for some steps
  all the same: a free run with a reference run's seed parts from it only where the first token does;
- a length differs: no replay. A score differs: a free run, or a replay with another reward, so it counts once.
Prompts are left out: they are equal in free runs of one recipe too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sentinel.core.compare.learn import EQUAL, Baseline
from sentinel.core.frames import Floats, Integers, SeriesFrame

ENGINE_BANS = 6.0
LENGTH_DIFFERS = -6.0
SCORE_DIFFERS = -2.0
TWINS_BANS = 2.5
"""A baseline that holds twins was made to be replayed: other lengths tell a free run at once all the same."""
SURE = 2.0
"""Bans at which a regime is decided: odds of 100 to 1."""
FIRM = 4.0
"""Bans from which on differences are faults, not another regime."""
TWICE = 2
"""Steps that must agree before later differences are faults."""
SETTLED = -15.0
"""Bans below which nothing would turn a free run into a replay."""
PATIENCE = 6
"""Steps without a decision after which a run counts as free; at once where it shares no telling metric with the baseline."""


@dataclass(frozen=True)
class Recognition:
    """What is known so far; a value."""

    wanted: str
    """auto, replayed or free."""
    bans: tuple[float, ...] = ()
    """Per seed, without what differing scores say."""
    scores: tuple[bool, ...] = ()
    """Per seed: some score differed."""
    engine: tuple[bool, ...] = ()
    """Per seed: the rollout engine's perplexity was equal at some step."""
    agreed: int = 0
    """Steps at which some seed agreed in all that tells."""
    regime: str = "unknown"
    """unknown, replayed, free."""
    seed: int = 0
    """Reference run that is replayed."""
    undecided: int = 0
    """Steps looked at without a decision."""
    firm: bool = False
    """The evidence for a replay was overwhelming: later differences are faults, not another regime."""


def recognise(known: Recognition, frame: SeriesFrame, baseline: Baseline) -> Recognition:
    """Add one step's evidence."""
    place = baseline.line.get(frame.step)
    if known.wanted == "free":
        return replace(known, regime="free")
    if place is None or known.firm or (known.bans and max(known.bans) <= SETTLED):
        return known
    seeds = len(baseline.seeds)
    prior = TWINS_BANS if len(baseline.twins) else 0.0
    bans, scores = np.array(known.bans or (prior,) * seeds), np.array(known.scores or (False,) * seeds)
    engine, _ = _equal(frame, baseline, place, baseline.engine_rows)
    length, telling = _equal(frame, baseline, place, baseline.lengths.rows)
    score, scored = _equal(frame, baseline, place, baseline.scores.rows)
    bans += np.where(length == 1, baseline.lengths.bans, 0.0) + np.where(score == 1, baseline.scores.bans, 0.0)
    bans += np.where(engine == 1, ENGINE_BANS, 0.0) + np.where(length == -1, LENGTH_DIFFERS, 0.0)
    scores |= score == -1
    # Two free runs of one seed may share their first step to the bit: recorded log-probs do not end when the text changes.
    before = np.array(known.engine or (False,) * seeds)
    bans = np.where(before & (engine == -1) & ((score == -1) | (length == -1)), -FIRM, bans)
    if baseline.recorded:
        bans = np.where(engine == -1, np.minimum(bans, -FIRM), bans)
    agreed = bool(((engine == 1) | ((length == 1) & (score == 1))).any())
    undecided = known.undecided + (1 if telling or scored else PATIENCE)
    kept = replace(
        known,
        bans=tuple(np.clip(bans, -20, 20).tolist()),
        scores=tuple(scores.tolist()),
        engine=tuple((before | (engine == 1)).tolist()),
        agreed=known.agreed + agreed,
        undecided=undecided,
    )
    return _decided(kept)


def _equal(frame: SeriesFrame, baseline: Baseline, place: int, rows: Integers) -> tuple[Floats, bool]:
    """Per seed: 1 when all of the keys that both sides have are equal, -1 when one differs, 0 when there are none."""
    expected, values = baseline.seeds[:, place, rows], frame.values[rows]
    both = np.isfinite(expected) & np.isfinite(values)
    differs = both & (np.abs(values - expected) > EQUAL * np.maximum(np.abs(expected), EQUAL) + baseline.resolution)
    told = np.where(differs.any(axis=1), -1.0, np.where(both.any(axis=1), 1.0, 0.0))
    return told, bool(both.any())


def _decided(known: Recognition) -> Recognition:
    total = [
        bans + (SCORE_DIFFERS if differed else 0.0) for bans, differed in zip(known.bans, known.scores, strict=True)
    ]
    best = int(np.argmax(total)) if total else 0
    most = total[best] if total else 0.0
    if known.wanted == "replayed":
        return replace(known, regime="replayed", seed=best, firm=True)
    if most >= SURE:
        return replace(known, regime="replayed", seed=best, firm=most >= FIRM and known.agreed >= TWICE)
    if most <= -SURE or (known.regime == "unknown" and known.undecided >= PATIENCE):
        return replace(known, regime="free", seed=best)
    return known
