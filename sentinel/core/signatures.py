# SPDX-License-Identifier: Apache-2.0
"""The signatures of faults: which groups of metrics a fault of each stage moves at its first step, and how likely.

What a signature does not name holds. Groups are the catalogue's; Two more are made up here: `SUDDEN`, the departure
came within one step; `RECORDED`, the rollout engine's log-probs are the recorded ones, so that a gap is the trainer's side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SUDDEN = "(sudden)"
RECORDED = "(recorded)"
SURE, LIKELY, OPEN, RARE, STRAY = 0.95, 0.8, 0.5, 0.2, 0.06
"""Chances that a group moves. OPEN means: either way, it says nothing."""
NEVER_BY_CHANCE = {"prompt": 1e-4, "control": 1e-4, "length": 0.01, "score": 0.02}
"""Groups that are equal by construction in a replay where no fault touches them."""
SETTLED = frozenset({"prompt", "control"})
"""Those of them that are equal in free runs of one recipe, too."""


@dataclass(frozen=True)
class Signature:
    """What a fault of one stage leaves behind at its first step."""

    stage: str
    why: str
    moves: Mapping[str, float]
    """Group -> chance that it moves."""
    prior: float = 1.0
    replay_only: bool = False
    """Makes sense only where the responses should be the recorded ones."""


def _open(*groups: str) -> dict[str, float]:
    return dict.fromkeys(groups, OPEN)


_EITHER_WAY = _open(SUDDEN, RECORDED)
_AFTER_ADVANTAGE = _open("loss", "actor_grad", "variance", "critic_loss", "critic_grad", "explained", *_EITHER_WAY)
_LOSS = _open("loss", "actor_grad", "variance", *_EITHER_WAY)
_ANYTHING = _open(
    *(
        "score",
        "reward",
        "rollout_logprob",
        "actor_logprob",
        "gap",
        "ref",
        "penalty",
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
        "length",
    ),
    SUDDEN,
)

SIGNATURES = (
    Signature("data", "the prompts themselves differ", {**_ANYTHING, "prompt": SURE}),
    Signature(
        "data",
        "the responses belong to other prompts: text and score moved together",
        {**_ANYTHING, "score": LIKELY, "rollout_logprob": SURE, "actor_logprob": SURE, "prompt": OPEN, "length": STRAY},
        prior=0.4,
        replay_only=True,
    ),
    Signature("config", "a setting left its schedule", {**_ANYTHING, "control": SURE}),
    Signature(
        "config", "the responses are not the recorded ones", {**_ANYTHING, "length": SURE}, prior=0.3, replay_only=True
    ),
    Signature(
        "rollout",
        "only the comparison of rollout engine and trainer moved; the trainer's own numbers held",
        {"gap": SURE, "rollout_logprob": OPEN, "validation": OPEN, "moe": OPEN, SUDDEN: OPEN, RECORDED: 0.02},
    ),
    Signature(
        "rollout",
        "the sampled text changed, and what is computed from it",
        {**_ANYTHING, "length": LIKELY, "rollout_logprob": LIKELY, "actor_logprob": LIKELY, "old_new": RARE},
        prior=0.7,
    ),
    Signature(
        "rollout",
        "text of the same length became another",
        {**_ANYTHING, "score": OPEN, "rollout_logprob": SURE, "actor_logprob": SURE, "length": STRAY, "old_new": RARE},
    ),
    Signature(
        "compute_rm_score",
        "the score moved while text and log-probs held",
        {**_AFTER_ADVANTAGE, "score": SURE, "reward": LIKELY, "advantage": LIKELY, "pg": LIKELY},
    ),
    Signature(
        "actor_compute_log_prob",
        "the old log-probs moved against both the rollout engine and the update, while the reference held",
        {**_LOSS, "actor_logprob": LIKELY, "gap": LIKELY, "old_new": 0.7, "pg": OPEN, SUDDEN: SURE},
    ),
    Signature(
        "actor_compute_log_prob",
        "the old log-probs moved, and with them the penalty inside the reward",
        {
            **_AFTER_ADVANTAGE,
            "actor_logprob": LIKELY,
            "gap": LIKELY,
            "old_new": 0.7,
            "penalty": LIKELY,
            "reward": OPEN,
            "advantage": OPEN,
            "pg": OPEN,
            SUDDEN: SURE,
        },
    ),
    Signature(
        "actor_compute_log_prob",
        "the trainer's log-probs moved against the rollout engine, in the update too",
        {**_LOSS, "actor_logprob": SURE, "gap": SURE, "entropy_loss": OPEN, "ref": OPEN, "pg": OPEN, SUDDEN: SURE},
        prior=0.5,
    ),
    Signature(
        "ref_compute_log_prob",
        "only the distance to the reference moved; the policy's own numbers held",
        {**_LOSS, "ref": SURE},
    ),
    Signature(
        "ref_compute_log_prob",
        "the penalty inside the reward moved while scores and log-probs held",
        {**_AFTER_ADVANTAGE, "penalty": SURE, "reward": LIKELY, "advantage": OPEN, "pg": OPEN, "ref": OPEN},
    ),
    Signature(
        "compute_values",
        "the values moved while the critic's update still agrees",
        {**_AFTER_ADVANTAGE, "values": 0.7, "explained": LIKELY, "advantage": OPEN, "pg": OPEN, "vpred": STRAY},
    ),
    Signature(
        "advantage",
        "the advantages moved while scores and values held",
        {**_AFTER_ADVANTAGE, "advantage": SURE, "pg": LIKELY, "explained": RARE},
    ),
    Signature(
        "critic_update",
        "the critic's update moved while values and policy held",
        {"critic_loss": OPEN, "critic_grad": SURE, "vpred": OPEN, "explained": OPEN, **_EITHER_WAY},
    ),
    Signature(
        "critic_update",
        "only the critic's loss moved",
        {"critic_loss": SURE, "vpred": OPEN, "critic_grad": RARE, **_EITHER_WAY},
    ),
    Signature(
        "critic_update",
        "the critic's weights moved otherwise one step earlier",
        {**_AFTER_ADVANTAGE, "values": LIKELY, "vpred": LIKELY, "advantage": OPEN, "pg": OPEN},
        prior=0.8,
    ),
    Signature(
        "actor_update",
        "the update's log-probs moved against the old ones, which held",
        {**_LOSS, "pg": LIKELY, "old_new": SURE, "entropy_loss": OPEN, "ref": OPEN},
    ),
    Signature(
        "actor_update",
        "the loss held and the gradient moved: backward pass or communication",
        {"actor_grad": SURE, "variance": OPEN, "skipped": OPEN, **_EITHER_WAY},
    ),
    Signature(
        "actor_update",
        "updates are skipped",
        {"skipped": SURE, "actor_grad": OPEN, "loss": OPEN, "loss_scale": OPEN, **_EITHER_WAY},
    ),
    Signature(
        "actor_update",
        "the loss moved while its inputs held",
        {"pg": LIKELY, "loss": LIKELY, "actor_grad": OPEN, "entropy_loss": OPEN, "variance": OPEN, **_EITHER_WAY},
        prior=0.7,
    ),
    Signature(
        "actor_update",
        "the weights moved otherwise in earlier updates: old and new log-probs agree, both leave the baseline",
        {
            **_LOSS,
            **_open(
                "ref", "penalty", "reward", "entropy_loss", "pg", "rollout_logprob", "advantage", "values", "explained"
            ),
            "actor_logprob": LIKELY,
            "gap": OPEN,
            SUDDEN: 0.35,
            "old_new": 0.3,
        },
    ),
)
GROUPS = {group for signature in SIGNATURES for group in signature.moves}

FIRST_NOT_FINITE = (
    ("prompt", "data"),
    ("length", "rollout"),
    ("rollout_logprob", "rollout"),
    ("score", "compute_rm_score"),
    ("actor_logprob", "actor_compute_log_prob"),
    ("gap", "actor_compute_log_prob"),
    ("penalty", "ref_compute_log_prob"),
    ("ref", "ref_compute_log_prob"),
    ("reward", "ref_compute_log_prob"),
    ("values", "compute_values"),
    ("explained", "compute_values"),
    ("advantage", "advantage"),
    ("critic_loss", "critic_update"),
    ("vpred", "critic_update"),
    ("critic_grad", "critic_update"),
    ("old_new", "actor_update"),
    ("pg", "actor_update"),
    ("entropy_loss", "actor_update"),
    ("loss", "actor_update"),
    ("actor_grad", "actor_update"),
)
"""Group -> stage that is to blame when it is the first of this order that is not finite."""
