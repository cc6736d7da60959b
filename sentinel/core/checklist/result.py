# SPDX-License-Identifier: Apache-2.0
"""What a check answers: a status, what was found and expected, why it matters, how to mend it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PASS = "pass"  # noqa: S105  # a status, no password
WARN = "warn"
UNKNOWN = "unknown"
FAIL = "fail"
# The worst decides: what was not looked at outweighs a warning, never a proven fault.
_WEIGHT = {PASS: 0, WARN: 1, UNKNOWN: 2, FAIL: 3}

ALIGNED = "aligned"
MISALIGNED = "misaligned"
INCOMPLETE = "incomplete"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One thing that differs, or could not be compared."""

    what: str
    """A package, file, configuration key or variable."""
    found: object
    expected: object
    status: str = FAIL
    why: str = ""
    source: str = ""
    fix: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """The answer to one question of the checklist."""

    id: str
    title: str
    status: str
    found: str
    expected: str
    fix: str = ""
    why: str = ""
    differences: tuple[Difference, ...] = ()


def worst(statuses: Iterable[str]) -> str:
    """Return the status that decides; `pass` of nothing."""
    return max(statuses, key=_WEIGHT.__getitem__, default=PASS)


def verdict(results: Sequence[CheckResult]) -> str:
    """Return `misaligned` if anything failed, `incomplete` if anything was not looked at, else `aligned`."""
    statuses = {result.status for result in results}
    if FAIL in statuses:
        return MISALIGNED
    return INCOMPLETE if UNKNOWN in statuses else ALIGNED
