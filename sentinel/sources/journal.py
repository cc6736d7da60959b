# SPDX-License-Identifier: Apache-2.0
"""Journals in the manner of LevelDB, as the run files of W&B and SwanLab are.

A file header of 7 bytes, then blocks of 32 KiB that hold fragments: CRC-32 of type and data, length (u16), type (u8):
1 whole, 2 first, 3 middle, 4 last; little endian. What does not fit into a block is padded with zeros.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from sentinel.records import Reading
from sentinel.sources.ledger import Ledger, Record
from sentinel.sources.lines import Notes
from sentinel.sources.wire import MalformedError

BLOCK = 32768
MAX_RECORD = 1 << 26
"""Bytes of the longest record that is put together; tables and media may be long and hold no metrics."""

_HEADER = struct.Struct("<IHB")
_FILE_HEADER = 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SEEDS = {kind: zlib.crc32(bytes([kind])) for kind in (_WHOLE, _FIRST, _MIDDLE, _LAST)}


class JournalReader:
    """A reader (as in `reader.Reader`) of one journal; subclasses know what its records mean."""

    format: ClassVar[str]
    magic: ClassVar[bytes]
    """First bytes of a file."""

    @classmethod
    def begins(cls, head: bytes) -> bool:
        """Whether the bytes begin with the file header."""
        return head.startswith(cls.magic)

    def records(self, data: bytes) -> Iterable[Record]:
        """The step records in one record of the journal. Raises MalformedError."""
        raise NotImplementedError

    def __init__(self) -> None:
        self.notes = Notes()
        self._ledger = Ledger(self.notes)
        self._buffer = b""
        self._at = 0
        """Place in the file of the first byte of the buffer."""
        self._open: bytes | None = None

    def feed(self, chunk: bytes) -> list[Reading]:
        """As `Reader.feed`."""
        data, at, readings = self._buffer + chunk, 0, list[Reading]()
        if self._at == 0:
            at = min(_FILE_HEADER, len(data)) if len(data) >= _FILE_HEADER else 0
        while at or self._at:
            left = BLOCK - (self._at + at) % BLOCK
            if left < _HEADER.size:
                if at + left > len(data):
                    break
                at += left
                continue
            if at + _HEADER.size > len(data):
                break
            crc, length, kind = _HEADER.unpack_from(data, at)
            end = at + _HEADER.size + length
            if kind not in _SEEDS or length > left - _HEADER.size:
                self._damage("bytes that are no record were passed over")
                at += left  # fragments begin anew with each block
                continue
            if end > len(data):
                break
            fragment = data[at + _HEADER.size : end]
            at = end
            if zlib.crc32(fragment, _SEEDS[kind]) == crc:
                readings += self._fragment(kind, fragment)
            else:
                self._damage("a record with a wrong checksum was left out")
        self._buffer, self._at = data[at:], self._at + at
        return readings

    def settle(self) -> list[Reading]:
        """As `Reader.settle`: records are whole."""
        return []

    def finish(self) -> list[Reading]:
        """As `Reader.finish`."""
        readings = self.break_off()
        self._ledger.finish()
        return readings

    def break_off(self) -> list[Reading]:
        """As `Reader.break_off`."""
        if self._buffer.strip(b"\0") or self._open is not None:
            self.notes.add("truncated_record", "the file ends inside a record")
        self._buffer, self._at, self._open = b"", 0, None
        return []

    def rewritten(self) -> None:
        """As `Reader.rewritten`."""
        self._ledger.rewritten()

    def resolution(self) -> float | None:
        """Values are exact."""
        return None

    def summary(self) -> Mapping[str, float] | None:
        """None is read."""
        return None

    # ------------------------------------------------------------------ records

    def _damage(self, what: str) -> None:
        self.notes.add("corrupt_record", what)
        self._open = None

    def _fragment(self, kind: int, data: bytes) -> list[Reading]:
        if kind == _WHOLE:
            self._open = None
            return self._record(data)
        if kind == _FIRST:
            self._open = data
            return []
        if self._open is None:
            return []  # its beginning was damaged, and said so, or is too long
        self._open += data
        if len(self._open) > MAX_RECORD:
            self._open = None
        if kind == _MIDDLE or self._open is None:
            return []
        whole, self._open = self._open, None
        return self._record(whole)

    def _record(self, data: bytes) -> list[Reading]:
        try:
            records = list(self.records(data))
        except MalformedError as error:
            self._damage(f"a record that cannot be read was left out: {error}")
            return []
        return [self._ledger.add(record) for record in records]

    # ------------------------------------------------------------------ state

    def to_plain(self) -> dict[str, Any]:
        """As `Reader.to_plain`."""
        return {
            "notes": self.notes.to_plain(),
            "ledger": self._ledger.to_plain(),
            "buffer": self._buffer.decode("latin-1"),
            "at": self._at,
            "open": None if self._open is None else self._open.decode("latin-1"),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """As `Reader.restore`."""
        self.notes.restore(state["notes"])
        self._ledger.restore(state["ledger"])
        self._buffer, self._at = str(state["buffer"]).encode("latin-1"), int(state["at"])
        self._open = None if state["open"] is None else str(state["open"]).encode("latin-1")
