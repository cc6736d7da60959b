# SPDX-License-Identifier: Apache-2.0
"""Dumped calls computed again in fp32, and in their own dtype, from the dump's own inputs and weights: evidence that needs no golden.

A call is out where it is further from fp32 than the same call in its own dtype is, many times over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from sentinel.sources.torch_child import TIME_LIMIT_SECONDS, ask_child

ALLOWED = 4.0
"""How many times its expected rounding a result may be off: below the least planted fault (1 %) in bf16, far above clean calls."""


@dataclass(frozen=True, slots=True)
class Again:
    """One call, as dumped and as computed again."""

    name: str
    """Key of the dump entry."""
    position: str
    gap: float
    """Norm of the difference from fp32, over the norm."""
    expected: float
    """The same for the call in its own dtype, with the rounding of its result."""
    norm: float
    again: float
    place: int
    """Flat index of the element that is off most."""

    @property
    def out(self) -> bool:
        """Whether rounding does not explain the difference; not a number is no rounding."""
        return not self.gap <= ALLOWED * self.expected

    @property
    def why(self) -> str:
        """The sentence that reports quote."""
        return (
            f"computed again in fp32 from its own inputs and weights its norm is {self.again:.6g}, the dump has {self.norm:.6g}: "
            f"{self.gap:.3g} apart where rounding explains {self.expected:.2g}"
        )


def compute_again(dump_file: str | Path, *, limit_seconds: float = TIME_LIMIT_SECONDS) -> tuple[Sequence[Again], str]:
    """Compute every call of a tensor dump again that can be, in the dump's order; and what went wrong (empty: nothing)."""
    script = (resources.files("sentinel") / "sources" / "rerun_child.py").read_text(encoding="utf-8")
    lines, why = ask_child(script, str(dump_file), limit_seconds=limit_seconds)
    found = [Again(*line) for line in lines if isinstance(line, list) and len(line) == 7]
    return found, why


def first_out(calls: Sequence[Again]) -> Again | None:
    """The first call that rounding does not explain; of a module and an operation inside it, the operation."""
    return next((call for call in calls if call.out), None)
