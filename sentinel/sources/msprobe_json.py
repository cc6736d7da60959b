# SPDX-License-Identifier: Apache-2.0
"""The JSON of msprobe dumps, decoded entry by entry.

dump.json holds bare NaN and Infinity, so the standard json module reads it; it may be hundreds of megabytes, so tensors
are shrunk while they are decoded and the text is read in chunks. A file that ends too early is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

from sentinel.errors import UnreadableDump

CHUNK_CHARS = 1 << 21


class DumpedTensor(NamedTuple):
    """What a dump says of one tensor."""

    dtype: str
    shape: tuple[int, ...]
    max: float | None
    min: float | None
    mean: float | None
    norm: float | None
    checksum: str | None
    data: str | None


def entries(file: Path, header: dict[str, object]) -> Iterator[tuple[str, object]]:
    """The pairs of "data" in order, tensors as `DumpedTensor`; the rest of the top level goes into `header`.

    Raises:
        UnreadableDump: the file cannot be opened, is cut off, or is no dump.json.
    """
    try:
        with file.open(encoding="utf-8") as stream:
            cursor = _Cursor(stream, file)
            cursor.expect("{")
            while cursor.peek() != "}":
                key = str(cursor.value())
                cursor.expect(":")
                if key == "data" and cursor.peek() == "{":
                    yield from cursor.pairs()
                else:
                    header[key] = cursor.value()
                cursor.skip_comma()
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableDump(file, f"cannot be read: {error}") from error
    if "level" not in header or "task" not in header:
        raise UnreadableDump(file, 'no "task" and "level" in it: not a dump.json of msprobe')


def parents(file: Path, notes: list[str]) -> dict[str, str]:
    """Which entry each entry ran inside, from construct.json; empty, with a note, where that is missing or cut off."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        notes.append("construct.json is missing: what ran inside what is told by the modules' names")
        return {}
    except (OSError, ValueError, RecursionError):
        notes.append("construct.json cannot be read: what ran inside what is told by the modules' names")
        return {}
    if not isinstance(found, dict):
        return {}
    # Megatron writes [parent, micro step].
    lifted = {key: value[0] if isinstance(value, list) and value else value for key, value in found.items()}
    return {key: value for key, value in lifted.items() if isinstance(value, str)}


class _Cursor:
    """A place in a JSON text that is read in chunks."""

    def __init__(self, stream: TextIO, file: Path) -> None:
        self._stream = stream
        self._file = file
        self._text = ""
        self._at = 0
        self._ended = False
        self._shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._dtypes: dict[str, str] = {}
        self._decoder = json.JSONDecoder(object_pairs_hook=self._shrink)

    def peek(self) -> str:
        """The next character that is no blank."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise self._cut()

    def expect(self, mark: str) -> None:
        """Step over `mark`."""
        if self.peek() != mark:
            found = self._text[self._at : self._at + 20]
            raise UnreadableDump(self._file, f"not a dump.json: {mark!r} expected, {found!r} found")
        self._at += 1

    def skip_comma(self) -> None:
        """Step over a comma, unless the object ends here."""
        if self.peek() != "}":
            self.expect(",")

    def value(self) -> object:
        """The next JSON value."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._more():
                    raise self._cut() from None
                continue
            # A number or a literal at the very end of the text may go on in the next chunk.
            if end == len(self._text) and not isinstance(value, (dict, tuple, list, str)) and self._more():
                continue
            self._at = end
            return value

    def pairs(self) -> Iterator[tuple[str, object]]:
        """The pairs of the object that begins here."""
        self.expect("{")
        while self.peek() != "}":
            key = str(self.value())
            self.expect(":")
            yield key, self.value()
            self.skip_comma()
        self._at += 1

    def _more(self) -> bool:
        if self._ended:
            return False
        chunk = self._stream.read(CHUNK_CHARS)
        self._ended = not chunk
        self._text = self._text[self._at :] + chunk
        self._at = 0
        return not self._ended

    def _cut(self) -> UnreadableDump:
        if not self._text and not self._at:
            return UnreadableDump(self._file, "is empty: nothing was written yet")
        return UnreadableDump(
            self._file, "ends in the middle of its JSON: still being written, or its writer died; trust it after stop()"
        )

    def _shrink(self, pairs: list[tuple[str, object]]) -> object:
        found = dict(pairs)
        dtype, listed = found.get("dtype"), found.get("shape")
        if (
            not isinstance(dtype, str)
            or not isinstance(listed, list)
            or not all(isinstance(size, int) for size in listed)
        ):
            return found
        shape = tuple(listed)
        checksum, data = found.get("md5"), found.get("data_name")
        return DumpedTensor(
            self._dtypes.setdefault(dtype, dtype.removeprefix("torch.")),
            self._shapes.setdefault(shape, shape),
            _number(found.get("Max")),
            _number(found.get("Min")),
            _number(found.get("Mean")),
            _number(found.get("Norm")),
            checksum if isinstance(checksum, str) else None,
            data if isinstance(data, str) else None,
        )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
