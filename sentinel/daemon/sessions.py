# SPDX-License-Identifier: Apache-2.0
"""Trainer processes of one run: which attempt each belongs to, what came already, and who may use the name.

Pure bookkeeping; time comes in from outside.

The name of a run is free again for another process when the one that had it said goodbye, died (same host, process
gone), or was not heard of for TAKEOVER_SECONDS. Otherwise two runs go on at once under one name, and the later one is
watched as `name~2`: nothing stays unwatched, and neither run's numbers reach the other's judgement.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TAKEOVER_SECONDS = 60.0
# The trainer's side says something every 5 s.
_SEEN_KEPT = 512
_SESSIONS_KEPT = 16
_STORED = ("id", "host", "pid", "heard_at", "ended", "last_step")


@dataclass(kw_only=True, slots=True)
class Session:
    """One trainer process."""

    id: str
    host: str = ""
    pid: int = 0
    heard_at: float = 0.0
    ended: bool = False
    last_step: int | None = None
    seen: dict[tuple[int, float], None] = field(default_factory=dict)
    """(step, mark) of what came: what is sent again after a lost answer is the same in both."""


class Sessions:
    """The processes that reported one run, and its attempts."""

    def __init__(self) -> None:
        self.attempt = 1
        self._known: dict[str, Session] = {}
        self._current: Session | None = None
        self._last_step: int | None = None

    @property
    def current(self) -> Session | None:
        """The process that has the name now."""
        return self._current

    def free_for(self, session: str, now: float, alive: Callable[[str, int], bool | None]) -> bool:
        """Return whether `session` may report under this run's name.

        `alive(host, pid)` says whether a process lives; None where that cannot be told from here.
        """
        holder = self._current
        if holder is None or holder.ended or holder.id == session or not session:
            return True
        living = alive(holder.host, holder.pid) if holder.pid else None
        if living is None:
            return now - holder.heard_at > TAKEOVER_SECONDS
        return not living

    def greet(self, session: str, facts: Mapping[str, object], now: float) -> Session:
        """Return the process's record, which has the name from now on."""
        found = self._known.get(session)
        if found is None:
            found = self._known[session] = Session(id=session)
            while len(self._known) > _SESSIONS_KEPT:
                self._known.pop(next(iter(self._known)))
        found.heard_at = now
        if facts:
            pid = facts.get("pid")
            found.host, found.pid = str(facts.get("host", "")), pid if isinstance(pid, int) else 0
        self._current = found
        return found

    def is_news(self, session: Session, step: int, mark: float) -> bool:
        """Return whether this step was not told yet, and remember it; may begin a new attempt.

        A new attempt begins when a step goes back, or when another process than before reports a step.
        """
        if (step, mark) in session.seen:
            return False
        session.seen[(step, mark)] = None
        if len(session.seen) > _SEEN_KEPT:
            session.seen.pop(next(iter(session.seen)))
        another = session.last_step is None and self._last_step is not None
        back = self._last_step is not None and step < self._last_step
        if another or back:
            self.attempt += 1
        session.last_step = self._last_step = step
        return True

    def spare(self, now: float) -> None:
        """The daemon was away: nobody's silence counts from before `now`."""
        for session in self._known.values():
            session.heard_at = max(session.heard_at, now)

    def end(self, session: Session) -> None:
        """The process said goodbye."""
        session.ended = True

    def to_plain(self) -> dict[str, object]:
        """Return everything as JSON types."""
        known = [
            {**{name: getattr(s, name) for name in _STORED}, "seen": [list(mark) for mark in s.seen]}
            for s in self._known.values()
        ]
        current = self._current.id if self._current else None
        return {"attempt": self.attempt, "last_step": self._last_step, "current": current, "known": known}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Sessions:
        """Return what `to_plain` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        sessions = cls()
        sessions.attempt, sessions._last_step = int(plain["attempt"]), plain["last_step"]
        for kept in plain["known"]:
            seen = {(int(step), float(mark)): None for step, mark in kept["seen"]}
            sessions._known[kept["id"]] = Session(**{name: kept[name] for name in _STORED}, seen=seen)
        sessions._current = sessions._known.get(plain["current"] or "")
        return sessions
