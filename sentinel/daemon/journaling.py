# SPDX-License-Identifier: Apache-2.0
"""The daemon's use of a run's journal: a full or broken disk is said, and never stops the watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentinel.errors import JournalError
from sentinel.storage.journal import Journal
from sentinel.storage.run_folders import journal_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sentinel.storage.entry_lines import Entry as Kept

__all__ = ["Keeper", "Kept"]


class Keeper:
    """Keeps the events of one run as far as the disk allows.

    Args:
        home: Sentinel's folder.
        run: name of the run.
    """

    def __init__(self, home: Path, run: str) -> None:
        self.remarks: dict[str, str] = {}
        """Code -> sentence: what is wrong with the journal now."""
        self._kept: tuple[Kept, ...] = ()
        self._home = home
        self._run = run
        self._journal: Journal | None = None
        self._bridged = 0
        self._open()

    @property
    def is_open(self) -> bool:
        """Whether entries are kept at all."""
        return self._journal is not None

    @property
    def holds_entries(self) -> bool:
        """Whether the journal held something when it was opened that nobody took yet."""
        return bool(self._kept)

    def take(self) -> tuple[Kept, ...]:
        """Return, once, what the journal held when it was opened: a snapshot, if any, then the entries after it."""
        kept, self._kept = self._kept, ()
        return kept

    def append(self, kind: str, payload: Mapping[str, Any], *, durable: bool = False) -> None:
        """Keep one entry; handed to the kernel at once, and with `durable` flushed to the disk."""
        if self._journal is None:
            return
        try:
            self._journal.append(kind, payload, durable=durable)
        except (JournalError, ValueError, TypeError) as error:
            self._say_unwritten(error)
            return
        if self._journal.lost > self._bridged:
            self.remarks["journal_unwritten"] = (
                f"{self._journal.lost - self._bridged} entries could not be written; the journal can be written again now"
            )

    @property
    def snapshot_due(self) -> bool:
        """True when a restart would have much to read, or has a gap to bridge."""
        return self._journal is not None and self._journal.snapshot_due

    def write_snapshot(self, plain: Mapping[str, Any]) -> None:
        """Keep what all entries so far amount to."""
        if self._journal is None:
            return
        try:
            self._journal.write_snapshot(plain)
        except (JournalError, ValueError, TypeError) as error:
            self._say_unwritten(error)
        else:
            # What was lost is in the snapshot.
            self._bridged = self._journal.lost
            self.remarks.pop("journal_unwritten", None)

    def close(self) -> None:
        """Give the journal back."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _open(self) -> None:
        try:
            self._journal = Journal(journal_folder(self._home, self._run), run=self._run)
            self._kept = tuple(self._journal.read())
        except (JournalError, OSError) as error:
            self.remarks["journal_closed"] = f"nothing of this run survives a restart of the daemon: {error}"
            return
        if self._journal.repaired:
            self.remarks["journal_repaired"] = self._journal.repaired
        if self._journal.damaged:
            self.remarks["journal_damaged"] = f"{self._journal.damaged} damaged entries of the journal were left out"

    def _say_unwritten(self, error: Exception) -> None:
        self.remarks["journal_unwritten"] = f"the watch goes on, but a restart would not know the latest steps: {error}"
