# SPDX-License-Identifier: Apache-2.0
"""What a reader is: a small state machine, bytes in and readings out, the same for a finished file and a live one.

    feed(bytes)   the readings that are certain now
    settle()      nothing more came for the moment: what only waited for a possible continuation goes out
    finish()      the file has ended: the rest is judged as cut

`TextReader` joins the line core, a format's parser and the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from sentinel.records import Reading
from sentinel.sources.ledger import Ledger, Record
from sentinel.sources.lines import Line, Notes, Splitter


class Reader(Protocol):
    """One file's state machine."""

    @property
    def format(self) -> str:
        """Name of the format, as in `ReadResult.format`."""

    @property
    def notes(self) -> Notes:
        """What is odd about the data."""

    def feed(self, chunk: bytes) -> list[Reading]:
        """Readings that are certain after these further bytes."""

    def settle(self) -> list[Reading]:
        """Readings that only waited for a possible continuation."""

    def finish(self) -> list[Reading]:
        """Readings of a rest that will not go on."""

    def break_off(self) -> list[Reading]:
        """Readings of a rest that will not go on; further bytes are of another file of the same run."""

    def rewritten(self) -> None:
        """The file begins anew: count what comes as another attempt."""

    def resolution(self) -> float | None:
        """Smallest difference that the file can show; None where not limited or not known yet."""

    def summary(self) -> Mapping[str, float] | None:
        """The closing record of the run, where the format has one."""

    def to_plain(self) -> dict[str, Any]:
        """The whole state as plain values."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `to_plain`."""


class Parser:
    """A format's grammar: lines in, records out. Subclasses override what they need."""

    format = ""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def line(self, line: Line) -> Iterable[Record]:
        """Records that are certain after this line."""
        raise NotImplementedError

    def settle(self) -> Iterable[Record]:
        """No further line for the moment."""
        return ()

    def finish(self) -> Iterable[Record]:
        """No further line at all."""
        return ()

    def resolution(self) -> float | None:
        """Smallest difference that the file can show."""
        return None

    def summary(self) -> Mapping[str, float] | None:
        """The closing record of the run."""
        return None

    def to_plain(self) -> dict[str, Any]:
        """State as plain values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `to_plain`."""


class TextReader:
    """A reader of a line-based format."""

    def __init__(self, parser: type[Parser]) -> None:
        self.notes = Notes()
        self.format = parser.format
        self._splitter = Splitter(self.notes)
        self._parser = parser(self.notes)
        self._ledger = Ledger(self.notes)

    def feed(self, chunk: bytes) -> list[Reading]:
        """As `Reader.feed`."""
        return self._lines(self._splitter.feed(chunk))

    def settle(self) -> list[Reading]:
        """As `Reader.settle`."""
        return [self._ledger.add(record) for record in self._parser.settle()]

    def finish(self) -> list[Reading]:
        """As `Reader.finish`."""
        readings = self.break_off()
        self._ledger.finish()
        return readings

    def break_off(self) -> list[Reading]:
        """As `Reader.break_off`."""
        readings = self._lines(self._splitter.finish())
        return readings + [self._ledger.add(record) for record in self._parser.finish()]

    def rewritten(self) -> None:
        """As `Reader.rewritten`."""
        self._ledger.rewritten()

    def resolution(self) -> float | None:
        """As `Reader.resolution`."""
        return self._parser.resolution()

    def summary(self) -> Mapping[str, float] | None:
        """As `Reader.summary`."""
        return self._parser.summary()

    def to_plain(self) -> dict[str, Any]:
        """As `Reader.to_plain`."""
        return {
            "notes": self.notes.to_plain(),
            "splitter": self._splitter.to_plain(),
            "parser": self._parser.to_plain(),
            "ledger": self._ledger.to_plain(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """As `Reader.restore`."""
        self.notes.restore(state["notes"])
        self._splitter.restore(state["splitter"])
        self._parser.restore(state["parser"])
        self._ledger.restore(state["ledger"])

    def _lines(self, lines: list[Line]) -> list[Reading]:
        add, parse = self._ledger.add, self._parser.line
        return [add(record) for line in lines for record in parse(line)]
