# SPDX-License-Identifier: Apache-2.0
"""The policies of steps, in one place: merging, doubles, late lines, restarts, vanished keys.

Readers turn text into records; the ledger says to which attempt and step a record belongs and what is odd about it.
Its memory is bounded, so that a live reader may run for ever: lines that are later than `WINDOW` steps count as a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sentinel.records import Reading
from sentinel.sources.lines import Notes

WINDOW = 256
"""Steps whose values are remembered."""

SAVED_WINDOW = 8
"""Steps whose values go into a saved state; what is later than that after a restart of the daemon is rare."""

_VALIDATION = ("val-core/", "val-aux/", "val/", "test_score/", "eval_")


def kind_of(metrics: Mapping[str, float]) -> str:
    """`val` when every key is a validation key, else `train`."""
    return "val" if metrics and all(key.startswith(_VALIDATION) for key in metrics) else "train"


@dataclass(frozen=True, slots=True)
class Record:
    """What one line or event says of one step."""

    step: int
    metrics: dict[str, float]
    cut: bool = False
    """Keys may be missing because the record was cut."""
    restart: bool = False
    """The source itself says that a new attempt begins here."""


class Ledger:
    """Records in the order of the source -> readings with their attempt."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.attempt = 1
        self._highest: int | None = None
        self._recent: dict[int, dict[str, float]] = {}
        self._cut: set[int] = set()
        self._unchecked: list[int] = []
        self._always: frozenset[str] | None = None
        self._checked = 0
        self._replaced = False

    def add(self, record: Record) -> Reading:
        """The reading that the record adds; several of one step are to be merged, the last value of a key wins."""
        step, metrics = record.step, record.metrics
        if self._highest is not None and (self._replaced or self._begins_attempt(record)):
            self._restart()
        self._replaced = False
        known = self._recent.get(step)
        if known is None:
            self._open(step)
            self._recent[step] = metrics
        else:
            self._merge(step, known, metrics)
        if record.cut:
            self._cut.add(step)
        return Reading(step=step, metrics=metrics, kind=kind_of(metrics), attempt=self.attempt)

    def finish(self) -> None:
        """The source ended: judge the steps that were still open."""
        self._check(len(self._unchecked))

    def rewritten(self) -> None:
        """The file was replaced: the next record begins another attempt, if there was one before."""
        self._replaced = True

    # ------------------------------------------------------------------ a step's place

    def _begins_attempt(self, record: Record) -> bool:
        assert self._highest is not None
        if record.restart:
            return True
        if record.step >= self._highest:
            return False
        known = self._recent.get(record.step)
        if known is not None and known.keys().isdisjoint(record.metrics):
            self._notes.add("late_line", f"a line for step {record.step} came after step {self._highest}; merged there")
            return False
        return True

    def _restart(self) -> None:
        self.finish()
        self.attempt += 1
        self._notes.add("restart_detected", f"attempt {self.attempt} begins after step {self._highest}")
        self._highest = None
        self._recent, self._cut, self._unchecked = {}, set(), []
        self._always, self._checked = None, 0

    def _open(self, step: int) -> None:
        self._highest = step if self._highest is None else max(self._highest, step)
        # The step before may still get a late line: it is judged when the one after it begins.
        self._check(len(self._unchecked) - 1)
        self._unchecked.append(step)
        if len(self._recent) >= WINDOW:
            oldest = next(iter(self._recent))
            del self._recent[oldest]
            self._cut.discard(oldest)

    def _merge(self, step: int, known: dict[str, float], metrics: dict[str, float]) -> None:
        for key in known.keys() & metrics.keys():
            old, new = known[key], metrics[key]
            if old != new and not (old != old and new != new):  # noqa: PLR0124  (NaN is the same as NaN here)
                self._notes.add("duplicate_step", f"step {step} came again with another {key}; the last value counts")
                break
        self._recent[step] = {**known, **metrics}

    # ------------------------------------------------------------------ vanished keys

    def _check(self, count: int) -> None:
        for step in self._unchecked[: max(count, 0)]:
            metrics = self._recent.get(step)
            if metrics is None or step in self._cut or kind_of(metrics) == "val":
                continue
            keys = metrics.keys()
            if self._always is None:
                self._always = frozenset(keys)
            if not keys >= self._always:
                if self._checked >= 2:
                    named = ", ".join(sorted(self._always - keys)[:3])
                    self._notes.add("key_vanished", f"on every earlier step and not on step {step}: {named}")
                self._always = self._always & keys
            self._checked += 1
        del self._unchecked[: max(count, 0)]

    # ------------------------------------------------------------------ kept across a restart of the reader

    def to_plain(self) -> dict[str, Any]:
        """State as plain values."""
        recent = list(self._recent.items())[-SAVED_WINDOW:]
        return {
            "attempt": self.attempt,
            "highest": self._highest,
            "recent": [[step, metrics] for step, metrics in recent],
            "cut": sorted(self._cut),
            "unchecked": self._unchecked[-SAVED_WINDOW:],
            "always": None if self._always is None else sorted(self._always),
            "checked": self._checked,
            "replaced": self._replaced,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `to_plain`."""
        self.attempt, self._highest = int(state["attempt"]), state["highest"]
        self._recent = {int(step): {key: float(v) for key, v in metrics.items()} for step, metrics in state["recent"]}
        self._cut, self._unchecked = set(state["cut"]), list(state["unchecked"])
        self._always = None if state["always"] is None else frozenset(state["always"])
        self._checked, self._replaced = int(state["checked"]), bool(state["replaced"])
