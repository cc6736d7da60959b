# SPDX-License-Identifier: Apache-2.0
"""The alignment checklist while a run goes: what its processes say of themselves against the baseline's fingerprint.

Differences between the two sides are warnings of the run, for whoever looks at an incident; a difference between the
workers of one run is a fault of its own, and opens an incident before it can be taken for one of precision.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import resources
from typing import Any

from sentinel.core.checklist import Rules, Side, check_all, parted_workers
from sentinel.records import WorkerSaid

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MISMATCH = "mismatch"
_LIVE = (
    "versions.strict",
    "data.shuffle",
    "config.explicit",
    "config.effective",
    "determinism.env",
    "rollout.load_format",
    "rollout.logprobs",
)
_LONGEST = 600


def load_rules() -> Rules:
    """Return the rules that come with Sentinel."""
    text = (resources.files("sentinel") / "data" / "checklist.toml").read_text(encoding="utf-8")
    return Rules.from_mapping(tomllib.loads(text))


def remarks(
    facts: Mapping[str, Any], fingerprint: Mapping[str, Any] | None, at_seconds: float
) -> tuple[WorkerSaid, ...]:
    """Return what is to be said of a run that described itself; nothing where the baseline does not say the same of itself.

    Args:
        facts: everything that the run said so far.
        fingerprint: of the baseline; None where it has none.
        at_seconds: when.
    """
    rules = load_rules()
    here = Side.from_plain({"facts": facts})
    said = [
        WorkerSaid(MISMATCH, f"{d.what} differs between the workers of this run: {d.found}"[:_LONGEST], at_seconds)
        for d in parted_workers(here, rules)
    ]
    if fingerprint is None:
        return tuple(said)
    try:
        there = Side.from_plain(fingerprint)
    except ValueError:
        return tuple(said)
    return (
        *said,
        *(
            WorkerSaid(f"checklist.{result.id}", f"{result.found} (expected: {result.expected})"[:_LONGEST], at_seconds)
            for result in check_all(here, there, rules)
            if result.id in _LIVE and result.status == "fail" and (here.workers_known or result.id != "determinism.env")
        ),
    )
