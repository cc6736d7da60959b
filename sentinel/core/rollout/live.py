# SPDX-License-Identifier: Apache-2.0
"""The text of a run's steps, one after the other, beside the baseline's own share: a finding, or what is not known.

Without a baseline a fifth of the rows must be bad; with one the share must exceed the baseline's by a tenth and by more than
chance does. Where the baseline's own text is no language, nothing can be told and nothing is reported but that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sentinel.core.rollout.rows import HEALTHY, StepText, Tally
from sentinel.core.rollout.side import Circumstances, Side, side_of
from sentinel.records import Band, Finding, Suspect

DETECTOR = "rollout_text"
METRIC = "rollout/bad_text_share"
ALONE = 0.2
BEYOND = 0.1
DEVIATIONS = 4.0
NO_LANGUAGE = 0.5
LEAST_ROWS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class TextJudgement:
    """What is said of one step's text."""

    verdict: str
    """healthy, garbled, repetitive, empty, or unknown."""
    share: float
    finding: Finding | None = None
    suspects: tuple[Suspect, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: str = ""
    """Why nothing can be told."""


def judge(step: int, text: StepText, baseline: Tally | None, around: Circumstances) -> TextJudgement:
    """Judge the text of a step.

    Args:
        step: the trainer's step.
        text: what its rows are.
        baseline: the rows of the baseline, all steps together; None where none are at hand.
        around: what else is known of the run.
    """
    tally = text.tally
    if baseline is not None and baseline.rows and baseline.share >= NO_LANGUAGE:
        why = (
            f"the baseline's own rollouts are no language ({baseline.bad} of {baseline.rows} rows, "
            f"{baseline.verdict()}): whether this run's text is sound cannot be told"
        )
        return TextJudgement(verdict="unknown", share=tally.share, unknown=why)
    usual = 0.0 if baseline is None else baseline.share
    limit = _limit(tally.rows, baseline)
    if tally.rows < LEAST_ROWS or tally.share < limit:
        return TextJudgement(verdict=HEALTHY, share=tally.share)
    verdict = max((kind for kind in tally.counts if kind != "ok"), key=lambda kind: tally.counts[kind])
    side = side_of(step, verdict, around)
    beside = "" if baseline is None else f", the baseline has {usual:.0%}"
    example = f"; e.g. row {text.worst[0].place}: {text.worst[0].why}" if text.worst else ""
    finding = Finding(
        detector=DETECTOR,
        metric=METRIC,
        step=step,
        value=tally.share,
        expected=Band(low=0.0, high=limit),
        because=f"{tally.bad} of {tally.rows} rollouts of step {step} are {_words(tally)}{beside}{example}.",
        stage=side.suspects[0].stage,
        kind="collapse",
        score=10.0 * tally.share / max(limit, 0.01),
    )
    return TextJudgement(
        verdict=verdict, share=tally.share, finding=finding, suspects=side.suspects, notes=_notes(side)
    )


def _limit(rows: int, baseline: Tally | None) -> float:
    if baseline is None or not baseline.rows:
        return ALONE
    usual = (baseline.bad + 1) / (baseline.rows + 2)
    chance = DEVIATIONS * math.sqrt(usual * (1 - usual) / max(rows, 1))
    return min(0.95, max(BEYOND + baseline.share, usual + chance))


def _words(tally: Tally) -> str:
    bad = sorted(((n, kind) for kind, n in tally.counts.items() if kind != "ok"), reverse=True)
    return " or ".join(kind for _, kind in bad)


def _notes(side: Side) -> tuple[str, ...]:
    return (f"What to compare: {side.compare}", *side.notes)
