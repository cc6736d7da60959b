# SPDX-License-Identifier: Apache-2.0
"""What would make the sides agree: hydra overrides and export lines, from the differences that a machine can mend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sentinel.core.checklist.configuration import ABSENT
from sentinel.core.checklist.result import FAIL, WARN, CheckResult

_BY_OVERRIDE = ("config.explicit", "config.effective", "data.shuffle", "rollout.load_format", "rollout.logprobs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mending:
    """Printed, never carried out."""

    overrides: tuple[str, ...]
    exports: tuple[str, ...]
    by_hand: tuple[str, ...]
    """What no override and no variable can mend."""


def mending(results: Sequence[CheckResult]) -> Mending:
    """Return what to write into the launch, and what is left to do by hand."""
    overrides: dict[str, None] = {}
    exports: dict[str, None] = {}
    by_hand: dict[str, None] = {}
    for result in results:
        for difference in result.differences:
            if difference.status not in (FAIL, WARN) or not difference.fix:
                continue
            here = "(baseline)" not in difference.what
            if result.id in _BY_OVERRIDE and here and difference.expected != ABSENT:
                overrides[difference.fix] = None
            elif result.id == "determinism.env":
                exports[difference.fix] = None
            else:
                by_hand[f"{difference.what}: {difference.fix}"] = None
        if result.status in (FAIL, WARN) and result.fix and not result.differences:
            by_hand[f"{result.id}: {result.fix}"] = None
    return Mending(overrides=tuple(overrides), exports=tuple(exports), by_hand=tuple(by_hand))
