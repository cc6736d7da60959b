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

TRIES = 10
"""Looks at a folder in which files are being renamed, until two in a row agree."""

Identity = tuple[int, int]
"""Device and inode."""

Dated = tuple[int, int, int]
"""Device, inode and time of the last change (ns)."""

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
        self._identity: Identity | None = None
        self._offset = 0
        self._first = b""
        self._last = b""
        self._seen: tuple[int, int] | None = None
        self._older: set[Dated] = set()
        """Rotated files that were there before the file that is read, with their times: inodes are used again."""
        self.missing = True
        """The path does not exist (yet, or any more)."""
        self.modified_at = 0.0
        """Unix time of the last change of the file."""

    def look(self, limit: int = PORTION * 64) -> Iterator[Piece]:
        """What is new, about `limit` bytes of it at most. Raises UnreadableLog for a folder or device; OSError."""
        try:
            fd, siblings = self._open()
        except FileNotFoundError:
            self.missing = True  # renamed a moment ago, perhaps, and still written
        else:
            self.missing = False
            status = os.fstat(fd)
            self.modified_at = status.st_mtime
            yield from self._place(fd, status, siblings)
        if self._fd is not None:
            status = os.fstat(self._fd)
            now = (status.st_size, status.st_mtime_ns)
            if self._seen != now or status.st_size > self._offset:
                yield from self._rest(self._fd, limit)
                self._seen = now

    def hold(self) -> None:
        """Takes the file at the path as the one to read, from its start, without reading yet. Raises as `look`."""
        if self._identity is None:
            with contextlib.suppress(FileNotFoundError):
                fd, siblings = self._open()
                status = os.fstat(fd)
                self._begin(fd, (status.st_dev, status.st_ino))
                self._older = set(siblings)
                self.missing = False

    @property
    def at_end(self) -> bool:
        """Nothing more was there at the last look."""
        return self._seen is None or self._offset >= self._seen[0]

    def close(self) -> None:
        """Let go of the file."""
        self._hold(None)

    # ------------------------------------------------------------------ which file is it

    def _open(self) -> tuple[int, dict[Dated, Path]]:
        """The file at the path; if it is another one than before, also the rotated files beside it, all older than it.

        That they are holds if nothing was rotated in the meantime, so this is looked at again until it is so.
        """
        for _ in range(TRIES):
            fd = _open(self._path)
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                os.close(fd)
                raise UnreadableLog(self._path, "unreadable", "not a file")
            identity = (status.st_dev, status.st_ino)
            if identity == self._identity:
                return fd, {}
            siblings = self._siblings(_rotation_suffix)
            with contextlib.suppress(FileNotFoundError):
                now = self._path.stat()
                if (now.st_dev, now.st_ino) == identity and siblings.keys() == self._siblings(_rotation_suffix).keys():
                    return fd, siblings
            os.close(fd)
        return _open(self._path), siblings

    def _place(self, fd: int, status: os.stat_result, siblings: dict[Dated, Path]) -> Iterator[Piece]:
        """Makes `fd` the file that is read, after what is left of the one before."""
        identity = (status.st_dev, status.st_ino)
        if identity == self._identity:
            self._hold(fd)
            yield from self._checked(fd, status)
        elif status.st_size == 0 and self._fd is not None and os.fstat(self._fd).st_nlink:
            os.close(fd)  # the writer has not changed over yet
        else:
            if self._identity is not None:
                yield from self._replaced(siblings)
            self._begin(fd, identity)
            self._older = set(siblings)

    def _checked(self, fd: int, status: os.stat_result) -> Iterator[Piece]:
        """Begins again in a file that was cut short or written anew since the last look."""
        unchanged = self._seen == (status.st_size, status.st_mtime_ns)
        if not unchanged and (status.st_size < self._offset or not self._known(fd)):
            yield from self._emptied()
            self._begin(fd, (status.st_dev, status.st_ino))

    def _begin(self, fd: int, identity: Identity) -> None:
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

    def _replaced(self, siblings: dict[Dated, Path]) -> Iterator[Piece]:
        """Another file stands at the path: the rest of the old one, and of those that came and went between looks."""
        if self._fd is None:
            assert self._identity is not None
            self._fd = self._open_sibling(self._identity, _any_suffix)
            if self._fd is None:
                yield Piece(REWRITTEN)
                return
        yield from self._checked(self._fd, os.fstat(self._fd))
        yield from self._rest(self._fd)
        if not os.fstat(self._fd).st_nlink:
            yield Piece(REWRITTEN)
            return
        yield Piece(ROTATED)
        gone = self._identity
        first, since = self._first, os.fstat(self._fd).st_mtime_ns
        fresh = [dated for dated in siblings if dated not in self._older and dated[:2] != gone and dated[2] >= since]
        for device, inode, _ in fresh:
            fd = self._open_sibling((device, inode), _rotation_suffix)
            if fd is None:
                continue
            if first and os.pread(fd, len(first), 0) == first:
                os.close(fd)  # a copy that somebody made
                continue
            self._begin(fd, (device, inode))
            yield from self._rest(fd)
            yield Piece(ROTATED)

    def _open_sibling(self, identity: Identity, named: Callable[[Path, str], bool]) -> int | None:
        """A rotated file by what it is: its name may change at any moment, when the next one is rotated."""
        for _ in range(TRIES):
            places = [path for dated, path in self._siblings(named).items() if dated[:2] == identity]
            with contextlib.suppress(FileNotFoundError):
                for path in places:
                    fd = _open(path)
                    status = os.fstat(fd)
                    if (status.st_dev, status.st_ino) == identity:
                        return fd
                    os.close(fd)
        return None

    def _emptied(self) -> Iterator[Piece]:
        """The file is shorter or begins otherwise: was its content copied away before?"""
        for dated, path in self._siblings(_any_suffix).items():
            if dated in self._older:
                continue
            with contextlib.suppress(OSError):
                copy = _open(path)
                try:
                    if os.fstat(copy).st_size >= self._offset > 0 and self._known(copy):
                        self._older.add(dated)
                        yield from self._rest(copy)
                        yield Piece(COPIED)
                        return
                finally:
                    os.close(copy)
        yield Piece(REWRITTEN)

    def _siblings(self, named: Callable[[Path, str], bool]) -> dict[Dated, Path]:
        """The files beside the path that are named after it, oldest first."""
        found: list[tuple[tuple[int, int, str], Dated, Path]] = []
        with contextlib.suppress(OSError):
            for path in self._path.parent.iterdir():
                if path.name == self._path.name or not named(self._path, path.name):
                    continue
                with contextlib.suppress(OSError):
                    status = path.stat()
                    if stat.S_ISREG(status.st_mode):
                        age = (status.st_mtime_ns, -_number(path.name), path.name)
                        found.append((age, (status.st_dev, status.st_ino, status.st_mtime_ns), path))
        return {dated: path for _, dated, path in sorted(found)}

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
            "older": sorted(self._older),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `to_plain`."""
        identity = state["identity"]
        self._identity = None if identity is None else (int(identity[0]), int(identity[1]))
        self._offset = int(state["offset"])
        self._older = {(int(device), int(inode), int(time)) for device, inode, time in state["older"]}
        self._first, self._last = str(state["first"]).encode("latin-1"), str(state["last"]).encode("latin-1")


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _number(name: str) -> int:
    """The number of `run.log.3`, which is older than `run.log.2`; 0 for dates, which sort by themselves."""
    match = re.search(r"\.(\d{1,4})$", name)
    return int(match.group(1)) if match else 0


def _any_suffix(path: Path, name: str) -> bool:
    return name.startswith((f"{path.name}.", f"{path.name}-", f"{path.stem}.", f"{path.stem}-"))


def _rotation_suffix(path: Path, name: str) -> bool:
    """Names that rotation gives: `run.log.1`, `run.log-20310401`, `run.2031-04-01_10-00-00.log`."""
    parts = (
        rf"{re.escape(path.name)}[.-]\d[\d.:T_-]*",
        rf"{re.escape(path.stem)}[.-]\d[\d.:T_-]*{re.escape(path.suffix)}",
    )
    return any(re.fullmatch(part, name) for part in parts)
