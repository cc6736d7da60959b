# SPDX-License-Identifier: Apache-2.0
"""Faults of the rollout engine alone: the trainer computes soundly, its weights do not arrive, or arrive out of order.

VERL_DEMO_ROLLOUT_FAULT is KIND=STEP, with the first step whose rollouts are written with the fault:

unsynchronised   updates no longer arrive: the engine goes on with the weights that it has
scrambled        they arrive in another layout: every matrix is rolled by one row
dummy            the engine begins with random weights and loads none before this step (load_format=dummy)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

VARIABLE = "VERL_DEMO_ROLLOUT_FAULT"
KINDS = ("unsynchronised", "scrambled", "dummy")


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutFault:
    """What happens to the weights on their way, and since when."""

    kind: str
    step: int

    def to_text(self) -> str:
        """The form of VERL_DEMO_ROLLOUT_FAULT."""
        return f"{self.kind}={self.step}"

    def received(self, state: dict[str, Any], version: int | None) -> dict[str, Any]:
        """The weights that the engine takes of those sent after step `version`; empty: it keeps what it has."""
        step = (version or 0) + 1
        if self.kind == "dummy":
            return state if step >= self.step else {}
        if step < self.step:
            return state
        if self.kind == "unsynchronised":
            return {}
        return {name: value.roll(1, 0) if value.ndim > 1 else value for name, value in state.items()}

    def begin(self, model: Any) -> None:
        """Give the engine's model random weights, where that is the fault."""
        if self.kind != "dummy":
            return
        import torch

        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for value in model.parameters():
                value.copy_(torch.randn(value.shape, generator=generator) * 0.02)


def from_environment() -> RolloutFault | None:
    """The rollout fault of this run, if there is one.

    Raises:
        ValueError: the variable has another form.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    kind, _, step = text.partition("=")
    if kind not in KINDS or not step.isdecimal():
        message = f"{VARIABLE}={text!r}: KIND=STEP is wanted, KIND one of {', '.join(KINDS)}"
        raise ValueError(message)
    return RolloutFault(kind=kind, step=int(step))
