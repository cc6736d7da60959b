# SPDX-License-Identifier: Apache-2.0
"""Event files, byte by byte, for tests."""

from __future__ import annotations

import struct

from sentinel.sources.tensorboard import masked_crc


def record(data: bytes) -> bytes:
    """The data in its frame."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(step: int, body: bytes, wall_time: float = 1.0) -> bytes:
    told = b"\x10" + varint(step) if step else b""
    return b"\x09" + struct.pack("<d", wall_time) + told + body


def scalar(step: int, tag: str, value: float) -> bytes:
    """A record as torch's SummaryWriter.add_scalar writes it."""
    inner = field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    return record(event(step, field(5, field(1, inner))))
