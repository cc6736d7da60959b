# SPDX-License-Identifier: Apache-2.0
"""What the workers answered, as the RECEIPT form of the command-line contract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sentinel.trainer.orders import Order

RECORDING = "recording"
"""Outcome of a receipt that tells of finished steps while the order goes on."""


class ReceiptBook:
    """Collects the answers of one order, step by step."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.steps: list[int] = []
        self.stages: dict[str, None] = {}
        self.ranks: set[int] = set()
        self.paths: dict[str, None] = {}
        self.bytes = 0
        self.seconds = 0.0
        self.problems: list[str] = []
        self.missing: dict[str, None] = {}

    def add(self, step: int, answers: Iterable[Mapping[str, Any]], problems: Iterable[str]) -> None:
        """Note what the ranks dumped at one step."""
        self.steps.append(step)
        self.problems += [problem for problem in problems if problem not in self.problems]
        dumped: set[str] = set()
        spent = [0.0]
        for answer in answers:
            for stage, entry in answer["stages"].items():
                if entry.get("path") and stage in self.order.stages:
                    dumped.add(stage)
                    self.bytes += int(entry.get("bytes", 0))
                    self.ranks.add(int(answer.get("rank", 0)))
                    self.stages[stage] = None
                    self.paths[entry["path"]] = None
            of_stages = {stage: float(entry.get("seconds", 0.0)) for stage, entry in answer["stages"].items()}
            beside = max(0.0, float(answer.get("seconds", 0.0)) - sum(of_stages.values()))
            spent.append(beside + sum(time for stage, time in of_stages.items() if stage in self.order.stages))
        # Ranks work side by side; the slowest one is what the step took.
        self.seconds += max(spent)
        for stage in self.order.stages:
            if stage not in dumped:
                self.missing[f"{stage} at step {step}"] = None

    def receipt(self, *, finished: bool) -> dict[str, Any]:
        """The receipt as of now."""
        why = list(self.problems)
        if self.missing:
            why.append("not dumped: " + ", ".join(self.missing))
        if self.steps and self.steps[0] != self.order.asked_first_step:
            why.append(
                f"ordered for step {self.order.asked_first_step}, "
                f"the order took effect at the next boundary: step {self.steps[0]}"
            )
        if not self.paths:
            outcome = "failed" if self.steps else "skipped"
        elif self.missing or self.problems:
            outcome = "partial"
        else:
            outcome = "complete"
        return {
            "first_step": self.steps[0] if self.steps else self.order.first_step,
            "last_step": self.steps[-1] if self.steps else self.order.last_step,
            "stages": list(self.stages),
            "ranks": sorted(self.ranks),
            "paths": list(self.paths),
            "bytes": self.bytes,
            "seconds": round(self.seconds, 6),
            "outcome": outcome if finished or not self.paths else RECORDING,
            "why": "; ".join(why),
        }


def ended(order: Order, outcome: str, why: str) -> dict[str, Any]:
    """A receipt for an order of which nothing was dumped."""
    return {
        "first_step": order.first_step,
        "last_step": order.last_step,
        "stages": [],
        "ranks": [],
        "paths": [],
        "bytes": 0,
        "seconds": 0.0,
        "outcome": outcome,
        "why": why,
    }
