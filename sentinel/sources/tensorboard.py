# SPDX-License-Identifier: Apache-2.0
"""TensorBoard event files, read without TensorBoard.

Frame of a record: length (u64), masked CRC-32C of the length, data, masked CRC-32C of the data; all little endian.
Data is an `Event` message: wall_time 1, step 2, file_version 3, summary 5, session_log 7. A summary holds values
(tag 1, simple_value 2, tensor 8, metadata 9). Values are float32 unless a tensor says otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import google_crc32c

from sentinel.records import Reading
from sentinel.sources.ledger import Ledger, Record
from sentinel.sources.lines import Notes
from sentinel.sources.wire import MalformedError, fields, scalar_of_tensor, varint

MAX_RECORD = 1 << 28
"""Bytes of the longest record that is believed; a longer one is a damaged length."""

_HEADER = struct.Struct("<QI")
_FLOAT = struct.Struct("<f")
_CRC = struct.Struct("<I")
_KNOWN_HEADERS = 4096
_KNOWN_LAYOUTS = 65536
_WALL_TIME, _STEP, _SUMMARY = 0x09, 0x10, 0x2A


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted as the format wants it."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def begins_event_file(head: bytes) -> bool:
    """Whether the bytes begin with a whole record header."""
    if len(head) < _HEADER.size:
        return False
    length, crc = _HEADER.unpack_from(head)
    return bool(length <= MAX_RECORD and masked_crc(head[:8]) == crc)


class EventReader:
    """A reader (as in `reader.Reader`) of one event file, or of the files of one run one after the other."""

    format = "tensorboard"

    def __init__(self, notes: Notes | None = None, ledger: Ledger | None = None) -> None:
        self.notes = Notes() if notes is None else notes
        self._ledger = Ledger(self.notes) if ledger is None else ledger
        self._buffer = b""
        self._need = 0
        self._step: int | None = None
        self._metrics: dict[str, float] = {}
        self._restart = False
        self._headers: dict[bytes, int] = {}
        self._tags: dict[bytes, str] = {}
        self._plugins: dict[str, str] = {}

    def feed(self, chunk: bytes) -> list[Reading]:
        """As `Reader.feed`. The last step is held back: its further values come as further records."""
        data = self._buffer + chunk if self._buffer else chunk
        if len(data) < self._need:
            self._buffer = data
            return []
        readings: list[Reading] = []
        at, end = 0, len(data)
        self._need = 0
        while end - at >= _HEADER.size:
            header = data[at : at + 12]
            length = self._headers.get(header)
            if length is None and (length := self._length(header)) is None:
                at = self._resynchronise(data, at)
                continue
            stop = at + 12 + length
            if stop + 4 > end:
                self._need = stop + 4 - at
                break
            event = data[at + 12 : stop]
            if masked_crc(event) == _CRC.unpack_from(data, stop)[0]:
                self._event(event, readings)
            else:
                self.notes.add("corrupt_record", f"a record of {length} bytes with a wrong checksum was left out")
            at = stop + 4
        self._buffer = data[at:]
        return readings

    def settle(self) -> list[Reading]:
        """As `Reader.settle`."""
        readings: list[Reading] = []
        self._close(readings)
        return readings

    def finish(self) -> list[Reading]:
        """As `Reader.finish`."""
        readings = self.break_off()
        self._ledger.finish()
        return readings

    def break_off(self) -> list[Reading]:
        """As `Reader.break_off`."""
        readings: list[Reading] = []
        self._close(readings, cut=bool(self._buffer))
        if self._buffer:
            self.notes.add("truncated_record", f"the file ends inside a record ({len(self._buffer)} bytes of it)")
        self._buffer, self._need = b"", 0
        return readings

    def rewritten(self) -> None:
        """As `Reader.rewritten`."""
        self._ledger.rewritten()

    def resolution(self) -> float | None:
        """Float32 is no limit worth naming."""
        return None

    def summary(self) -> Mapping[str, float] | None:
        """Event files have none."""
        return None

    # ------------------------------------------------------------------ records

    def _length(self, header: bytes) -> int | None:
        length, crc = _HEADER.unpack(header)
        if masked_crc(header[:8]) != crc or length > MAX_RECORD:
            return None
        if len(self._headers) < _KNOWN_HEADERS:
            self._headers[header] = length
        return int(length)

    def _resynchronise(self, data: bytes, at: int) -> int:
        """The next place where a record header stands; bytes that may be the beginning of one are kept."""
        self.notes.add("corrupt_record", "bytes that are no record were passed over")
        for place in range(at + 1, len(data) - _HEADER.size + 1):
            if begins_event_file(data[place : place + 12]):
                return place
        return max(at + 1, len(data) - _HEADER.size + 1)

    def _event(self, event: bytes, readings: list[Reading]) -> None:
        """An event of the usual form is told by its bytes between step and value, which repeat from step to step."""
        step, at = 0, 9
        try:
            if event[9] == _STEP:
                step = event[10]
                at = 11
                if step > 0x7F:
                    step, at = varint(event, 10)
            tag = self._tags.get(event[at:-4])
            if tag is not None and event[0] == _WALL_TIME:
                if step != self._step:
                    self._close(readings)
                    self._step = step
                self._metrics[tag] = _FLOAT.unpack_from(event, len(event) - 4)[0]
                return
        except IndexError:
            pass  # a short event, taken apart below
        try:
            self._unusual(event, at, readings)
        except MalformedError as error:
            self.notes.add("corrupt_record", f"an event that cannot be read was left out: {error}")

    def _unusual(self, event: bytes, at: int, readings: list[Reading]) -> None:
        step, values = 0, []
        for number, value in fields(event):
            if number == 2 and isinstance(value, int):
                step = value - (1 << 64) if value >= 1 << 63 else value
            elif number == 7 and isinstance(value, bytes) and dict(fields(value)).get(1) == 1:
                self._close(readings)
                self._restart = True
            elif number == 5 and isinstance(value, bytes):
                values += [part for name, part in fields(value) if name == 1 and isinstance(part, bytes)]
        scalars = [scalar for value in values if (scalar := self._scalar(value)) is not None]
        if not scalars:
            return
        if step != self._step:
            self._close(readings)
            self._step = step
        self._metrics.update(scalars)
        usual = len(values) == 1 and event[0] == _WALL_TIME and event[at] == _SUMMARY
        if (
            usual
            and event.endswith(values[0])
            and [*fields(values[0])][-1][0] == 2
            and len(self._tags) < _KNOWN_LAYOUTS
        ):
            self._tags[event[at:-4]] = scalars[0][0]

    def _scalar(self, value: bytes) -> tuple[str, float] | None:
        tag, plain, tensor = "", None, None
        for number, part in fields(value):
            if number == 1 and isinstance(part, bytes):
                tag = part.decode("utf-8", "replace").strip()
            elif number == 2 and isinstance(part, bytes):
                plain = _FLOAT.unpack(part)[0]
            elif number == 8 and isinstance(part, bytes):
                tensor = part
            elif number == 9 and isinstance(part, bytes):
                self._plugins[tag] = _plugin(part)
        if not tag:
            return None
        if plain is not None:
            return tag, plain
        if tensor is None or self._plugins.get(tag, "scalars") != "scalars":
            return None
        told = scalar_of_tensor(tensor)
        return None if told is None else (tag, told)

    def _close(self, readings: list[Reading], *, cut: bool = False) -> None:
        if self._step is None or not self._metrics:
            return
        readings.append(self._ledger.add(Record(self._step, self._metrics, cut=cut, restart=self._restart)))
        self._restart = False
        self._step, self._metrics = None, {}

    # ------------------------------------------------------------------ state

    def to_plain(self) -> dict[str, Any]:
        """As `Reader.to_plain`; taken after `settle`."""
        return {
            "notes": self.notes.to_plain(),
            "ledger": self._ledger.to_plain(),
            "buffer": self._buffer.decode("latin-1"),
            "restart": self._restart,
            "plugins": self._plugins,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """As `Reader.restore`."""
        self.notes.restore(state["notes"])
        self._ledger.restore(state["ledger"])
        self._buffer = str(state["buffer"]).encode("latin-1")
        self._restart, self._plugins = bool(state["restart"]), dict(state["plugins"])


def _plugin(metadata: bytes) -> str:
    for number, data in fields(metadata):
        if number == 1 and isinstance(data, bytes):
            for inner, name in fields(data):
                if inner == 1 and isinstance(name, bytes):
                    return name.decode("utf-8", "replace")
    return ""
