# SPDX-License-Identifier: Apache-2.0
"""Whether a replay that was asked for happened, step by step.

Four witnesses, each of which may be silent: what lies in the recording's folder (or verl's log line), the time that the generation took, lengths beside the
recorded run's (exactly equal in a replay), and the text. verl says nothing when it falls back to generating.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

REPLAYED, NOT_REPLAYED, UNKNOWN = "replayed", "not_replayed", "unknown"
IN_A_ROW = 3
"""Steps in a row after which the time alone is believed."""
SWITCHES: Mapping[str, str] = {"v0": "rollout", "v1": "rollout_tq", "async": "async_rollout"}
"""Trainer -> the section of `skip` that it obeys; it ignores the others without a word."""
QUICK, SLOW = 0.15, 0.5
"""Time of a generation over that of the recorded run: below the first it was loaded, above the second generated."""
QUICK_PART, SLOW_PART = 0.03, 0.15
"""The same as parts of the step's time, where the recorded run's time is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayRequest:
    """What the configuration asks for."""

    section: str
    """rollout, rollout_tq or async_rollout."""
    steps: tuple[int, ...]
    folder: str
    action: str = "cache"
    obeyed: str = ""
    """The section that this trainer obeys; empty where not known."""

    @property
    def void(self) -> str | None:
        """Why verl will do nothing at all; None if it will."""
        if self.obeyed and self.section != self.obeyed:
            return f"skip.{self.section} is set, and this trainer obeys skip.{self.obeyed} only"
        if not self.steps:
            return f"skip.{self.section}.enable=True and skip.{self.section}.steps is empty: no step is recorded or replayed"
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEvidence:
    """What is known of the rollouts of one step."""

    step: int
    loaded: bool | None = None
    """They were loaded (True), or nothing was found and the run recorded what it generated (False)."""
    gen_seconds: float | None = None
    recorded_gen_seconds: float | None = None
    step_seconds: float | None = None
    lengths_equal: bool | None = None
    scores_equal: bool | None = None
    text_equal: bool | None = None


@dataclass(frozen=True, slots=True)
class StepProof:
    """The answer for one step, and the witnesses' words."""

    step: int
    verdict: str
    because: str
    sure: bool = True
    """False: only the time speaks, and a loaded machine may have been slow for once."""


def settled(proofs: Mapping[int, StepProof]) -> tuple[StepProof, ...]:
    """The steps that were not replayed beyond doubt: sure ones, and rows of steps that only the time speaks against."""
    bad = [proof for _, proof in sorted(proofs.items()) if proof.verdict == NOT_REPLAYED]
    doubtful = {proof.step for proof in bad if not proof.sure}
    found = []
    for proof in bad:
        first = proof.step
        while first - 1 in doubtful:
            first -= 1
        last = proof.step
        while last + 1 in doubtful:
            last += 1
        if proof.sure or last - first + 1 >= IN_A_ROW:
            found.append(proof)
    return tuple(found)


def request_of(config: Mapping[str, object], trainer: str | None) -> ReplayRequest | None:
    """What the run's configuration asks for; None where no section of `skip` is switched on."""
    skip = config.get("skip")
    if not isinstance(skip, Mapping):
        return None
    obeyed = SWITCHES.get(trainer or "", "")
    on = [n for n in SWITCHES.values() if isinstance(skip.get(n), Mapping) and _true(skip[n].get("enable"))]
    if not on:
        return None
    name = obeyed if obeyed in on else on[0]
    section = skip[name]
    assert isinstance(section, Mapping)
    steps = section.get("steps")
    return ReplayRequest(
        section=name,
        steps=tuple(int(s) for s in steps) if isinstance(steps, Sequence) and not isinstance(steps, str) else (),
        folder=str(section.get("dump_dir") or ""),
        action=str(section.get("action") or "cache"),
        obeyed=obeyed,
    )


def prove(evidence: StepEvidence) -> StepProof:
    """Hear the witnesses of one step; one that speaks against a replay outweighs those that speak for it."""
    against: list[str] = []
    for_it: list[str] = []
    if evidence.loaded is not None:
        (for_it if evidence.loaded else against).append(
            "a recording was loaded" if evidence.loaded else "no recording was found: the run wrote one itself"
        )
    if (told := _time(evidence)) is not None:
        (for_it if told[0] else against).append(told[1])
    for what, equal in (("lengths", evidence.lengths_equal), ("text", evidence.text_equal)):
        if equal is False:
            against.append(f"{what} differ from the recorded run's")
        elif equal:
            # Equal text alone proves nothing: a deterministic engine with equal weights writes it again.
            for_it.append(f"{what} equal the recorded run's")
    if against:
        sure = evidence.loaded is False or evidence.lengths_equal is False or evidence.text_equal is False
        return StepProof(evidence.step, NOT_REPLAYED, "; ".join(against), sure)
    strong = evidence.loaded or (told is not None and told[0]) or evidence.text_equal
    return StepProof(evidence.step, REPLAYED if strong else UNKNOWN, "; ".join(for_it) or "nothing is known of it")


def _time(evidence: StepEvidence) -> tuple[bool, str] | None:
    """Whether the time speaks for a replay, and what it is; None where it says nothing."""
    gen, recorded, whole = evidence.gen_seconds, evidence.recorded_gen_seconds, evidence.step_seconds
    if gen is None or gen != gen:  # noqa: PLR0124  # NaN
        return None
    if recorded:
        words = f"timing_s/gen is {gen:.3g} s, {recorded:.3g} s when it was recorded"
        part = gen / recorded
        return (True, words) if part < QUICK else (False, words) if part > SLOW else None
    if whole:
        words = f"timing_s/gen is {gen:.3g} s of a step of {whole:.3g} s"
        part = gen / whole
        return (True, words) if part < QUICK_PART else (False, words) if part > SLOW_PART else None
    return None


def _true(value: object) -> bool:
    return value is True or str(value).lower() == "true"
