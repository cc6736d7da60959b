# SPDX-License-Identifier: Apache-2.0
"""The alignment checklist while a run goes: what its processes say of themselves against the baseline's fingerprint.

Differences between the two sides are warnings of the run, for whoever looks at an incident; a difference between the
workers of one run is a fault of its own, and opens an incident before it can be taken for one of precision.

The comparison is a chore: with the hundreds of keys of a real configuration it takes longer than a report may.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from sentinel.core.checklist import Rules, Side, check_all, parted_workers
from sentinel.records import WorkerSaid

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from sentinel.daemon.run_watch import RunWatch
    from sentinel.daemon.watchdog import Watchdog

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
DESCRIBED = "described"
COMPARED = "compared"


@dataclass(kw_only=True, slots=True)
class Description:
    """What a run said of itself, and how much of that was compared with the baseline."""

    facts: dict[str, Any] = field(default_factory=dict)
    """Never changed in place: a comparison may be reading it."""
    at_seconds: float = 0.0
    told: int = 0
    compared: int = 0

    def take_up(self, kind: str, payload: Mapping[str, Any]) -> bool:
        """Become what an entry of the journal says; False where it is about something else."""
        if kind == DESCRIBED:
            self.facts = {**self.facts, **payload["facts"]}
            self.at_seconds = float(payload["at"])
            self.told += 1
        elif kind == COMPARED:
            self.compared = int(payload["told"])
        else:
            return False
        return True

    @property
    def waits(self) -> bool:
        """Whether something was said and not compared."""
        return self.told > self.compared


def align(watchdog: Watchdog, run: str) -> None:
    """Compare what a run said of itself, and tell its engine what came of it. A chore: the lock is not held meanwhile."""

    def look(watch: RunWatch) -> tuple[Description, Mapping[str, Any] | None, int]:
        reference = watch.prepared.reference
        return watch.description, reference.fingerprint if reference else None, watch.description.told

    description, fingerprint, told = watchdog.with_watch(run, look)
    for said in remarks(description.facts, fingerprint, description.at_seconds):
        watchdog.tell(run, said)
    watchdog.with_watch(run, lambda watch: watch.describe(COMPARED, {"told": told}))


@functools.lru_cache(maxsize=1)
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
