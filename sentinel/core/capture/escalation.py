# SPDX-License-Identifier: Apache-2.0
"""How deep a capture goes, as a table: each rung asks one question, and the next is climbed only where the answer left it open.

docs/captures.md prints RUNGS and NEXT; a test holds the page to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sentinel.records import CaptureOrder, Triage

UPDATES = frozenset({"actor_update", "critic_update"})
_MODULE_ENTRIES = ("Module", "Cell")


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One depth of dump."""

    question: str
    level: str
    """As msprobe names it; the first rung's may be changed in the settings."""
    task: str = "statistics"
    narrowed: bool = False
    """To the module that the rung before named, by msprobe's `list`."""
    stages: int = 1
    steps: int = 1
    one_rank: bool = False


RUNGS = {
    "modules": Rung(question="which module parts first?", level="L0", stages=2, steps=2),
    "origin": Rung(question="which module makes the first NaN or Inf?", level="L0", steps=2),
    "source": Rung(question="which operation of the module makes the NaN or Inf?", level="mix", narrowed=True),
    "operations": Rung(question="which operation of the module parts first?", level="mix", narrowed=True),
    "tensors": Rung(
        question="does an operation of the module compute what its own inputs and weights say?",
        level="mix",
        task="tensor",
        narrowed=True,
        one_rank=True,
    ),
}
FIRST = {False: "modules", True: "origin"}
"""Whether the incident is a NaN -> where it begins. A NaN needs no golden dump: the stage of its origin alone, then the operations
of the module that made it. Not the operations of the whole stage at once: under FSDP they read buffers that were never written."""

ANSWERS = {
    "operation": "an operation is named, or a module that is one operation",
    "module": "a module is named, none of its operations",
    "weights": "a weight is named: it differs before any operation",
    "cleared": "what was dumped equals the golden dump, or holds no NaN and no Inf",
    "suspected": "nothing proves anything, but a module stands out beside the run's own healthy dump",
    "nothing": "nothing could be compared",
}
SETTLED, ELSEWHERE, AGAIN = "settled", "elsewhere", "again"
AFTERWARDS = {
    SETTLED: "no further dump",
    ELSEWHERE: "the same rung on the stages that are not cleared, as often as `extensions` says",
    AGAIN: "the same rung at later steps, as often as `extensions` says: one of them may have a golden dump",
}
NEXT = {
    ("modules", "operation"): SETTLED,
    ("modules", "module"): "operations",
    ("modules", "weights"): SETTLED,
    ("modules", "cleared"): ELSEWHERE,
    ("modules", "suspected"): "tensors",
    ("modules", "nothing"): AGAIN,
    ("origin", "operation"): SETTLED,
    ("origin", "module"): "source",
    ("origin", "weights"): SETTLED,
    ("origin", "cleared"): SETTLED,
    ("origin", "suspected"): AGAIN,
    ("origin", "nothing"): AGAIN,
    ("source", "operation"): SETTLED,
    ("source", "module"): SETTLED,
    ("source", "weights"): SETTLED,
    ("source", "cleared"): SETTLED,
    ("source", "suspected"): SETTLED,
    ("source", "nothing"): SETTLED,
    ("operations", "operation"): SETTLED,
    ("operations", "module"): "tensors",
    ("operations", "weights"): SETTLED,
    ("operations", "cleared"): "tensors",
    ("operations", "suspected"): "tensors",
    ("operations", "nothing"): "tensors",
    ("tensors", "operation"): SETTLED,
    ("tensors", "module"): SETTLED,
    ("tensors", "weights"): SETTLED,
    ("tensors", "cleared"): SETTLED,
    ("tensors", "suspected"): SETTLED,
    ("tensors", "nothing"): SETTLED,
}


def rung_of(order: CaptureOrder, *, non_finite: bool) -> str:
    """The rung that an order stands on."""
    if order.task == "tensor":
        return "tensors"
    narrowed = "source" if non_finite else "operations"
    return narrowed if order.modules else FIRST[non_finite]


def answer_of(triage: Triage) -> str:
    """What a dump said, as the table counts it."""
    if triage.verdict in ("same", "clean"):
        return "cleared"
    first = triage.first
    if triage.verdict not in ("diverged", "non_finite") or first is None:
        return "suspected" if triage.suspects else "nothing"
    if first.direction == "parameters":
        return "weights"
    if first.operation:
        return "operation"
    return "module" if first.name.partition(".")[0] in _MODULE_ENTRIES else "operation"


def table() -> str:
    """The state machine as Markdown: rungs, then what follows each answer."""
    rungs = [
        f"| `{name}` | {rung.question} | {rung.level} {rung.task}{', the named module only' if rung.narrowed else ''} "
        f"| {rung.stages} | {rung.steps} | {'one' if rung.one_rank else 'as chosen'} |"
        for name, rung in RUNGS.items()
    ]
    answers = [
        f"| {said} | " + " | ".join(NEXT[rung, answer] for rung in RUNGS) + " |" for answer, said in ANSWERS.items()
    ]
    after = [f"- `{name}`: {said}." for name, said in AFTERWARDS.items()]
    return "\n".join(
        [
            "| Rung | Question | Dumped | Stages, at most | Steps, at most | Ranks |",
            "|---|---|---|---|---|---|",
            *rungs,
            "",
            "| After the answer | " + " | ".join(f"from `{rung}`" for rung in RUNGS) + " |",
            "|---|" + "---|" * len(RUNGS),
            *answers,
            "",
            *after,
        ]
    )
