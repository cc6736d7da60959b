# SPDX-License-Identifier: Apache-2.0
"""Following growing sources: what is new since the last look, as readings, each record once.

`Follower` looks when it is told to and owns no thread and no clock. `follow` is the loop around some of them: it polls
always, because network shares send no notice of changes; where the system does send one, it only shortens the wait.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentinel.errors import UnreadableLog
from sentinel.records import Reading, Warned
from sentinel.sources.growing import EventFolder, GrowingFile, open_source, restored_source
from sentinel.sources.ledger import kind_of
from sentinel.sources.notices import Notices

STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class FollowResult:
    """What one look brought."""

    readings: tuple[Reading, ...]
    """In the order of the source, the records of one step merged; a later look may add keys to a step."""
    warnings: tuple[Warned, ...]
    """What is newly odd. `worker_non_finite` comes once a burst, all else once."""
    silent_seconds: float | None
    """Since the last record arrived (since the file's last change, for records older than this reader); None before
    the first."""
    state: str
    """`missing`: nothing at the path; `waiting`: no record yet; `following`."""
    format: str | None
    more: bool
    """There is more to be read at once."""


class Follower:
    """One source: a file that may not exist yet, or a folder of event files or of a tracked run."""

    def __init__(self, path: str | Path, format: str | None = None, state: Mapping[str, Any] | None = None) -> None:  # noqa: A002
        self._path = Path(path)
        self._source: GrowingFile | EventFolder | None = None
        self._format = format
        self._last_at: float | None = None
        self._said: set[tuple[str, str]] = set()
        if state is not None:
            self._restore(state)

    def poll(self, now: float) -> FollowResult:
        """What is new at Unix time `now`. Never raises for what a file may hold or the system may refuse: that is warned of."""
        return self._look(now, last=False)

    def finish(self, now: float) -> FollowResult:
        """As `poll`, for a source that nobody writes any more: what is unfinished at its end is judged as cut."""
        return self._look(now, last=True)

    def _look(self, now: float, *, last: bool) -> FollowResult:
        readings: list[Reading] = []
        warnings: list[Warned] = []
        try:
            if self._source is None:
                self._source = open_source(self._path, self._format)
            if self._source is not None:
                readings.extend(self._source.look())
                if last and not self._source.more:
                    readings.extend(self._source.finish())
        except (OSError, UnreadableLog) as error:
            self._complain(error, warnings)
        source = self._source
        if source is None:
            return FollowResult((), tuple(warnings), self._silent(now), "missing", self._format, more=False)
        warnings += [Warned(code, text) for code, text in source.drain()]
        if readings:
            self._last_at = now if self._last_at is not None else min(now, source.modified_at)
        state = "following" if self._last_at is not None else "waiting"
        return FollowResult(
            readings=tuple(merged(readings)),
            warnings=tuple(warnings),
            silent_seconds=self._silent(now),
            state="missing" if source.missing else state,
            format=source.format,
            more=source.more,
        )

    @property
    def path(self) -> Path:
        """The path that is followed."""
        return self._path

    def close(self) -> None:
        """Let go of the files."""
        if self._source is not None:
            self._source.close()

    def resolution(self) -> float | None:
        """Smallest difference that the source can show, as far as known."""
        return None if self._source is None else self._source.resolution()

    def _silent(self, now: float) -> float | None:
        return None if self._last_at is None else max(now - self._last_at, 0.0)

    def _complain(self, error: OSError | UnreadableLog, warnings: list[Warned]) -> None:
        code = error.code if isinstance(error, UnreadableLog) else "unreadable"
        text = str(error)
        if (code, text) not in self._said:
            self._said.add((code, text))
            warnings.append(Warned(code, text))

    # ------------------------------------------------------------------ kept across a restart of the daemon

    def to_plain(self) -> dict[str, Any]:
        """The whole state as plain values, to be kept together with what became of the readings handed out."""
        return {
            "version": STATE_VERSION,
            "path": str(self._path),
            "format": self._format,
            "last_at": self._last_at,
            "source": None if self._source is None else self._source.to_plain(),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state.get("version") != STATE_VERSION or state.get("source") is None:
            return
        self._format, self._last_at = state["format"], state["last_at"]
        self._source = restored_source(self._path, state["source"])


def merged(readings: list[Reading]) -> Iterator[Reading]:
    """Neighbours of the same step as one reading."""
    last: Reading | None = None
    for reading in readings:
        if last is not None and (last.attempt, last.step) == (reading.attempt, reading.step):
            metrics = {**last.metrics, **reading.metrics}
            last = Reading(step=last.step, metrics=metrics, kind=kind_of(metrics), attempt=last.attempt)
            continue
        if last is not None:
            yield last
        last = reading
    if last is not None:
        yield last


# --------------------------------------------------------------------------- the loop

POLL_SECONDS = 0.2
SHORTEST_WAIT = 0.02
"""Seconds between two looks that notices of changes cannot shorten: a chatty log costs no core."""


def follow(
    followers: Mapping[str, Follower],
    on_result: Callable[[str, FollowResult], None],
    stop: threading.Event,
    *,
    interval_seconds: float = POLL_SECONDS,
    notices: bool = True,
) -> None:
    """Looks at all sources until `stop` is set; blocks. `on_result(name, result)` hears of every look that brought something.

    `notices`: let the system's notices of changes (inotify) shorten the wait. They are an extra: polling goes on.
    """
    wake = threading.Event()
    with Notices([follower.path for follower in followers.values()], wake) if notices else contextlib.nullcontext():
        while not stop.is_set():
            wake.clear()
            more = False
            for name, follower in followers.items():
                result = follower.poll(time.time())
                more |= result.more
                if result.readings or result.warnings:
                    on_result(name, result)
            if not more and not stop.wait(SHORTEST_WAIT):
                wake.wait(max(interval_seconds - SHORTEST_WAIT, 0.0))
