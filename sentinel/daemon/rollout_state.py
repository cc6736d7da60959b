# SPDX-License-Identifier: Apache-2.0
"""What the daemon has read of a run's rollouts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sentinel.daemon.rollout_baseline import baseline_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sentinel.core.rollout.replayed import StepProof
    from sentinel.daemon.rollout_baseline import BaselineText
    from sentinel.records import Reference

GEN, STEP = "timing_s/gen", "timing_s/step"
LENGTHS = ("response_length/mean", "response_length/max", "response_length/min")
_KEPT = 512
_V = TypeVar("_V")


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
    unseen_told: bool = False
    decided: str = ""
    """The side that was told."""
    seen_before: bool = False
    """The run was watched before this daemon began."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What is needed of a watch, taken at one moment."""

    following: Following
    folder: str
    last_step: int | None
    config: Mapping[str, Any]
    trainer: str | None
    baseline: str | None
    reference: Reference | None
    regime: str
    non_finite: tuple[int, ...]
    series: Mapping[str, Mapping[int, float]]
    finished: bool


def baseline_of(look: Look) -> BaselineText | None:
    """The baseline's text; read once for each baseline."""
    following = look.following
    if following.baseline is None or following.baseline[0] != look.baseline:
        following.baseline = (look.baseline, baseline_text(look.baseline) if look.baseline else None)
    return following.baseline[1]


def keep(kept: dict[int, _V], step: int, value: _V) -> None:
    """Keep a value of a step, and of so many steps at most."""
    kept[step] = value
    while len(kept) > _KEPT:
        del kept[next(iter(kept))]
