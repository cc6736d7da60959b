# SPDX-License-Identifier: Apache-2.0
"""The answer of the decisive experiment: both sides trained on the same generated text; where is the fault?

If rewards, pg_loss and grad_norm then agree, training is sound and the fault is in inference; if not, it is in training, in the
first stage that parts. Nothing is decided where the inputs were not equal. Agreement is within the tolerances of the
comparison, which twins widen: V1 composes its mini-batches in another order from run to run, so that pg_loss and grad_norm
of a healthy replay part by percents there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sentinel.records import UNKNOWN_STAGE, Chart, Incident

INFERENCE, TRAINING, UNDECIDED = "inference", "training", "undecided"
INPUTS = ("prompt_length/mean", "response_length/mean", "critic/score/mean")
OUTCOMES = ("critic/rewards/mean", "actor/pg_loss", "actor/grad_norm")
METRICS = (*INPUTS, *OUTCOMES)
EQUAL = 1e-6
_INPUT_STAGES = frozenset({"data", "config"})
_NEXT = (
    "look next at the inference side: the weights that the engine received after an update (weight sync, resharding, "
    "load_format), then its forward pass on the same tokens, then sampling settings"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """Which side, and why."""

    side: str
    """inference, training, or undecided."""
    stage: str
    """`rollout`, the first stage of training that parts, or unknown."""
    because: str
    evidence: tuple[str, ...] = ()
    equal_up_to_step: int | None = None


def decide(regime: str, incidents: Sequence[Incident], charts: Sequence[Chart]) -> Decision:
    """Read the answer off a comparison.

    Args:
        regime: of the comparison: replayed, free, alone or unknown.
        incidents: of the run.
        charts: of `METRICS`, beside the baseline.
    """
    evidence = tuple(filter(None, (_told(chart) for chart in charts if chart.metric in OUTCOMES)))
    first = min(incidents, key=lambda i: (i.opened_at_step, i.severity != "critical"), default=None)
    if regime != "replayed":
        return _without_replay(regime, first, evidence)
    equal = _equal_up_to(charts)
    inputs = "inputs (prompts, lengths, scores)"
    told = f"{inputs} equal up to step {equal}" if equal is not None else f"{inputs} are not reported"
    if first is not None and first.stage in _INPUT_STAGES:
        why = f"the inputs are not the baseline's from step {first.opened_at_step} on ({first.stage}): nothing can be decided"
        return Decision(side=UNDECIDED, stage=first.stage, because=why, evidence=evidence, equal_up_to_step=equal)
    if first is not None and first.stage not in {"rollout", UNKNOWN_STAGE}:
        why = f"{told}, and {first.stage} parts at step {first.opened_at_step}: the fault is in training, first stage {first.stage}"
        return Decision(side=TRAINING, stage=first.stage, because=why, evidence=evidence, equal_up_to_step=equal)
    if first is not None and first.stage == "rollout":
        why = f"{told}; {_where(first.opened_at_step, equal)}: the fault is in inference; {_NEXT}"
        return Decision(side=INFERENCE, stage="rollout", because=why, evidence=evidence, equal_up_to_step=equal)
    if first is not None or not evidence or equal is None:
        why = (
            f"{told}, and what parts names no stage"
            if first
            else f"{told}; rewards, pg_loss and grad_norm: not all reported"
        )
        return Decision(side=UNDECIDED, stage=UNKNOWN_STAGE, because=why, evidence=evidence, equal_up_to_step=equal)
    why = (
        f"{told}, and rewards, pg_loss and grad_norm agree within tolerance: training is sound. If runs that generate for "
        f"themselves differ, {_NEXT}"
    )
    return Decision(side=INFERENCE, stage="rollout", because=why, evidence=evidence, equal_up_to_step=equal)


def _where(step: int, equal: int | None) -> str:
    if equal is not None and equal < step:
        return f"from step {step} on the rollouts themselves are other ones (the run generated them), and what changed first is the text"
    return f"at step {step} only the comparison of rollout engine and trainer parts, the trainer's own numbers hold"


def _without_replay(regime: str, first: Incident | None, evidence: tuple[str, ...]) -> Decision:
    if regime not in {"free", "alone"} or first is None:
        why = "the run was not compared on the baseline's rollouts: train on them (sentinel stub replay) to tell the sides apart"
        return Decision(side=UNDECIDED, stage=UNKNOWN_STAGE, because=why, evidence=evidence)
    if first.stage == "rollout":
        why = (
            f"without a replay: step {first.opened_at_step} points at rollout; {_NEXT}. A replay of the baseline's rollouts "
            "decides it (sentinel stub replay)"
        )
        return Decision(side=INFERENCE, stage="rollout", because=why, evidence=evidence)
    why = (
        f"without a replay: step {first.opened_at_step} points at {first.stage}; a replay of the baseline's rollouts decides it "
        "(sentinel stub replay)"
    )
    return Decision(side=UNDECIDED, stage=first.stage, because=why, evidence=evidence)


def _equal_up_to(charts: Sequence[Chart]) -> int | None:
    """The last step up to which all inputs are exactly equal; 0 where the first already parts, None where none is known."""
    parted: list[int] = []
    seen: list[int] = []
    for chart in charts:
        if chart.metric not in INPUTS:
            continue
        for step, value, reference in zip(chart.steps, chart.values, chart.reference, strict=True):
            if math.isnan(value) or math.isnan(reference):
                continue
            seen.append(step)
            if abs(value - reference) > EQUAL * max(1.0, abs(reference)):
                parted.append(step)
    if not seen:
        return None
    return max((step for step in seen if step < min(parted)), default=0) if parted else max(seen)


def _told(chart: Chart) -> str:
    """How far a metric lies from the baseline at worst, beside what was allowed."""
    worst: tuple[float, int, float, float] | None = None
    for step, value, reference, low, high in zip(
        chart.steps, chart.values, chart.reference, chart.low, chart.high, strict=True
    ):
        allowed = max(high - reference, reference - low)
        if math.isnan(value) or math.isnan(reference) or not math.isfinite(allowed):
            continue
        ratio = abs(value - reference) / allowed if allowed > 0 else 0.0
        if worst is None or ratio > worst[0]:
            worst = (ratio, step, value, reference)
    if worst is None:
        return ""
    ratio, step, value, reference = worst
    return f"{chart.metric}: furthest at step {step}, {value:.5g} beside {reference:.5g} ({ratio:.2f} of the tolerance)"
