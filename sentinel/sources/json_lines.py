# SPDX-License-Identifier: Apache-2.0
"""Frame of the readers of JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sentinel.sources.ledger import Record
from sentinel.sources.lines import Line, Notes
from sentinel.sources.reader import Parser
from sentinel.sources.values import first_value


class JsonLines(Parser):
    """Bad lines are noted and passed over, a cut last line is left out whole."""

    strict = True
    """Bare NaN and Infinity are worth a remark."""

    def line(self, line: Line) -> Iterable[Record]:
        """As `Parser.line`."""
        text = line.text
        if not text or text.isspace():
            return ()
        record = self.fast(text)
        if record is not None:
            return (record,)
        return self._slowly(line)

    def _slowly(self, line: Line) -> Iterator[Record]:
        text = line.text.strip()
        while text:
            value, end = self._object(text)
            if not end:
                if line.ended:
                    self.notes.add("corrupt_line", f"not JSON, passed over: {text[:60]}")
                else:
                    self.notes.add("truncated_line", "the file ends inside a record")
                return
            rest = text[end:].lstrip()
            if rest:
                # Either the line end between two records is lost, or something else was written behind this one.
                self.notes.add("glued_text", f"something follows a record on its line: {rest[:60]}")
            yield from self.record(value)
            text = rest

    def _object(self, text: str) -> tuple[dict[str, Any], int]:
        """The JSON object at the beginning of the text, and where it ends; 0 where there is none."""
        try:
            value, end = first_value(text, self.notes if self.strict else Notes()) if text[0] == "{" else ({}, 0)
        except ValueError:
            return {}, 0
        return value, end

    def fast(self, text: str) -> Record | None:
        """The record of a line of the usual form, or None: then `record` decides."""
        del text
        return None

    def record(self, value: dict[str, Any]) -> Iterable[Record]:
        """The records of a JSON object."""
        raise NotImplementedError
