# SPDX-License-Identifier: Apache-2.0
"""The journal of one run: what the daemon saw and decided, kept across kills of the process and of the machine.

A folder of segments (`entries-<first>.jsonl`, append-only) and snapshots (`snapshot-<seq>.json`, written atomically;
each stands for every entry up to its number). Reading starts from the newest valid snapshot.

What is promised:
- An entry whose `append` returned survives a kill -9 of the process. Durable kinds (incidents, captures) are
  fsync'ed and survive a power cut too; step marks are handed to the kernel at once and may lose the last seconds then.
- A torn tail is cut off at the last whole record, and `repaired` says so once. A damaged line elsewhere is left
  out and counted in `damaged`. No entry comes back altered: each has a checksum.
- A full disk raises `JournalError` and changes nothing: the entry is not half there, the next `append` may
  succeed, and `snapshot_due` then asks for a snapshot, because the journal has a gap.
- Nothing is deleted that the two newest snapshots do not cover; past that, `Retention` bounds the disk.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

from sentinel.errors import JournalError
from sentinel.storage import entry_lines
from sentinel.storage.journal_reading import (
    SEGMENTS,
    SNAPSHOT_KIND,
    entries_after,
    newest_snapshot,
    number,
    numbered,
    read_entries,
    read_segment,
)
from sentinel.storage.retention import Retention, retain
from sentinel.storage.run_folders import write_run_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from typing_extensions import Self

    from sentinel.storage.entry_lines import Entry

# A share without locks (Lustre without -o flock) is better than no journal.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})
DURABLE_KINDS = frozenset({"incident", "capture"})


class Journal:
    """The one writer of a journal folder; a second one, in any process, is refused. Not for several threads.

    Args:
        folder: where it lies; made if absent.
        run: true name of the run, stored beside the entries.
        retention: what may be kept.

    Raises:
        JournalError: the folder cannot be used, is written by another process, or has an unknown format.
    """

    def __init__(self, folder: Path, *, run: str | None = None, retention: Retention | None = None) -> None:
        self.folder = folder
        self.retention = retention or Retention()
        self.repaired: str | None = None
        """What was cut off when it was opened, as one sentence; None where nothing was."""
        self.damaged = 0
        """Lines of the newest segment, the tail apart, that hold no valid entry."""
        self.lost = 0
        """Entries that could not be written since it was opened."""
        self._file = -1
        self._lock = -1
        self._gap = False
        self._run = run
        try:
            self._take_folder()
            self._open()
        except OSError as error:
            self.close()
            raise JournalError(folder, f"cannot be opened: {error.strerror}") from error
        except JournalError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def last_seq(self) -> int:
        """Number of the newest entry; 0 where there is none."""
        return self._last

    @property
    def snapshot_due(self) -> bool:
        """True when a restart would have much to read, or when entries were lost for want of disk."""
        grown = self._size - self._start
        wanted = self._last - self._covered >= self.retention.snapshot_entries
        return self._gap or wanted or (grown >= self.retention.snapshot_bytes and self._last > self._covered)

    def append(self, kind: str, payload: Mapping[str, object], *, durable: bool | None = None) -> int:
        """Write one entry and return its number.

        Args:
            kind: what the payload is; `snapshot` is reserved.
            payload: a mapping that the json module can write; keys are text, floats may be NaN or infinite.
            durable: fsync before returning; by default for the kinds of `DURABLE_KINDS`.

        Raises:
            JournalError: it could not be written (disk full); nothing of it is kept, later calls may succeed.
        """
        if kind == SNAPSHOT_KIND:
            raise ValueError("snapshots are written with write_snapshot")
        durable = kind in DURABLE_KINDS if durable is None else durable
        line = entry_lines.encode(self._last + 1, kind, payload)
        try:
            if os.fstat(self._file).st_nlink == 0:
                self._begin_anew()
            if not self._start:
                self._write_header(self._last + 1)
            self._write(line)
            if durable:
                os.fsync(self._file)
        except OSError as error:
            self.lost += 1
            self._gap = True
            self._take_back()
            raise JournalError(self._path, f"an entry could not be written: {error.strerror}") from error
        self._size += len(line)
        self._last += 1
        return self._last

    def read(self) -> Iterator[Entry]:
        """Yield the newest valid snapshot (kind `snapshot`), if any, then every later entry."""
        return read_entries(self.folder)

    def history(self, kinds: frozenset[str] | None = None) -> Iterator[Entry]:
        """Yield every entry that retention has left, also those before the snapshot."""
        try:
            for entry in entries_after(numbered(self.folder, SEGMENTS), 0):
                if kinds is None or entry.kind in kinds:
                    yield entry
        except OSError as error:
            raise JournalError(self.folder, f"cannot be read: {error.strerror}") from error

    def write_snapshot(self, payload: Mapping[str, object]) -> int:
        """Store what all entries so far amount to; return the number of the newest one of them.

        Raises:
            JournalError: it could not be written; the earlier snapshot stays in force.
        """
        target = self.folder / f"snapshot-{self._last:012d}.json"
        temporary = self.folder / f".{target.name}.tmp"
        try:
            with temporary.open("wb") as stream:
                stream.write(entry_lines.encode(self._last, SNAPSHOT_KIND, payload))
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(target)
            self._covered = self._last
            self._gap = False
            if self._size > self._start:
                self._begin_segment(self._last + 1)
            self._sync_folder()
            retain(self.folder, self.retention, self._last)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise JournalError(target, f"a snapshot could not be written: {error.strerror}") from error
        return self._last

    def bytes_used(self) -> int:
        """Bytes of the folder's files."""
        return sum(p.stat().st_size for p in self.folder.iterdir() if p.is_file())

    def close(self) -> None:
        """Close the files and give the lock back; entries are on disk already."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def _take_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        if self._run is not None:
            write_run_name(self.folder, self._run)

    def _take_lock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(self.folder, "is being written by another daemon; stop that one first") from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise

    def _open(self) -> None:
        for leftover in self.folder.glob(".*.tmp"):
            leftover.unlink()
        snapshot = newest_snapshot(self.folder)
        self._covered = self._last = snapshot.seq if snapshot is not None else 0
        segments = numbered(self.folder, SEGMENTS)
        if not segments:
            self._begin_segment(self._last + 1)
            return
        self._path = segments[-1]
        self._last = max(self._last, number(self._path) - 1)
        self._recover()

    def _recover(self) -> None:
        """Go on behind the last whole record of the newest segment."""
        self._start = self._size = 0
        skipped = 0
        for line in read_segment(self._path):
            if line.entry is not None or not self._start:
                self._start = self._start or line.end
                self._size = line.end
                self.damaged, skipped = self.damaged + skipped, 0
                self._last = max(self._last, line.entry.seq if line.entry is not None else 0)
            else:
                skipped += 1
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        torn = os.fstat(self._file).st_size - self._size
        if torn:
            os.ftruncate(self._file, self._size)
            self.repaired = f"{self._path.name}: the last {torn} bytes were no whole record and were cut off"
        if not self._start:
            self._write_header(self._last + 1)

    def _begin_segment(self, first: int) -> None:
        path = self.folder / f"entries-{first:012d}.jsonl"
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o644)
        if self._file >= 0:
            os.close(self._file)
        self._path, self._file, self._size, self._start = path, file, 0, 0
        self._write_header(first)
        self._sync_folder()

    def _begin_anew(self) -> None:
        """Go on in a new folder when somebody deleted the old one; what it held is gone, so a snapshot is due."""
        self._take_folder()
        self._begin_segment(self._last + 1)
        self._gap = True

    def _write_header(self, first: int) -> None:
        line = entry_lines.header(first)
        self._write(line)
        self._size = self._start = len(line)

    def _write(self, line: bytes) -> None:
        """Hand one whole line to the kernel; what a failed write left behind goes first."""
        if os.fstat(self._file).st_size != self._size:
            os.ftruncate(self._file, self._size)
        view = memoryview(line)
        while view:
            view = view[os.write(self._file, view) :]

    def _take_back(self) -> None:
        """Remove what a failed write left; if even that fails, the next write tries again."""
        try:
            os.ftruncate(self._file, self._size)
        except OSError:
            return

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
