# SPDX-License-Identifier: Apache-2.0
"""The JSON of msprobe dumps, decoded entry by entry.

dump.json holds bare NaN and Infinity, so the standard json module reads it; it may be hundreds of megabytes, so the text is
read in chunks and no more than one entry is held as JSON. A file that ends too early is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from sentinel.errors import UnreadableDump

CHUNK_CHARS = 1 << 21
# A comma, a key without escapes, the colon after it, and the beginning of an object.
_NEXT = re.compile(r'[ \t\r\n]*,[ \t\r\n]*"([^"\\\x00-\x1f]*)"[ \t\r\n]*:[ \t\r\n]*(?=\{)')


def entries(file: Path, header: dict[str, object]) -> Iterator[tuple[str, object]]:
    """The pairs of "data" in order; the rest of the top level goes into `header`.

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
        self._decoder = json.JSONDecoder()

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
            yield from self._whole_pairs()
            self.skip_comma()
        self._at += 1

    def _whole_pairs(self) -> Iterator[tuple[str, object]]:
        """The pairs that follow, as long as the text at hand holds all of the next one and its value is an object."""
        text, decode = self._text, self._decoder.raw_decode
        while found := _NEXT.match(text, self._at):
            try:
                value, self._at = decode(text, found.end())
            except json.JSONDecodeError:
                return
            yield found[1], value

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
