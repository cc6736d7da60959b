# SPDX-License-Identifier: Apache-2.0
"""What clean pairs teach: how far rows may deviate by kind of module, and how often their statistics do so together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sentinel.core.triage.joint import Sighting
from sentinel.core.triage.judging import Deviating
from sentinel.core.triage.noise import Noise, count, from_plain, to_plain
from sentinel.core.triage.sides import Side, prepare, rank_pairs, stage_pairs
from sentinel.core.triage.tolerance import Tolerance
from sentinel.core.triage.walk import Walk

Group = tuple[str, str, str]
"""Role, last name of the module, dtype."""
# Clean rows stay below their allowance by this much.
MARGIN = 1.5
# One pair of a user's own machines says more about them than one of the factory's.
OWN_WEIGHT = 10


@dataclass(frozen=True)
class Calibration:
    """Tolerances learnt from clean pairs."""

    widened: Mapping[Group, float] = field(default_factory=dict)
    """Factor on the whole allowance; absent: 1."""
    noise: Noise = field(default_factory=lambda: Noise({}))
    pairs: int = 0
    """Clean pairs that it was learnt from."""

    def merged(self, other: Calibration) -> Calibration:
        """Both; `other` comes from the user's own machines."""
        widened = dict(self.widened)
        for group, factor in other.widened.items():
            widened[group] = max(factor, widened.get(group, 1.0))
        return Calibration(widened, self.noise.merged(other.noise, OWN_WEIGHT), self.pairs + other.pairs)


def calibrate(pair: tuple[Side, Side], mapping: Mapping[str, str] | None = None) -> Calibration:
    """Learn from one clean pair (target, golden), which differs by hardware or kernels only."""
    widened: dict[Group, float] = {}
    noise = Noise({})
    for _, mine, theirs in stage_pairs(pair[0], pair[1], []):
        for rank, other in rank_pairs(mine, theirs, "", []):
            _, forest, measured, _ = prepare(mine[rank], theirs[other], mapping or {})
            judge = Deviating(forest, measured, Tolerance(), learning=True)
            sighting = Sighting(judge, forest, measured, learning=True)
            list(Walk(forest, sighting).faults())
            for group, score in judge.seen:
                if math.isfinite(score) and score * MARGIN > widened.get(group, 1.0):
                    widened[group] = score * MARGIN
            noise = noise.merged(count([*sighting.equal_seen, *(one.seen for one in sighting.sighted)]))
    return Calibration(widened, noise, 1)


def together(calibrations: Iterable[Calibration]) -> Calibration:
    """Many of the factory's own, each counting once."""
    widened: dict[Group, float] = {}
    noise, pairs = Noise({}), 0
    for one in calibrations:
        for group, factor in one.widened.items():
            widened[group] = max(factor, widened.get(group, 1.0))
        noise, pairs = noise.merged(one.noise), pairs + one.pairs
    return Calibration(widened, noise, pairs)


def calibration_to_plain(calibration: Calibration) -> dict[str, object]:
    """The form that is stored."""
    return {
        "pairs": calibration.pairs,
        "widened": [[*group, factor] for group, factor in sorted(calibration.widened.items())],
        "noise": to_plain(calibration.noise),
    }


def calibration_from_plain(plain: object) -> Calibration:
    """The way back.

    Raises:
        TypeError, ValueError: it has another form.
    """
    if not isinstance(plain, dict) or not isinstance(plain.get("widened"), list):
        raise TypeError("an object with pairs, widened and noise is wanted")
    widened: dict[Group, float] = {}
    for row in plain["widened"]:
        if not isinstance(row, list) or len(row) != 4 or not isinstance(row[3], (int, float)) or not row[3] >= 1:
            raise ValueError(f"no factor of a group: {row!r:.80}")
        widened[str(row[0]), str(row[1]), str(row[2])] = float(row[3])
    pairs = plain.get("pairs")
    return Calibration(widened, from_plain(plain.get("noise")), pairs if isinstance(pairs, int) else 0)
