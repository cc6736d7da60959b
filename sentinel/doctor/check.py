# SPDX-License-Identifier: Apache-2.0
"""One thing that was looked at, and what is to be done about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

PASS = "pass"  # noqa: S105  # a status, no password
FAIL = "fail"
WARN = "warn"
UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """The answer to one question about this machine."""

    id: str
    title: str
    status: str
    """pass, fail, warn, or unknown: it could not be looked at."""
    found: str
    fix: str = ""
    """What to do; empty where there is nothing to do."""

    def to_plain(self) -> dict[str, str]:
        """Return the form of the command-line contract."""
        return asdict(self)
