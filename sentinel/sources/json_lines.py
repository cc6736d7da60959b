# SPDX-License-Identifier: Apache-2.0
"""Frame of the readers of JSON lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sentinel.sources.ledger import Record
from sentinel.sources.lines import Line
from sentinel.sources.reader import Parser
from sentinel.sources.values import loads


class JsonLines(Parser):
    """Bad lines are noted and passed over, a cut last line is left out whole."""

    def line(self, line: Line) -> Iterable[Record]:
        """As `Parser.line`."""
        text = line.text
        if not text or text.isspace():
            return ()
        record = self.fast(text)
        if record is not None:
            return (record,)
        try:
            value = loads(text, self.notes)
        except ValueError:
            if line.ended:
                self.notes.add("corrupt_line", f"not JSON, passed over: {text[:60]}")
            else:
                self.notes.add("truncated_line", "the file ends inside a record")
            return ()
        if not isinstance(value, dict):
            self.notes.add("corrupt_line", f"no JSON object, passed over: {text[:60]}")
            return ()
        return self.record(value)

    def fast(self, text: str) -> Record | None:
        """The record of a line of the usual form, or None: then `record` decides."""
        del text
        return None

    def record(self, value: dict[str, Any]) -> Iterable[Record]:
        """The records of a JSON object."""
        raise NotImplementedError
