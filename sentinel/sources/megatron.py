# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM and MindSpeed-LLM: console lines ` iteration 7/ 900 | lm loss: 1.7E+00 | ... |` and their golden files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sentinel.sources.ledger import Record
from sentinel.sources.lines import PLAIN_NUMBER, Line, Notes, number, own_texts, unglued
from sentinel.sources.reader import Parser
from sentinel.sources.values import numbers_of, whole_number

_BRACKETS = r"(?:\[[^\]\r\n]*\]\s*:?\s*)*"
_MARKER = re.compile(rf"\s*{_BRACKETS}iteration\s+(\d+)\s*/\s*\d+\s*\|")
_MARKER_BEGUN = re.compile(rf"\s*{_BRACKETS}iteration\s+\d+\s*/?\s*\d*\s*")
_CORE = re.compile(r"iteration\s+\d+\s*/\s*\d+\s*\||validation loss at iteration")
_VALIDATION = re.compile(rf"\s*{_BRACKETS}validation loss at iteration\s+(\d+)[^|]*\|")
_FIELD = re.compile(r"\s*([^|]*?[^|:\s])\s*:\s*(\S[^|]*?)\s*")
_PAIR = re.compile(rf"({PLAIN_NUMBER})\s*/\s*{PLAIN_NUMBER}")
# Sizes, texts and lists that stand as values and are no metrics.
_NO_METRIC = re.compile(r".*[A-Za-z/\[({'\"].*")


MAX_JOINED = 1 << 16
"""Characters of the longest record that is joined from wrapped lines."""

MAX_KEYS = 4096
"""Keys that are remembered, to join wrapped ones."""


class MegatronConsole(Parser):
    """Consoles of Megatron-LM and MindSpeed-LLM."""

    format = "megatron"

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes)
        self._pending: str | None = None
        """A record that may go on on the next line."""
        self._keys: set[str] = set()

    def line(self, line: Line) -> Iterable[Record]:
        """As `Parser.line`."""
        if "|" not in line.text and self._pending is None and "iteration" not in line.text:
            return ()
        return self._records(line)

    def settle(self) -> Iterable[Record]:
        """A record whose last field is closed goes out."""
        if self._pending is not None and self._pending.rstrip().endswith("|"):
            return self._flush()
        return ()

    def finish(self) -> Iterable[Record]:
        """As `Parser.finish`."""
        return self._flush()

    def _records(self, line: Line) -> Iterator[Record]:
        for own in unglued(own_texts(line.text), _CORE):
            ended, cut = line.ended or not own.last, line.cut and own.last
            if _MARKER.match(own.text) or _VALIDATION.match(own.text):
                yield from self._flush()
                if own.glued:
                    self.notes.add("glued_text", "something follows a record on its line")
                    yield from self._judge(own.text, ended=True, cut=True)
                elif ended and not cut:
                    self._pending = own.text
                else:
                    yield from self._judge(own.text, ended=ended, cut=cut)
            elif self._pending is not None and own.process is None and (text := self._join(own.text)) is not None:
                self.notes.add("wrapped_line", "a record went on on the next line; joined")
                self._pending = text if ended and not cut else None
                if self._pending is None:
                    yield from self._judge(text, ended=ended, cut=cut)
            else:
                yield from self._flush()
                self._other(own.text, ended=ended)

    def _join(self, text: str) -> str | None:
        """The pending record with this line behind it, or None where the line does not carry it on.

        The line end stands for a blank, unless only the text without it is a number or a key that was seen.
        """
        assert self._pending is not None
        before, closed = self._pending.rstrip(), self._pending.rstrip().endswith("|")
        piece = text.strip()
        if "|" not in piece or len(before) + len(piece) > MAX_JOINED:
            return None
        head, _, tail = piece.partition("|")
        fields = [*([head] if closed and head.strip() else []), *tail.removesuffix("|").split("|")]
        if not piece.endswith("|"):
            fields.pop()  # it goes on in its turn
        if not all(_FIELD.fullmatch(field) for field in fields if field.strip()):
            return None
        if closed or not head:
            return f"{before} {piece}"
        torn = before.rpartition("|")[2]
        return before + ("" if self._better_without_blank(torn, head) else " ") + piece

    def _better_without_blank(self, torn: str, head: str) -> bool:
        parted, joined = _FIELD.fullmatch(f"{torn} {head}"), _FIELD.fullmatch(torn + head)
        if joined is None:
            return False
        if parted is None or (number(parted.group(2)) is None and number(joined.group(2)) is not None):
            return True
        return joined.group(1) in self._keys and parted.group(1) not in self._keys

    def _flush(self) -> Iterator[Record]:
        pending, self._pending = self._pending, None
        if pending is not None:
            yield from self._judge(pending, ended=True, cut=not pending.rstrip().endswith("|"))

    def _judge(self, text: str, *, ended: bool, cut: bool) -> Iterator[Record]:
        validation = _VALIDATION.match(text)
        marker = validation or _MARKER.match(text)
        assert marker is not None
        body = text[marker.end() :].rstrip()
        open_end = cut or not ended
        if not ended:
            self.notes.add("truncated_line", "the file ends inside a record")
        fields = [field for field in body.split("|") if field.strip()]
        if open_end and fields and not body.endswith("|") and ":" in fields.pop():
            self.notes.add("value_cut", "the last value of a line may be incomplete and was dropped")
        metrics, whole = self._metrics(fields)
        if not metrics:
            return
        if len(self._keys) < MAX_KEYS:
            self._keys.update(metrics)
        if validation:
            metrics = {f"validation/{key}": value for key, value in metrics.items()}
        yield Record(int(marker.group(1)), metrics, cut=open_end or not whole)

    def _metrics(self, fields: Iterable[str]) -> tuple[dict[str, float], bool]:
        metrics: dict[str, float] = {}
        whole = True
        for field in fields:
            match = _FIELD.fullmatch(field)
            if match is None:
                continue
            key, text = match.group(1), match.group(2)
            value = number(text)
            if value is None and (pair := _PAIR.fullmatch(text)):
                self.notes.add("value_pair", f"{key} is a pair current/average; the first number was taken")
                value = float(pair.group(1))
            if value is not None:
                metrics[key] = value
            elif not _NO_METRIC.fullmatch(text):
                whole = False
                self.notes.add("value_cut", f"{key} could not be read: {text[:30]}")
            elif text[0] in "+-.0123456789" and "/" not in text:
                self.notes.add("unread_value", f"{key} was left out: {text[:30]}")
        return metrics, whole

    def _other(self, text: str, *, ended: bool) -> None:
        if not ended and _MARKER_BEGUN.fullmatch(text):
            self.notes.add("truncated_line", "the file ends inside a record")
        if _CORE.search(text):
            self.notes.add("rejected_line", f"holds what looks like a record, but does not begin with it: {text[:60]}")
            return
        first, *others = text.strip().removesuffix("|").split("|")
        begins = _FIELD.fullmatch(first) is not None or number(first) is not None
        if (
            begins
            and others
            and all((match := _FIELD.fullmatch(part)) and number(match.group(2)) is not None for part in others)
        ):
            self.notes.add("orphan_fragment", f"the tail of a record without its step was left out: {text[:40]}")

    def to_plain(self) -> dict[str, Any]:
        """As `Parser.to_plain`."""
        return {"pending": self._pending, "keys": sorted(self._keys)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """As `Parser.restore`."""
        self._pending, self._keys = state["pending"], set(state["keys"])


def golden_values(document: Mapping[str, Any], notes: Notes) -> list[Record]:
    """The records of a Megatron golden file: per metric a table of values by step."""
    steps: dict[int, dict[str, float]] = {}
    for key, table in document.items():
        if not isinstance(table, dict) or not isinstance(table.get("values"), dict):
            continue
        for label, value in numbers_of(table["values"], notes).items():
            step = whole_number(label)
            if step is not None:
                steps.setdefault(step, {})[key] = value
    return [Record(step, steps[step]) for step in sorted(steps)]


def mindspeed_baseline(document: Mapping[str, Any], notes: Notes) -> list[Record]:
    """The records of a MindSpeed-LLM test baseline: per metric an array, element i is step i+1."""
    steps: dict[int, dict[str, float]] = {}
    for key, values in document.items():
        if not is_series(values):
            continue
        named = {str(index): value for index, value in enumerate(values, start=1)}
        for label, value in numbers_of(named, notes).items():
            steps.setdefault(int(label), {})[key] = value
    if steps:
        notes.add("step_inferred", "no step anywhere: elements are numbered")
    return [Record(step, steps[step]) for step in sorted(steps)]


def is_series(values: object) -> bool:
    """Whether a JSON value is a non-empty array of numbers (some may be in quotes)."""
    return (
        isinstance(values, list)
        and bool(values)
        and all(isinstance(value, (int, float, str)) and not isinstance(value, bool) for value in values)
        and any(isinstance(value, (int, float)) for value in values)
    )
