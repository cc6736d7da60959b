# SPDX-License-Identifier: Apache-2.0
"""The lines of a journal segment: one JSON object a line, each with a checksum over its own text.

    {"sentinel_journal": 1, "first": 41}
    {"seq": 41, "kind": "step", "crc": "9a3f01c2", "payload": {...}}

The standard json module writes and reads them, because its bare NaN, Infinity and -Infinity keep numbers that are
not finite; faster encoders refuse them or turn them into null. `ensure_ascii` keeps every entry on one line, also
with lone surrogates in it.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

VERSION = 1
_PAYLOAD_MARK = b',"payload":'


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a journal."""

    seq: int
    """1, 2, 3, ... over the life of the journal."""
    kind: str
    payload: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a segment: where it ends, and the entry in it; None where the line is damaged."""

    end: int
    entry: Entry | None


def header(first: int) -> bytes:
    """Return the first line of a segment whose first entry will have this number."""
    return json.dumps({"sentinel_journal": VERSION, "first": first}, separators=(",", ":")).encode() + b"\n"


def header_version(line: bytes) -> int | None:
    """Return the format version that a segment's first line states; None where it is no such line."""
    try:
        version = json.loads(line)["sentinel_journal"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return version if isinstance(version, int) else None


def encode(seq: int, kind: str, payload: Mapping[str, object]) -> bytes:
    """Return the line of one entry, newline included."""
    head = b'{"seq":%d,"kind":%s' % (seq, json.dumps(kind).encode())
    body = json.dumps(payload, separators=(",", ":")).encode()
    crc = zlib.crc32(body, zlib.crc32(head))
    return b'%s,"crc":"%08x"%s%s}\n' % (head, crc, _PAYLOAD_MARK, body)


def decode(line: bytes) -> Entry | None:
    """Return the entry of one line; None where the line was cut, glued or changed."""
    head, mark, rest = line.partition(_PAYLOAD_MARK)
    if not mark or not rest.endswith(b"}\n"):
        return None
    body = rest[:-2]
    head, crc_mark, crc = head.partition(b',"crc":"')
    if not crc_mark or crc != b'%08x"' % zlib.crc32(body, zlib.crc32(head)):
        return None
    try:
        named = json.loads(head + b"}")
        return Entry(seq=named["seq"], kind=named["kind"], payload=json.loads(body))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def scan(lines: Iterable[bytes], start: int) -> Iterator[Line]:
    """Yield what stands on each of a segment's lines after its header, whose end is at byte `start`."""
    end = start
    for line in lines:
        end += len(line)
        yield Line(end, decode(line))
