# SPDX-License-Identifier: Apache-2.0
"""Consoles of other trainers, one small grammar each: slime, torchtitan, nanotron, mmengine; W&B's summary file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from sentinel.sources.ledger import Record
from sentinel.sources.lines import Line, Notes, number, own_texts, unglued
from sentinel.sources.reader import Parser
from sentinel.sources.values import numbers_of, python_dict, whole_number

_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNIT = re.compile(r"([-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(?:[KMGT]i?B|%)(?:\(.*\))?")
_SCALED = re.compile(r"([-+]?\d+(?:\.\d+)?)([KMGT])")


class Table(Parser):
    """Frame of the small grammars: a marker with the step, then fields."""

    marker: ClassVar[re.Pattern[str]]
    core: ClassVar[re.Pattern[str]]
    """The part of the marker that cannot be anything else, wherever it stands."""
    begun: ClassVar[re.Pattern[str]]
    """The marker, or its beginning: what a cut last line must look like to be called one."""

    def line(self, line: Line) -> Iterable[Record]:
        """As `Parser.line`."""
        if not self.interesting(line.text) and "\x1b" not in line.text:
            return ()
        return self._records(line)

    def interesting(self, text: str) -> bool:
        """A quick look: may the line hold a record?"""
        return ":" in text

    def _records(self, line: Line) -> Iterator[Record]:
        for own in unglued(own_texts(line.text), self.core):
            open_end = own.glued or ((line.cut or not line.ended) and own.last)
            match = self.marker.match(own.text)
            if match is None:
                self.other(own.text)
                if self.core.search(own.text):
                    self.notes.add(
                        "rejected_line", f"holds what looks like a record, but does not begin so: {own.text[:60]}"
                    )
                if open_end and not line.ended and self.begun.fullmatch(own.text):
                    self.notes.add("truncated_line", "the file ends inside a record")
                continue
            if own.glued:
                self.notes.add("glued_text", "something follows a record on its line")
            elif open_end and not line.ended:
                self.notes.add("truncated_line", "the file ends inside a record")
            metrics, whole = self.fields(match, own.text[match.end() :], open_end=open_end)
            if metrics:
                yield Record(int(match.group("step")), metrics, cut=open_end or not whole)

    def fields(self, match: re.Match[str], body: str, *, open_end: bool) -> tuple[dict[str, float], bool]:
        """The metrics of a record's body, and whether all of it could be read."""
        raise NotImplementedError

    def other(self, text: str) -> None:
        """A line without the marker."""

    def cut_value(self, what: str) -> None:
        """A value was dropped."""
        self.notes.add("value_cut", f"a value may be incomplete and was dropped: {what[:40]}")


class Slime(Table):
    """slime and ProRL: `perf 7: {dict}` of the rollout side and `step 7: {dict}` of the trainer."""

    format = "slime"
    marker = re.compile(
        r"\s*(?:\[[^\]]*\]\s*)?(?:[\w./]+:\d+ - )?(?:step|perf|rollout|eval|passrate) (?P<step>\d+): (?=\{)"
    )
    core = re.compile(r"\b(?:step|perf|rollout|eval|passrate) \d+: \{")
    begun = re.compile(r"\s*(?:\[[^\]]*\]\s*)?(?:[\w./]+:\d+ - )?(?:step|perf|rollout|eval|passrate) \d+:?\s*")

    def interesting(self, text: str) -> bool:
        """As `Table.interesting`."""
        return ": {" in text

    def fields(self, match: re.Match[str], body: str, *, open_end: bool) -> tuple[dict[str, float], bool]:
        """A dict is all or nothing."""
        del match
        body = body.strip()
        values = python_dict(body[1:-1]) if body.endswith("}") else None
        if values is None:
            if not open_end:
                self.notes.add("corrupt_line", f"a record that cannot be read was left out: {body[:60]}")
            return {}, False
        return numbers_of(values, self.notes), True


class TorchTitan(Table):
    """torchtitan: `step:  7  loss:  8.0625  grad_norm:  1.4375 ...`, fields parted by two blanks."""

    format = "torchtitan"
    _HEAD = r"(?:\[rank\d+\]:)?(?:\[[^\]]*\]\s*)*(?:[\d:,.\- ]+)?(?: ?- [\w.]+)*(?: - )?"
    marker = re.compile(rf"{_HEAD}(?P<validate>validate )?step:\s+(?P<step>\d+)(?:\s{{2,}}|$)")
    core = re.compile(r"(?:validate )?step:\s+\d+\s{2,}")
    begun = re.compile(rf"{_HEAD}(?:validate )?step:\s*\d*\s*")
    _PART = re.compile(r"(\S+?):\s*(\S+)")

    def interesting(self, text: str) -> bool:
        """As `Table.interesting`."""
        return "step:" in text

    def fields(self, match: re.Match[str], body: str, *, open_end: bool) -> tuple[dict[str, float], bool]:
        """As `Table.fields`."""
        prefix = "validate/" if match.group("validate") else ""
        metrics: dict[str, float] = {}
        whole = True
        parts = re.split(r"\s{2,}(?=\S+?:)", body.strip())
        if open_end and parts and body == body.rstrip():
            last = parts.pop()
            if ":" in last:
                self.cut_value(last)
        for part in parts:
            found = self._PART.fullmatch(part)
            value = self._value(found.group(1), found.group(2)) if found else None
            if found and value is not None:
                metrics[prefix + found.group(1)] = value
            elif part:
                whole = False
                self.cut_value(part)
        return metrics, whole

    def _value(self, key: str, text: str) -> float | None:
        if (value := number(text)) is not None:
            return value
        if unit := _UNIT.fullmatch(text):
            self.notes.add("unit_suffix", f"{key} has a unit: {text}")
            return number(unit.group(1))
        return None


class Nanotron(Table):
    """nanotron: `iteration: 7 / 90 | consumed_tokens: 48.3G | lm_loss: 3.07 | ...`; K, M, G, T are powers of 1000."""

    format = "nanotron"
    marker = re.compile(r"(?:[\d/:\- ]+)?(?:\[[^\]]*\]:?\s*)*iteration: (?P<step>\d+) / \d+ \|")
    core = re.compile(r"iteration: \d+ / \d+ \|")
    begun = re.compile(r"(?:[\d/:\- ]+)?(?:\[[^\]]*\]:?\s*)*iteration: \d*(?: / ?\d* ?)?")
    _PART = re.compile(r"\s*([^:|]*[^:|\s]):\s*(\S+)\s*")

    def interesting(self, text: str) -> bool:
        """As `Table.interesting`."""
        return "iteration" in text or " | " in text

    def fields(self, match: re.Match[str], body: str, *, open_end: bool) -> tuple[dict[str, float], bool]:
        """As `Table.fields`."""
        del match
        metrics: dict[str, float] = {}
        whole = True
        parts = body.split("|")
        if open_end and ":" in (last := parts.pop()):
            self.cut_value(last)
        for part in parts:
            found = self._PART.fullmatch(part)
            value = self._value(found.group(1), found.group(2)) if found else None
            if found and value is not None:
                metrics[found.group(1)] = value
            elif part.strip() and not (found and re.fullmatch(r"[A-Za-z_./-]+|.*[\[{'\"].*", found.group(2))):
                whole = False
                self.cut_value(part)
        return metrics, whole

    def _value(self, key: str, text: str) -> float | None:
        if (value := number(text)) is not None:
            return value
        if scaled := _SCALED.fullmatch(text):
            self.notes.add("unit_suffix", f"{key} has a scale: {text}")
            return float(scaled.group(1)) * _SCALES[scaled.group(2)]
        return None

    def other(self, text: str) -> None:
        """The tail of an overwritten line."""
        parts = [self._PART.fullmatch(part) for part in text.split("|")]
        if sum(part is not None for part in parts) >= 2 and None not in parts[1:]:
            self.notes.add("orphan_fragment", f"the tail of a record without its step was left out: {text[:40]}")


class MmEngine(Table):
    """mmengine and xtuner: `Iter(train) [ 340/1800]  lr: 3.2500e-05  eta: 2:41:09  time: 14.2500 ...`."""

    format = "mmengine"
    _HEAD = r"(?:[\d/\-]+ [\d:,]+ - \w+ - \w+ - )?"
    marker = re.compile(_HEAD + r"Iter\(train\)\s*\[\s*(?P<step>\d+)/\d+\]")
    core = re.compile(r"Iter\(train\)")
    begun = re.compile(_HEAD + r"Iter\(train\)\s*(?:\[\s*\d*/?\d*)?")
    _PART = re.compile(r"(\S+?):\s+(\S.*)")
    _TEXTS: ClassVar[frozenset[str]] = frozenset(("eta",))

    def interesting(self, text: str) -> bool:
        """As `Table.interesting`."""
        return "Iter(" in text

    def fields(self, match: re.Match[str], body: str, *, open_end: bool) -> tuple[dict[str, float], bool]:
        """As `Table.fields`."""
        del match
        metrics: dict[str, float] = {}
        whole = True
        parts = [part for part in re.split(r"\s{2,}", body.strip()) if part]
        if open_end and parts and body == body.rstrip():
            last = parts.pop()
            if ":" in last:
                self.cut_value(last)
        for part in parts:
            found = self._PART.fullmatch(part)
            if found and found.group(1) in self._TEXTS:
                continue
            value = number(found.group(2)) if found else None
            if found and value is not None:
                metrics[found.group(1)] = value
            else:
                whole = False
                self.cut_value(part)
        return metrics, whole


def wandb_summary(document: Mapping[str, Any], notes: Notes) -> list[Record]:
    """The one record of W&B's `wandb-summary.json`: last values, without history."""
    shown = {key: value for key, value in document.items() if not key.startswith("_")}
    metrics = numbers_of(shown, notes)
    notes.add("last_value_only", "one set of last values and no history: no drift can be judged")
    step = whole_number(document.get("_step"))
    if step is None:
        step = whole_number(metrics.get("training/global_step")) or 0
    return [Record(step, metrics)] if metrics else []
