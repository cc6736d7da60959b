# SPDX-License-Identifier: Apache-2.0
"""Which stage broke: what moved and what held, read against the signature that a fault of each stage leaves at its first step.

A signature says for each group of metrics (catalogue field `group`) how likely it moves; what is not named holds. Stages compute in the
order of the data flow, so a fault moves its own evidence and what is computed from it, and nothing before it: the signatures are that
rule, spelled out per stage, with the known exceptions. Only the first step counts: one update later everything moves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sentinel.core.compare import Look
from sentinel.records import STAGES, UNKNOWN_STAGE, Finding, Suspect

MOVED = 1.0
"""Deviation in tolerances from which a group has moved; below HELD it held; between them it says nothing."""
HELD = 0.5
STRAY = 0.06
"""Probability that a group moves although the fault does not touch it."""
UNSEEN = 0.2
"""Doubt about a stage whose own evidence is not reported."""
SHOWN = 3
LEAST = 0.03
"""Suspects below this confidence are not shown."""


@dataclass(frozen=True)
class Signature:
    """What a fault of one stage leaves behind at its first step."""

    stage: str
    why: str
    moves: Mapping[str, float]
    """Group -> probability that it moves."""
    prior: float = 1.0


SURE, LIKELY, MAYBE = 0.95, 0.8, 0.5
_DOWNSTREAM = {"loss": MAYBE, "actor_grad": MAYBE, "variance": MAYBE}
_ANYTHING = dict.fromkeys(
    (
        *(
            "length",
            "score",
            "reward",
            "rollout_logprob",
            "actor_logprob",
            "gap",
            "ref",
            "old_new",
            "values",
            "explained",
            "vpred",
        ),
        *(
            "advantage",
            "critic_loss",
            "critic_grad",
            "pg",
            "loss",
            "entropy_loss",
            "actor_grad",
            "variance",
            "balance",
            "moe",
        ),
    ),
    MAYBE,
)

SIGNATURES = (
    Signature("data", "the prompts themselves differ", {**_ANYTHING, "prompt": SURE}),
    Signature("config", "a setting left its schedule", {**_ANYTHING, "control": SURE}),
    Signature("config", "the responses are not the recorded ones", {**_ANYTHING, "length": SURE}, prior=0.5),
    Signature(
        "rollout",
        "only the comparison of rollout engine and trainer moved; the trainer's own numbers held",
        {"gap": SURE, "rollout_logprob": MAYBE, "validation": MAYBE, "moe": MAYBE},
    ),
    Signature(
        "rollout",
        "the sampled text changed, and what is computed from it",
        {**_ANYTHING, "length": LIKELY, "rollout_logprob": LIKELY, "actor_logprob": LIKELY, "score": MAYBE, "old_new": 0.2, "values": MAYBE},
        prior=0.7,
    ),
    Signature(
        "compute_rm_score",
        "the score moved while text and log-probs held",
        {
            **_DOWNSTREAM,
            "score": SURE, "reward": LIKELY, "advantage": LIKELY, "pg": LIKELY, "explained": MAYBE,
            "critic_loss": MAYBE, "critic_grad": MAYBE,
        },
    ),
    Signature(
        "actor_compute_log_prob",
        "the old log-probs moved against both the rollout engine and the update, while the reference held",
        {**_DOWNSTREAM, "actor_logprob": SURE, "gap": LIKELY, "old_new": LIKELY, "pg": MAYBE, "reward": 0.2, "entropy_loss": STRAY},
    ),
    Signature(
        "actor_compute_log_prob",
        "the trainer's log-probs moved against the rollout engine, in the update too",
        {**_DOWNSTREAM, "actor_logprob": SURE, "gap": SURE, "entropy_loss": MAYBE, "ref": MAYBE, "pg": MAYBE},
        prior=0.5,
    ),
    Signature(
        "ref_compute_log_prob",
        "only the distance to the reference moved; the policy's own numbers held",
        {**_DOWNSTREAM, "ref": SURE, "reward": 0.3, "advantage": 0.2},
    ),
    Signature(
        "compute_values",
        "the values moved while the critic's update still agrees",
        {
            **_DOWNSTREAM,
            "values": SURE, "explained": LIKELY, "advantage": LIKELY, "critic_loss": MAYBE, "critic_grad": MAYBE,
            "pg": MAYBE, "vpred": 0.15,
        },
    ),
    Signature(
        "advantage",
        "the advantages moved while scores and values held",
        {**_DOWNSTREAM, "advantage": SURE, "pg": LIKELY, "critic_loss": MAYBE, "critic_grad": MAYBE, "explained": MAYBE},
    ),
    Signature(
        "critic_update",
        "the critic's update moved while values and policy held",
        {"critic_loss": LIKELY, "critic_grad": SURE, "vpred": MAYBE, "explained": 0.3},
    ),
    Signature("actor_update", "updates are skipped", {"skipped": SURE, "actor_grad": LIKELY, "loss": MAYBE, "loss_scale": LIKELY}),
    Signature("critic_update", "only the critic's loss moved", {"critic_loss": SURE, "vpred": MAYBE, "critic_grad": 0.3}),
    Signature(
        "critic_update",
        "the critic's weights moved otherwise one step earlier",
        {
            **_DOWNSTREAM,
            "values": SURE, "vpred": SURE, "explained": LIKELY, "critic_loss": LIKELY, "critic_grad": MAYBE,
            "advantage": LIKELY, "pg": MAYBE,
        },
        prior=0.7,
    ),
    Signature(
        "actor_update",
        "the update's log-probs moved against the old ones, which held",
        {"pg": LIKELY, "old_new": SURE, "entropy_loss": MAYBE, "ref": LIKELY, "loss": LIKELY, "actor_grad": LIKELY, "variance": MAYBE},
    ),
    Signature("actor_update", "the loss held and the gradient moved: backward pass or communication", {"actor_grad": SURE, "variance": MAYBE}),
    Signature("actor_update", "the loss moved while its inputs held", {"pg": LIKELY, "loss": LIKELY, "actor_grad": LIKELY, "entropy_loss": MAYBE, "variance": MAYBE}, prior=0.7),
    Signature(
        "actor_update",
        "the weights moved otherwise one step earlier: old and new log-probs agree, both differ from the baseline",
        {**_DOWNSTREAM, "actor_logprob": SURE, "ref": LIKELY, "gap": MAYBE, "entropy_loss": MAYBE, "pg": MAYBE, "rollout_logprob": 0.3},
        prior=0.8,
    ),
)  # fmt: skip


def evidence_of(look: Look, findings: tuple[Finding, ...]) -> dict[str, float]:
    """How far each group of metrics is out, in tolerances, at this step; groups of which nothing is known are left out.

    Metrics that single tokens decide speak for their group only where nothing steadier does.
    """
    steady: dict[str, float] = {}
    heavy: dict[str, float] = {}
    frame = look.frame
    for row, entry in enumerate(frame.index.entries):
        ratio = float(look.ratio[row])
        if entry.group and not math.isnan(ratio):
            into = heavy if entry.heavy else steady
            into[entry.group] = max(into.get(entry.group, 0.0), ratio)
    out = {**heavy, **steady}
    for finding in findings:
        group = (
            frame.index.entries[frame.index.rows[finding.metric]].group if finding.metric in frame.index.rows else ""
        )
        if group:
            out[group] = max(out.get(group, 0.0), finding.score, MOVED)
    return out


def not_finite_evidence(look: Look) -> dict[str, float]:
    """The same where NaN is the question: finite groups held, others moved beyond measure."""
    out: dict[str, float] = {}
    frame = look.frame
    finite = frame.finite
    for row, entry in enumerate(frame.index.entries):
        if entry.group and entry.evidence and frame.present[row]:
            out[entry.group] = max(out.get(entry.group, 0.0), 0.0 if finite[row] else 1000.0)
    return out


def localise(evidence: Mapping[str, float], findings: tuple[Finding, ...]) -> tuple[Suspect, ...]:
    """Suspects by falling confidence; their confidences sum to at most 1.

    Where no signature has anything to say, the stages that the catalogue names for the findings' metrics are taken.
    """
    told = {group: ratio for group, ratio in evidence.items() if group in _GROUPS and not HELD <= ratio < MOVED}
    if not any(ratio >= MOVED for ratio in told.values()):
        return _by_catalogue(findings)
    moved = [group for group, ratio in told.items() if ratio >= MOVED]
    best: dict[str, tuple[float, str]] = {}
    for signature in SIGNATURES:
        if all(signature.moves.get(group, STRAY) < MAYBE for group in moved):
            continue  # It explains nothing of what moved.
        unseen = sum(chance >= SURE and group not in told for group, chance in signature.moves.items())
        score = math.log(signature.prior) + unseen * math.log(UNSEEN)
        score += sum(_fit(signature.moves.get(group, STRAY), ratio) for group, ratio in told.items())
        if score > best.get(signature.stage, (-math.inf, ""))[0]:
            best[signature.stage] = (score, signature.why)
    if not best:
        return _by_catalogue(findings)
    top = max(score for score, _ in best.values())
    weights = {stage: math.exp(score - top) for stage, (score, _) in best.items()}
    total = sum(weights.values())
    ranked = sorted(weights, key=lambda stage: (-weights[stage], STAGES.index(stage)))
    return tuple(
        Suspect(stage=stage, confidence=round(weights[stage] / total, 3), because=best[stage][1])
        for stage in ranked[:SHOWN]
        if weights[stage] / total >= LEAST
    )


_GROUPS = {group for signature in SIGNATURES for group in signature.moves}


def _fit(probability: float, ratio: float) -> float:
    """Log-probability of what a group did; a far move weighs more than a near one."""
    if ratio < HELD:
        return math.log(1.0 - probability)
    weight = min(1.0, 0.5 + 0.5 * math.log10(max(ratio, 1.0)))
    return weight * math.log(probability)


def _by_catalogue(findings: tuple[Finding, ...]) -> tuple[Suspect, ...]:
    stages = [finding.stage for finding in findings if finding.stage != UNKNOWN_STAGE]
    if not stages:
        return (Suspect(stage=UNKNOWN_STAGE, confidence=0.0, because="the catalogue names no stage for these metrics"),)
    first = min(stages, key=STAGES.index)
    return (Suspect(stage=first, confidence=0.5, because="first along the data flow among the metrics that moved"),)
