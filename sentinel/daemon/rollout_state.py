# SPDX-License-Identifier: Apache-2.0
"""What the daemon has read of a run's rollouts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentinel.core.rollout.replayed import StepProof
    from sentinel.daemon.rollout_baseline import BaselineText


@dataclass(kw_only=True, slots=True)
class Following:
    """What was read of one run so far. In memory only: after a restart reading goes on with the next step."""

    began: float = 0.0
    """Unix time when the trainer introduced itself; 0 where that is not known."""
    first: int | None = None
    """The first step that is looked at."""
    judged: dict[int, str] = field(default_factory=dict)
    """Step -> verdict."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Size of a file at the look before."""
    proved: dict[int, StepProof] = field(default_factory=dict)
    """Step -> whether it was replayed."""
    reported: set[int] = field(default_factory=set)
    """Steps that were told not to have been."""
    baseline: tuple[str | None, BaselineText | None] | None = None
    void_told: bool = False
    decided: str = ""
    """The side that was told."""
    seen_before: bool = False
    """The run was watched before this daemon began."""
