# SPDX-License-Identifier: Apache-2.0
"""The reading side of a journal folder: snapshots, segments, and the entries in them.

Changes nothing and takes no lock, so that a journal may be read beside the daemon that writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sentinel.errors import JournalError
from sentinel.storage import entry_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sentinel.storage.entry_lines import Entry

SNAPSHOT_KIND = "snapshot"
SEGMENTS = "entries-*.jsonl"
SNAPSHOTS = "snapshot-*.json"


def number(path: Path) -> int:
    """Return the entry number in the name of a segment or snapshot."""
    return int(path.stem.rpartition("-")[2])


def numbered(folder: Path, pattern: str) -> list[Path]:
    """Return the segments or snapshots of a folder, oldest first; foreign files are no business of ours."""
    return sorted((p for p in folder.glob(pattern) if p.stem.rpartition("-")[2].isdecimal()), key=number)


def read_segment(path: Path) -> Iterator[entry_lines.Line]:
    """Yield the lines of a segment after its header; the first one says where the header ends.

    Raises:
        JournalError: the segment was written in a format that this version does not know.
    """
    with path.open("rb") as stream:
        first = stream.readline()
        version = entry_lines.header_version(first)
        if version is not None and version != entry_lines.VERSION:
            raise JournalError(path, f"journal format {version} is not known here; use the Sentinel that wrote it")
        # A damaged header is no loss: the file's name says the same. One that was cut off has nothing behind it.
        start = len(first) if first.endswith(b"\n") else 0
        if start:
            yield entry_lines.Line(start, None)
            yield from entry_lines.scan(stream, start)


def _read_snapshot(path: Path) -> Entry | None:
    try:
        entry = entry_lines.decode(path.read_bytes())
    except OSError:
        return None
    return entry if entry is not None and entry.kind == SNAPSHOT_KIND else None


def newest_snapshot(folder: Path) -> Entry | None:
    """Return the newest snapshot that is whole; None where there is none."""
    for path in reversed(numbered(folder, SNAPSHOTS)):
        entry = _read_snapshot(path)
        if entry is not None:
            return entry
    return None


def entries_after(segments: list[Path], after: int) -> Iterator[Entry]:
    """Yield the whole entries with a number above `after`, in order, each once."""
    last = after
    for here, following in zip(segments, [*segments[1:], None], strict=True):
        if following is not None and number(following) <= after + 1:
            continue
        for line in read_segment(here):
            if line.entry is not None and line.entry.seq > last:
                last = line.entry.seq
                yield line.entry


def read_entries(folder: Path) -> Iterator[Entry]:
    """Yield the newest valid snapshot of a journal (kind `snapshot`), if there is one, then every later entry.

    Raises:
        JournalError: a segment has an unknown format, or cannot be read.
    """
    try:
        snapshot = newest_snapshot(folder)
        if snapshot is not None:
            yield snapshot
        yield from entries_after(numbered(folder, SEGMENTS), snapshot.seq if snapshot is not None else 0)
    except OSError as error:
        raise JournalError(folder, f"cannot be read: {error.strerror}") from error
