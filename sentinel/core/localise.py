# SPDX-License-Identifier: Apache-2.0
"""Which stage broke: what moved and what held, read against the signature that a fault of each stage leaves at its first step.

Stages compute in the order of the data flow, so a fault moves its own evidence and what is computed from it, and nothing before it.
The signatures (`signatures.py`) are that rule, spelled out per stage, with the known exceptions. Only the first step counts: one
update later everything moves. For NaN the rule is applied as it stands: the first stage with a NaN of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sentinel.core.compare import Look
from sentinel.core.compare.learn import ENGINE
from sentinel.core.signatures import (
    FIRST_NOT_FINITE,
    GROUPS,
    NEVER_BY_CHANCE,
    OPEN,
    RECORDED,
    SETTLED,
    SIGNATURES,
    STRAY,
    SUDDEN,
)
from sentinel.records import STAGES, UNKNOWN_STAGE, Finding, Suspect

MOVED = 1.0
"""Deviation in tolerances from which a group has moved; below HELD it held; between them it says nothing."""
HELD = 0.5
HEAVY = 0.5
"""Share at which a metric that single tokens decide counts."""
UNSEEN = 0.2
"""Doubt about a stage whose own evidence is not reported."""
VAGUE = math.log(0.75)
"""Price of a group about which a signature says nothing: what explains everything explains little."""
OWN = 0.7
"""Chance from which a group is a stage's own evidence."""
ENGINE_EQUAL = 2.5e-7
"""Two units in the last place of float32."""
SHOWN = 3
LEAST = 0.03
"""Suspects below this confidence are not shown."""
CERTAIN = 0.9


def evidence_of(look: Look, findings: tuple[Finding, ...]) -> dict[str, float]:
    """How far each group of metrics is out, in tolerances, at this step; groups of which nothing is known are left out.

    The group `SUDDEN` has moved when a finding is of this step alone or of a jump too small for one step to tell, and held when all
    of them are of shifts that grew.
    """
    frame = look.frame
    index = frame.index
    furthest = np.full(len(index.groups), np.nan)
    np.fmax.at(furthest, index.group, look.measured * np.where(index.heavy, HEAVY, 1.0))
    out = {
        group: float(ratio)
        for group, ratio in zip(index.groups, furthest, strict=True)
        if group and not math.isnan(ratio)
    }
    for finding in findings:
        group = (
            frame.index.entries[frame.index.rows[finding.metric]].group if finding.metric in frame.index.rows else ""
        )
        if group:
            out[group] = max(out.get(group, 0.0), finding.score, MOVED)
    if _recorded(look):
        out[RECORDED] = 10.0
    if findings:
        rows = [frame.index.rows[finding.metric] for finding in findings if finding.metric in frame.index.rows]
        at_once = any(float(look.ratio[row]) > MOVED for row in rows) or any(finding.jumped for finding in findings)
        out[SUDDEN] = 10.0 if at_once else 0.0
    return out


def _recorded(look: Look) -> bool:
    """Whether the rollout engine's log-probs are those of the replayed run, bit for bit."""
    row = look.frame.index.rows.get(ENGINE[0])
    return row is not None and abs(float(look.deviation[row])) <= ENGINE_EQUAL


def localise(
    evidence: Mapping[str, float], findings: tuple[Finding, ...], *, replayed: bool = False
) -> tuple[Suspect, ...]:
    """Suspects by falling confidence; their confidences sum to at most 1.

    Under replay (`replayed`) lengths and scores are equal by construction, which free runs cannot say.

    Where no signature has anything to say, the stages that the catalogue names for the findings' metrics are taken.
    """
    told = {group: ratio for group, ratio in evidence.items() if group in GROUPS and not HELD <= ratio < MOVED}
    moved = [group for group, ratio in told.items() if ratio >= MOVED and group not in {SUDDEN, RECORDED}]
    best: dict[str, tuple[float, str]] = {}
    for signature in SIGNATURES:
        if signature.replay_only and not replayed:
            continue
        own = [group for group, chance in signature.moves.items() if chance > OPEN and group not in {SUDDEN, RECORDED}]
        if not any(group in evidence for group in own):
            continue  # This run has no such stage, or does not report it.
        if all(signature.moves.get(group, STRAY) < OPEN for group in moved):
            continue  # It explains nothing of what moved.
        unseen = sum(chance >= OWN and group not in told for group, chance in signature.moves.items())
        score = math.log(signature.prior) + unseen * math.log(UNSEEN)
        score += sum(_fit(_chance(group, signature.moves, replayed), ratio) for group, ratio in told.items())
        if score > best.get(signature.stage, (-math.inf, ""))[0]:
            best[signature.stage] = (score, signature.why)
    return _ranked(best) if best else _by_catalogue(findings)


def localise_not_finite(findings: tuple[Finding, ...], groups: Mapping[str, str]) -> tuple[Suspect, ...]:
    """The first stage along the data flow with a NaN of its own, and the next one that has one.

    Args:
        findings: about metrics that are not finite.
        groups: metric -> evidence group.
    """
    bad = {groups.get(finding.metric, "") for finding in findings}
    stages: dict[str, str] = {}
    for group, stage in FIRST_NOT_FINITE:
        if group not in bad or (group == "ref" and bad & {"pg", "old_new", "actor_logprob"}):
            # The distance to the reference is computed from the update's own log-probs, too.
            continue
        names = ", ".join(sorted(finding.metric for finding in findings if groups.get(finding.metric) == group)[:3])
        stages.setdefault(stage, f"the first along the data flow that is not finite: {names}")
    if not stages:
        return _by_catalogue(findings)
    shares = (CERTAIN, 0.07, 0.03)
    return tuple(
        Suspect(stage=stage, confidence=share, because=why if share == CERTAIN else "not finite as well, further along")
        for (stage, why), share in zip(stages.items(), shares, strict=False)
    )


def _ranked(best: Mapping[str, tuple[float, str]]) -> tuple[Suspect, ...]:
    top = max(score for score, _ in best.values())
    weights = {stage: math.exp(score - top) for stage, (score, _) in best.items()}
    total = sum(weights.values())
    ranked = sorted(weights, key=lambda stage: (-weights[stage], STAGES.index(stage)))
    return tuple(
        Suspect(stage=stage, confidence=round(weights[stage] / total, 3), because=best[stage][1])
        for stage in ranked[:SHOWN]
        if weights[stage] / total >= LEAST
    )


def _chance(group: str, moves: Mapping[str, float], replayed: bool) -> float:
    """Chance that a group moves under a signature."""
    stray = NEVER_BY_CHANCE.get(group, STRAY) if replayed or group in SETTLED else STRAY
    return moves.get(group, stray)


def _fit(chance: float, ratio: float) -> float:
    """Log-probability of what a group did; a far move weighs more than a near one."""
    if chance == OPEN:
        return VAGUE
    if ratio < HELD:
        return math.log(1.0 - chance)
    weight = min(1.0, 0.5 + 0.5 * math.log10(max(ratio, 1.0)))
    return weight * math.log(chance)


def _by_catalogue(findings: tuple[Finding, ...]) -> tuple[Suspect, ...]:
    stages = [finding.stage for finding in findings if finding.stage != UNKNOWN_STAGE]
    if not stages:
        return (Suspect(stage=UNKNOWN_STAGE, confidence=0.0, because="the catalogue names no stage for these metrics"),)
    first = min(stages, key=STAGES.index)
    return (Suspect(stage=first, confidence=0.5, because="first along the data flow among the metrics concerned"),)
