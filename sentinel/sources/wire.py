# SPDX-License-Identifier: Apache-2.0
"""The wire format of protocol buffers, as far as event files need it: fields, and scalars in tensors."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_PACKED_SIZE = {1: 8, 5: 4}
# TensorProto: dtype -> (struct code in tensor_content, number of the field with repeated values)
_FLOAT, _DOUBLE, _INT32, _INT64, _BOOL, _HALF, _UINT8, _INT16, _INT8 = 1, 2, 3, 9, 10, 19, 4, 5, 6
_CONTENT = {
    _FLOAT: "f",
    _DOUBLE: "d",
    _INT32: "i",
    _INT64: "q",
    _BOOL: "?",
    _HALF: "e",
    _UINT8: "B",
    _INT16: "h",
    _INT8: "b",
}
_REPEATED_FLOAT, _REPEATED_DOUBLE, _REPEATED_INT = 5, 6, (7, 10, 11)


class MalformedError(ValueError):
    """Bytes that are no message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned integer at `at`, and the place after it. Raises MalformedError."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise MalformedError("a varint without end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value): an integer for varints, bytes for all else. Raises MalformedError."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = varint(data, at)
        elif kind in _PACKED_SIZE:
            size = _PACKED_SIZE[kind]
        else:
            raise MalformedError(f"wire type {kind}")
        if at + size > len(data):
            raise MalformedError("a field longer than its message")
        yield key >> 3, data[at : at + size]
        at += size


def scalar_of_tensor(tensor: bytes) -> float | None:
    """The value of a numeric tensor with one element and no dimensions (or all of size 1), else None."""
    dtype, content, told = 0, b"", None
    for number, value in fields(tensor):
        if number == 1 and isinstance(value, int):
            dtype = value
        elif number == 2 and isinstance(value, bytes) and not _single(value):
            return None
        elif number == 4 and isinstance(value, bytes):
            content = value
        else:
            told = _repeated(number, value) if told is None else told
    code = _CONTENT.get(dtype)
    if code is None:
        return None
    if content and len(content) == struct.calcsize("<" + code):
        return float(struct.unpack("<" + code, content)[0])
    if content:
        return None
    return told


def _repeated(number: int, value: int | bytes) -> float | None:
    if number == _REPEATED_FLOAT and isinstance(value, bytes) and len(value) == 4:
        return float(struct.unpack("<f", value)[0])
    if number == _REPEATED_DOUBLE and isinstance(value, bytes) and len(value) == 8:
        return float(struct.unpack("<d", value)[0])
    if number in _REPEATED_INT:
        told = value if isinstance(value, int) else varint(value, 0)[0] if value else 0
        return float(told - (1 << 64) if told >= 1 << 63 else told)
    return None


def _single(shape: bytes) -> bool:
    """Whether all dimensions (field 2, with size in field 1) are of size 1."""
    sizes = [dict(fields(dim)).get(1, 0) for number, dim in fields(shape) if number == 2 and isinstance(dim, bytes)]
    return all(size == 1 for size in sizes)
