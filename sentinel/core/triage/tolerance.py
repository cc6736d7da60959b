# SPDX-License-Identifier: Apache-2.0
"""How far a row may be off before its module is blamed.

    allowed = factor x floor + gain x (what reached the module already deviating)

The floor is rounding (deviation.py). The factor covers another order of summation, another kernel, other hardware; its defaults
come from clean pairs (bench/triage_corpus.py) and clean pairs of the user's own widen it by kind of module. The gain lets a
module pass on, and moderately amplify, the deviation of its inputs and weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

Triple = tuple[float, float, float]

# (norm, peak, sum). Half-precision statistics are counted in units of the last place: one unit is noise, two of the norm are not;
# one element decides a peak, so rounding moves it by three, and in gradients by five.
FACTORS: Mapping[str, Triple] = {"half": (1.6, 3.4, 12.0), "single": (8.0, 30.0, 20.0)}
BACKWARD_FACTORS: Mapping[str, Triple] = {"half": (1.9, 6.0, 12.0), "single": (16.0, 60.0, 40.0)}
GRADIENT_FACTORS: Mapping[str, Triple] = {"half": (3.2, 6.0, 12.0), "single": (40.0, 120.0, 80.0)}
# What a module makes of the deviation that reaches it: of the norm's own, and of any. Sums add up what all tokens share.
NORM_GAINS: Triple = (3.0, 3.0, 8.0)
ANY_GAINS: Triple = (0.2, 4.0, 25.0)
# The gain of the sum is that of about as many tokens; it grows with the root of their number.
SHARING_TOKENS = 100
MOVED_NORM_GAIN = 0.5
"""In place of the first of ANY_GAINS where weights have moved: all tokens pass the same change."""
# In a tensor of few elements chance does not average out: all gains grow by SMALL / sqrt(elements).
SMALL = 20.0
# ... and the norm's by this much more, as a perturbation that points anywhere shows in it by 1 / sqrt(elements).
SMALL_NORM = 5.0
# A bias's gradient is a sum over all tokens that may cancel: little is left for what is rounded off to be compared with.
SUMMED_GRADIENT = 3.0
# What an operation adds points anywhere, so it hardly shows in the norm.
FRESH: Triple = (0.2, 4.0, 20.0)
# Probabilities minus one-hot labels: what is left after that subtraction carries the whole deviation of the logits.
LOSS_GAIN = 20.0
HALVES = frozenset({"bfloat16", "float16"})


@dataclass(frozen=True, slots=True)
class RowKind:
    """What of a row decides how much is allowed."""

    group: tuple[str, str, str]
    """Role, last name of the module, dtype."""
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """The allowance of a kind of row, as far as it does not depend on the row; each for norm, peak and sum."""

    floor: Triple
    """Factor on the row's floor."""
    norm: Triple
    """Gain of what came in deviating in its norm."""
    any: Triple
    """Gain of what came in deviating in any statistic."""
    least: float
    """What came in is taken as at least this."""
    added: Triple
    """What the operation may add on its own."""

    def allowance(self, floor: Triple, reached: tuple[float, float, float]) -> Triple:
        """The deviation in norm, peak and sum that is no evidence."""
        norm, reach, _ = reached
        reach = max(reach, self.least)
        return (
            self.floor[0] * floor[0] + self.norm[0] * norm + self.any[0] * reach + self.added[0],
            self.floor[1] * floor[1] + self.norm[1] * norm + self.any[1] * reach + self.added[1],
            self.floor[2] * floor[2] + self.norm[2] * norm + self.any[2] * reach + self.added[2],
        )


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allowances, widened per group of rows where clean pairs needed it."""

    widened: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    """(kind of row, last name of the module, dtype) -> factor on the whole allowance."""
    moved: float | None = None
    """How far weights moved that all moved (their median); None where they agree. What a tensor's statistics do not show of it
    may have come in all the same."""
    background: float = 0.0
    """Relative size of what every operation of this pair adds on its own, where its arithmetic differs throughout."""

    def allowance(self, row: RowKind, floor: Triple, reached: tuple[float, float, float]) -> Triple:
        """The deviation in norm, peak and sum that is no evidence, where `reached` (norm, any) came in."""
        return self.terms(row).allowance(floor, reached)

    def terms(self, row: RowKind) -> Terms:
        """What of the allowance all rows of a kind share."""
        role, _, dtype = row.group
        table = {"output": FACTORS, "input": FACTORS, "gradient": GRADIENT_FACTORS}.get(role, BACKWARD_FACTORS)
        factors = table["half" if dtype in HALVES else "single"]
        wide = self.widened.get(row.group, 1.0)
        elements = max(1, math.prod(row.shape))
        few = 1.0 + SMALL / math.sqrt(elements)
        tokens = elements / max(1, row.shape[-1]) if row.shape else 1
        shared = max(1.0, math.sqrt(tokens / SHARING_TOKENS))
        if role == "gradient" and len(row.shape) == 1:
            wide *= SUMMED_GRADIENT
        passed = wide * few
        moved = self.moved is not None
        gains = (
            (MOVED_NORM_GAIN if moved else ANY_GAINS[0]) + SMALL_NORM / math.sqrt(elements),
            ANY_GAINS[1],
            ANY_GAINS[2] * shared,
        )
        return Terms(
            (wide * factors[0], wide * factors[1], wide * factors[2]),
            (passed * NORM_GAINS[0], passed * NORM_GAINS[1], passed * NORM_GAINS[2]),
            (passed * gains[0], passed * gains[1], passed * gains[2]),
            self.moved or 0.0,
            (
                passed * FRESH[0] * self.background,
                passed * FRESH[1] * self.background,
                passed * FRESH[2] * self.background,
            ),
        )
