# SPDX-License-Identifier: Apache-2.0
"""The policy stopped being one: entropy gone, text that no longer ends, gradients of exactly zero that zero advantage does not explain.

Needs no baseline; where one speaks for the metric, it does the judging instead. Entropy and length must hold on 3 steps in a row; a
gradient of exactly zero is no accident.
Misses on purpose: runs that are so from their first step (a baseline or the limits tell), and slow declines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.detect.base import brief
from sentinel.core.frames import SeriesFrame
from sentinel.records import Band, Finding

FIRST = 5
"""Steps that make the run's own standard."""
IN_A_ROW = 3
ENTROPY_SHARE = 0.05
CLIPPED = 0.95
ENTROPY = "actor/entropy"
CLIP_RATIO = "response_length/clip_ratio"
GRAD_NORM = "actor/grad_norm"
ADVANTAGES = ("critic/advantages/max", "critic/advantages/min")


@dataclass(frozen=True)
class CollapseState:
    """Memory of one run."""

    steps: int = 0
    entropy: float = 0.0
    """Mean of the first steps."""
    clip_ratio: float = 0.0
    flat: int = 0
    """Steps in a row with nearly no entropy."""
    endless: int = 0
    dead: int = 0


@dataclass(frozen=True)
class CollapseDetector:
    """Collapse of the policy."""

    name: str = "collapse"

    def initial(self) -> CollapseState:
        """Nothing seen."""
        return CollapseState()

    def observe(self, state: CollapseState, look: Look) -> tuple[CollapseState, tuple[Finding, ...]]:
        """Judge one step."""
        frame = look.frame
        entropy, clipped, gradient = (_value(frame, key) for key in (ENTROPY, CLIP_RATIO, GRAD_NORM))
        if state.steps < FIRST:
            share = 1.0 / (state.steps + 1)
            return replace(
                state,
                steps=state.steps + 1,
                entropy=state.entropy + share * (np.nan_to_num(entropy) - state.entropy),
                clip_ratio=state.clip_ratio + share * (np.nan_to_num(clipped) - state.clip_ratio),
            ), ()
        flat = 0.0 <= entropy < ENTROPY_SHARE * state.entropy
        endless = clipped >= CLIPPED and state.clip_ratio < 0.5
        dead = gradient == 0.0 and not _no_advantage(frame)
        state = replace(
            state,
            flat=state.flat + 1 if flat else 0,
            endless=state.endless + 1 if endless else 0,
            dead=state.dead + 1 if dead else 0,
        )
        signs = (
            _Sign(
                ENTROPY,
                entropy,
                state.flat,
                IN_A_ROW,
                Band(ENTROPY_SHARE * state.entropy, np.inf),
                f"it began at {brief(state.entropy)}",
            ),
            _Sign(
                CLIP_RATIO,
                clipped,
                state.endless,
                IN_A_ROW,
                Band(-np.inf, CLIPPED),
                f"it began at {brief(state.clip_ratio)}: text no longer ends",
            ),
            _Sign(GRAD_NORM, gradient, state.dead, 1, Band(0.0, np.inf), "although there are advantages to learn from"),
        )
        return state, tuple(
            _finding(frame, sign) for sign in signs if sign.steps >= sign.least and not _judged(look, sign.key)
        )


@dataclass(frozen=True)
class _Sign:
    key: str
    value: float
    steps: int
    """Steps in a row that showed it."""
    least: int
    expected: Band
    why: str


def _value(frame: SeriesFrame, key: str) -> float:
    row = frame.index.rows.get(key)
    return float("nan") if row is None else float(frame.values[row])


def _no_advantage(frame: SeriesFrame) -> bool:
    """Whether all advantages are zero, or are not reported."""
    return all(np.nan_to_num(_value(frame, key)) == 0.0 for key in ADVANTAGES)


def _judged(look: Look, key: str) -> bool:
    return bool(np.isfinite(look.ratio[look.frame.index.rows[key]]))


def _finding(frame: SeriesFrame, sign: _Sign) -> Finding:
    lasted = "" if sign.steps == 1 else f" for {sign.steps} steps"
    return Finding(
        detector="collapse",
        metric=sign.key,
        step=frame.step,
        value=sign.value,
        expected=sign.expected,
        because=f"{sign.key} is {brief(sign.value)} at step {frame.step}{lasted}; {sign.why}.",
        stage="rollout" if sign.key == CLIP_RATIO else "actor_update",
        kind="collapse",
        score=2.0,
    )
