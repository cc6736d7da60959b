# SPDX-License-Identifier: Apache-2.0
"""How much of a journal is kept: never less than the two newest snapshots and what lies behind the older of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from sentinel.storage.journal_reading import SEGMENTS, SNAPSHOTS, number, numbered

if TYPE_CHECKING:
    from pathlib import Path

_SNAPSHOTS_KEPT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """How much a journal may keep, and how often it wants a snapshot."""

    snapshot_entries: int = 250
    """Entries after which a snapshot is due; what a restart has to fold again, at 0.5 ms each. Writing one takes 8 ms."""
    snapshot_bytes: int = 4 << 20
    """Bytes after which a snapshot is due."""
    history_entries: int = 20_000
    """Entries kept behind the newest, for `history()`."""
    history_bytes: int = 64 << 20
    """Bytes kept in segments, for `history()`."""


def retain(folder: Path, retention: Retention, last: int) -> None:
    """Delete old snapshots, and old segments that the kept snapshots cover and that nobody wants as history.

    Args:
        folder: of the journal, with at least one snapshot in it.
        retention: what is wanted as history.
        last: number of the newest entry.

    Raises:
        OSError: something could not be deleted.
    """
    snapshots = numbered(folder, SNAPSHOTS)
    for path in snapshots[:-_SNAPSHOTS_KEPT]:
        path.unlink(missing_ok=True)
    covered = number(snapshots[-_SNAPSHOTS_KEPT:][0])
    segments = numbered(folder, SEGMENTS)
    total = sum(path.stat().st_size for path in segments)
    for path, following in pairwise(segments):
        end = number(following) - 1
        wanted = total <= retention.history_bytes and end > last - retention.history_entries
        if end > covered or wanted:
            break
        total -= path.stat().st_size
        path.unlink(missing_ok=True)
