# SPDX-License-Identifier: Apache-2.0
"""The bytes that are added to a path, each once: over rotation, truncation, rewriting, and a restart of the reader.

A file is known by device, inode, its first bytes and the bytes before the place that was reached. The path is opened
anew at each look, because network shares answer `stat` from a cache and look again only on `open`.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentinel.errors import UnreadableLog

PORTION = 1 << 20
"""Bytes that are read at a time."""

FIRST = 1024
"""Bytes of the beginning by which a file is known."""

LAST = 256
"""Bytes before the reached place by which it is known that the file was not written anew."""

DATA, ROTATED, COPIED, REWRITTEN = "data", "rotated", "copied", "rewritten"


@dataclass(frozen=True, slots=True)
class Piece:
    """What happened to the path, in order."""

    kind: str
    """`data`; `rotated`: the old file was renamed, a new one follows; `copied`: its content was copied away and it
    was cut to nothing; `rewritten`: it was replaced, and what it had is gone."""
    data: bytes = b""


class Tail:
    """A path that grows."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._fd: int | None = None
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._first = b""
        self._last = b""
        self._seen: tuple[int, int] | None = None
        self.missing = True
        """The path does not exist (yet, or any more)."""
        self.modified_at = 0.0
        """Unix time of the last change of the file."""

    def look(self, limit: int = PORTION * 64) -> Iterator[Piece]:
        """What is new, about `limit` bytes of it at most. Raises UnreadableLog for a folder or device; OSError."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            self.missing = True  # renamed a moment ago, perhaps, and still written
        else:
            self.missing = False
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                os.close(fd)
                raise UnreadableLog(self._path, "unreadable", "not a file")
            self.modified_at = status.st_mtime
            yield from self._place(fd, status)
        if self._fd is not None:
            status = os.fstat(self._fd)
            now = (status.st_size, status.st_mtime_ns)
            if self._seen != now or status.st_size > self._offset:
                yield from self._rest(self._fd, limit)
                self._seen = now

    @property
    def at_end(self) -> bool:
        """Nothing more was there at the last look."""
        return self._seen is None or self._offset >= self._seen[0]

    def close(self) -> None:
        """Let go of the file."""
        self._hold(None)

    # ------------------------------------------------------------------ which file is it

    def _place(self, fd: int, status: os.stat_result) -> Iterator[Piece]:
        """Makes `fd` the file that is read, after what is left of the one before."""
        identity = (status.st_dev, status.st_ino)
        if self._identity is None:
            self._begin(fd, identity)
        elif identity == self._identity:
            self._hold(fd)
            unchanged = self._seen == (status.st_size, status.st_mtime_ns)
            if not unchanged and (status.st_size < self._offset or not self._known(fd)):
                yield from self._emptied()
                self._begin(fd, identity)
        elif status.st_size == 0 and self._fd is not None and os.fstat(self._fd).st_nlink:
            os.close(fd)  # the writer has not changed over yet
        else:
            yield from self._replaced()
            self._begin(fd, identity)

    def _begin(self, fd: int, identity: tuple[int, int]) -> None:
        self._hold(fd)
        self._identity, self._offset, self._seen = identity, 0, None
        self._first = self._last = b""

    def _hold(self, fd: int | None) -> None:
        if self._fd is not None and self._fd != fd:
            os.close(self._fd)
        self._fd = fd

    def _known(self, fd: int) -> bool:
        if os.pread(fd, len(self._first), 0) != self._first:
            return False
        return os.pread(fd, len(self._last), self._offset - len(self._last)) == self._last

    def _replaced(self) -> Iterator[Piece]:
        """Another file stands at the path: the rest of the old one, and of those that came and went between looks."""
        old = self._fd if self._fd is not None else self._find(_any_suffix, self._is_ours)
        if old is None:
            yield Piece(REWRITTEN)
            return
        self._fd = old
        yield from self._rest(old)
        status = os.fstat(old)
        if not status.st_nlink:
            yield Piece(REWRITTEN)
            return
        yield Piece(ROTATED)
        read = {self._identity}
        while (between := self._find(_rotation_suffix, _came_after(status, read))) is not None:
            status = os.fstat(between)
            self._begin(between, (status.st_dev, status.st_ino))
            read.add(self._identity)
            yield from self._rest(between)
            yield Piece(ROTATED)

    def _emptied(self) -> Iterator[Piece]:
        """The file is shorter or begins otherwise: was its content copied away before?"""
        copy = self._find(_any_suffix, self._continues)
        if copy is None:
            yield Piece(REWRITTEN)
            return
        yield from self._rest(copy)
        os.close(copy)
        yield Piece(COPIED)

    def _continues(self, fd: int, status: os.stat_result) -> bool:
        return status.st_size >= self._offset > 0 and self._known(fd)

    def _is_ours(self, fd: int, status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) == self._identity and status.st_size >= self._offset and self._known(fd)

    def _find(self, named: Callable[[Path, str], bool], wanted: Callable[[int, os.stat_result], bool]) -> int | None:
        """The oldest file beside the path that is named after it and is wanted; opened."""
        found: list[tuple[int, str, int]] = []
        with contextlib.suppress(OSError):
            for path in self._path.parent.iterdir():
                if path.name != self._path.name and named(self._path, path.name):
                    found += self._try(path, wanted)
        found.sort()
        for _, _, fd in found[1:]:
            os.close(fd)
        return found[0][2] if found else None

    @staticmethod
    def _try(path: Path, wanted: Callable[[int, os.stat_result], bool]) -> list[tuple[int, str, int]]:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return []
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and wanted(fd, status):
            return [(status.st_mtime_ns, path.name, fd)]
        os.close(fd)
        return []

    # ------------------------------------------------------------------ bytes

    def _rest(self, fd: int, limit: int | None = None) -> Iterator[Piece]:
        read = 0
        while limit is None or read < limit:
            data = os.pread(fd, PORTION, self._offset)
            if not data:
                return
            read += len(data)
            if len(self._first) < FIRST and self._offset == len(self._first):
                self._first += data[: FIRST - len(self._first)]
            self._last = (self._last + data[-LAST:])[-LAST:]
            self._offset += len(data)
            yield Piece(DATA, data)

    # ------------------------------------------------------------------ kept across a restart of the reader

    def to_plain(self) -> dict[str, Any]:
        """The reached place as plain values."""
        return {
            "identity": None if self._identity is None else list(self._identity),
            "offset": self._offset,
            "first": self._first.decode("latin-1"),
            "last": self._last.decode("latin-1"),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `to_plain`."""
        identity = state["identity"]
        self._identity = None if identity is None else (int(identity[0]), int(identity[1]))
        self._offset = int(state["offset"])
        self._first, self._last = str(state["first"]).encode("latin-1"), str(state["last"]).encode("latin-1")


def _came_after(before: os.stat_result, read: set[tuple[int, int] | None]) -> Callable[[int, os.stat_result], bool]:
    """Whether a file was renamed after `before` and has not been read."""

    def came_after(_: int, other: os.stat_result) -> bool:
        fresh = other.st_ctime_ns >= before.st_ctime_ns and other.st_mtime_ns >= before.st_mtime_ns
        return fresh and (other.st_dev, other.st_ino) not in read

    return came_after


def _any_suffix(path: Path, name: str) -> bool:
    return name.startswith((f"{path.name}.", f"{path.name}-", f"{path.stem}.", f"{path.stem}-"))


def _rotation_suffix(path: Path, name: str) -> bool:
    """Names that rotation gives: `run.log.1`, `run.log-20310401`, `run.2031-04-01_10-00-00.log`."""
    parts = (
        rf"{re.escape(path.name)}[.-]\d[\d.:T_-]*",
        rf"{re.escape(path.stem)}[.-]\d[\d.:T_-]*{re.escape(path.suffix)}",
    )
    return any(re.fullmatch(part, name) for part in parts)
