# SPDX-License-Identifier: Apache-2.0
"""Growing sources, each a shell around readers: a file whose format may still be unknown, a folder of event files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sentinel.errors import UnreadableLog
from sentinel.records import Reading
from sentinel.sources.documents import DocumentReader
from sentinel.sources.folders import event_files, run_files
from sentinel.sources.formats import Format, make_reader, recognise
from sentinel.sources.ledger import Ledger
from sentinel.sources.lines import Notes
from sentinel.sources.reader import Reader
from sentinel.sources.tail import COPIED, DATA, REWRITTEN, Piece, Tail
from sentinel.sources.tensorboard import EventReader


def open_source(path: Path, name: str | None) -> GrowingFile | EventFolder | None:
    """The source at a path; None where nothing is there yet. Raises UnreadableLog, OSError."""
    if not path.exists():
        return None
    if path.is_file():
        return GrowingFile(path, name)
    if not path.is_dir():
        raise UnreadableLog(path, "unreadable", "neither a file nor a folder")
    if name in (None, EventReader.format) and event_files(path):
        return EventFolder(path)
    # In an empty folder something may still come.
    return next((GrowingFile(file, name) for file in run_files(path)), None)


def restored_source(path: Path, plain: Mapping[str, Any]) -> GrowingFile | EventFolder:
    """A source as `to_plain` left it."""
    source = EventFolder(path) if plain["kind"] == EventFolder.kind else GrowingFile(Path(plain["path"]), None)
    source.restore(plain)
    return source


class GrowingFile:
    """A growing file; its format may still be unknown."""

    kind = "file"

    def __init__(self, path: Path, name: str | None) -> None:
        self._path = path
        self._tail = Tail(path)
        self._notes = Notes()
        self._reader: Reader | None = None if name is None else make_reader(name)
        self._certain = name is not None
        self._tried = self._size = 0
        self.more = False

    @property
    def format(self) -> str | None:
        """Name of the format, once known."""
        return None if self._reader is None else self._reader.format

    @property
    def missing(self) -> bool:
        """Nothing is at the path."""
        return self._tail.missing if self._reader is not None else not self._path.exists()

    @property
    def modified_at(self) -> float:
        """Unix time of the file's last change."""
        return self._tail.modified_at

    def look(self) -> Iterator[Reading]:
        """The readings that came. Raises UnreadableLog, OSError."""
        if not self._certain:
            self._recognise()
        if self._reader is None:
            return
        for piece in self._tail.look():
            readings = self._take(piece, self._reader)
            self._certain = self._certain or bool(readings)
            yield from readings
        self.more = not self._tail.at_end
        if not self.more:
            yield from self._reader.settle()

    def finish(self) -> list[Reading]:
        """What is unfinished at the end, where nothing more will come."""
        return [] if self._reader is None else self._reader.finish()

    def _take(self, piece: Piece, reader: Reader) -> list[Reading]:
        if piece.kind == DATA:
            return reader.feed(piece.data)
        if piece.kind == COPIED:
            return []  # a line may have been cut in two by it: the rest of it follows
        readings = reader.break_off()
        if piece.kind == REWRITTEN:
            if not isinstance(reader, DocumentReader):
                self._notes.again(
                    "file_rewritten", f"{self._path} became shorter or begins otherwise: read from its start"
                )
            reader.rewritten()
        return readings

    def _recognise(self) -> None:
        """Tries when the file has doubled since the last try, or has stood still for a look: tries read from its start."""
        self._tail.hold()
        try:
            size, before = self._path.stat().st_size, self._size
        except FileNotFoundError:
            return
        self._size = size
        if size in (0, self._tried) or (size < 2 * self._tried and size != before):
            return
        self._tried = size
        try:
            with self._path.open("rb") as stream:
                self._adopt(recognise(stream, self._path))
        except UnreadableLog as error:
            self._notes.add(error.code, str(error))

    def _adopt(self, found: Format) -> None:
        self._certain = found.certain
        if self._reader is not None and self._reader.format != found.name:
            self._tail.close()  # what was read so far was taken for another format: from the start again
            self._tail = Tail(self._path)
            self._reader = None
        if self._reader is None:
            self._reader = make_reader(found.name)

    def drain(self) -> list[tuple[str, str]]:
        """What is newly odd, as (code, text)."""
        told = list(self._notes.drain())
        return told + list(self._reader.notes.drain() if self._reader is not None else ())

    def resolution(self) -> float | None:
        """Smallest difference that the source can show, as far as known."""
        return None if self._reader is None else self._reader.resolution()

    def close(self) -> None:
        """Let go of the files."""
        self._tail.close()

    def to_plain(self) -> dict[str, Any]:
        """State as plain values."""
        return {
            "kind": self.kind,
            "path": str(self._path),
            "format": self.format,
            "certain": self._certain,
            "tail": self._tail.to_plain(),
            "reader": None if self._reader is None else self._reader.to_plain(),
        }

    def restore(self, plain: Mapping[str, Any]) -> None:
        """The inverse of `to_plain`."""
        self._certain = bool(plain["certain"])
        self._tail.restore(plain["tail"])
        if plain["format"] is not None:
            self._reader = make_reader(plain["format"])
            self._reader.restore(plain["reader"])


class EventFolder:
    """The event files of one run; each keeps its place, all share one ledger."""

    kind = "events"
    format = EventReader.format
    missing = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._notes = Notes()
        self._ledger = Ledger(self._notes)
        self._files: dict[str, tuple[Tail, EventReader]] = {}
        self.modified_at = 0.0
        self.more = False

    def look(self) -> Iterator[Reading]:
        """The readings that came. Raises UnreadableLog, OSError."""
        self.more = False
        for file in event_files(self._path):
            name = str(file.relative_to(self._path))
            tail, reader = self._files.get(name) or self._add(name)
            for piece in tail.look():
                if piece.kind == DATA:
                    yield from reader.feed(piece.data)
                elif piece.kind != COPIED:
                    yield from reader.break_off()
            yield from reader.settle()
            self.modified_at = max(self.modified_at, tail.modified_at)
            self.more |= not tail.at_end

    def finish(self) -> list[Reading]:
        """What is unfinished at the end of each file, where nothing more will come."""
        return [reading for _, reader in self._files.values() for reading in reader.finish()]

    def _add(self, name: str) -> tuple[Tail, EventReader]:
        self._files[name] = (Tail(self._path / name), EventReader(self._notes, self._ledger))
        return self._files[name]

    def drain(self) -> list[tuple[str, str]]:
        """What is newly odd, as (code, text)."""
        return list(self._notes.drain())

    def resolution(self) -> float | None:
        """Smallest difference that the source can show, as far as known."""
        return None

    def close(self) -> None:
        """Let go of the files."""
        for tail, _ in self._files.values():
            tail.close()

    def to_plain(self) -> dict[str, Any]:
        """State as plain values."""
        files = {name: [tail.to_plain(), reader.to_plain()] for name, (tail, reader) in self._files.items()}
        return {"kind": self.kind, "path": str(self._path), "ledger": self._ledger.to_plain(), "files": files}

    def restore(self, plain: Mapping[str, Any]) -> None:
        """The inverse of `to_plain`."""
        for name, (tail_state, reader_state) in plain["files"].items():
            tail, reader = self._add(name)
            tail.restore(tail_state)
            reader.restore(reader_state)
        self._ledger.restore(plain["ledger"])
