# SPDX-License-Identifier: Apache-2.0
"""The Hugging Face family: consoles of Trainer, TRL and ms-swift, `trainer_state.json`, ms-swift's `logging.jsonl`.

A console prints one Python dict a record, mostly without its step, which is then taken from the progress bar before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sentinel.sources.json_lines import JsonLines
from sentinel.sources.ledger import Record
from sentinel.sources.lines import Line, Notes, OwnText, own_texts, unglued
from sentinel.sources.reader import Parser
from sentinel.sources.values import numbers_of, python_dict, whole_number

_TOTAL = re.compile(r"\s*Total optimization steps = ([\d,]+)")
_CORE = re.compile(r"(?:^|(?<=\}))\s*\{'")
_BANNER = "Running training *****"
_MARKS = frozenset(("loss", "grad_norm", "learning_rate", "train_runtime", "global_step/max_steps", "train_loss"))
_FALLING = ("num_tokens", "epoch")
_STEP_KEYS = ("step", "global_step")
MAX_DICT = 1 << 16
"""Characters of the longest dict that is joined from wrapped lines."""


def is_log_record(values: Mapping[str, object]) -> bool:
    """Whether a dict is a record of the trainer and not some other dict of the program."""
    return not _MARKS.isdisjoint(values) or any(key.startswith("eval_") for key in values)


def told_step(values: Mapping[str, object]) -> int | None:
    """The step that the record itself names."""
    for key in _STEP_KEYS:
        if (step := whole_number(values.get(key))) is not None:
            return step
    pair = values.get("global_step/max_steps")
    return whole_number(pair.partition("/")[0]) if isinstance(pair, str) else None


class Steps:
    """Steps and restarts of records that may not tell them."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.total: int | None = None
        self._tells = False
        self.bar: int | None = None
        self._count = 0
        self._last: dict[str, float] = {}
        self._restart = False
        self._closed = False

    def see_bars(self, bars: Iterable[tuple[int, int]]) -> None:
        """A training bar is one with the announced total, else with the total of the first bar."""
        for count, total in bars:
            if self.total is None:
                self.total = total
            if total == self.total:
                self.bar = count

    def announce(self, total: int) -> None:
        """The total number of optimisation steps was printed."""
        if self.total != total:
            self.bar = None
        self.total = total

    def banner(self) -> None:
        """Training begins (again)."""
        self._restart = True
        self.bar = self.total = None

    def close(self) -> None:
        """The closing record came: a training record after it belongs to another attempt."""
        self._closed = True

    def record(self, values: Mapping[str, object], metrics: dict[str, float]) -> Iterator[Record]:
        """The record with its step; none where the others told their step and this one does not."""
        evaluation = any(key.startswith("eval_") for key in metrics) and "loss" not in metrics
        step = told_step(values)
        untold = step is None and self.bar is None
        if untold and self._tells:
            self._notes.add("rejected_line", f"a record without its step, which others tell: {str(values)[:60]}")
            return
        self._tells |= step is not None
        restart = self._restart or (self._closed and not evaluation) or (untold and self._fell(metrics))
        restart = restart and bool(self._last)
        if restart:
            self._count, self._last = 0, {}
        self._restart = self._closed = False
        self._last |= {key: metrics[key] for key in _FALLING if key in metrics} or {"": 0.0}
        if step is None:
            step = self._untold(evaluation=evaluation)
        yield Record(step, {key: v for key, v in metrics.items() if key not in _STEP_KEYS}, restart=restart)

    def _untold(self, *, evaluation: bool) -> int:
        if self.bar is not None:
            self._notes.add("step_from_bar", "the step was taken from the progress bar")
            return self.bar
        self._notes.add("step_inferred", "no step anywhere: records are numbered")
        if not (evaluation and self._count):
            self._count += 1
        return self._count

    def _fell(self, metrics: Mapping[str, float]) -> bool:
        return any(key in metrics and key in self._last and metrics[key] < self._last[key] for key in _FALLING)

    def to_plain(self) -> list[Any]:
        """State as plain values."""
        return [self.total, self.bar, self._count, self._last, self._restart, self._closed, self._tells]

    def restore(self, state: list[Any]) -> None:
        """The inverse of `to_plain`."""
        self.total, self.bar, self._count, last, self._restart, self._closed, self._tells = state
        self._last = {key: float(value) for key, value in last.items()}


class HfConsole(Parser):
    """Consoles of Trainer, TRL and ms-swift."""

    format = "hf_trainer"

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes)
        self._steps = Steps(notes)
        self._open: str | None = None
        self._summary: dict[str, float] | None = None

    def line(self, line: Line) -> Iterable[Record]:
        """As `Parser.line`."""
        text = line.text
        if self._open is None and "'" not in text and "%|" not in text and "*" not in text and "Total" not in text:
            return ()
        return self._records(line)

    def finish(self) -> Iterable[Record]:
        """As `Parser.finish`."""
        self._drop_open()
        return ()

    def summary(self) -> Mapping[str, float] | None:
        """The `train_runtime` record, of the last attempt that has one."""
        return self._summary

    def _records(self, line: Line) -> Iterator[Record]:
        for own in unglued(own_texts(line.text), _CORE):
            self._steps.see_bars(own.bars)
            text = own.text.strip()
            if not text:
                continue
            if _BANNER in text:
                self._steps.banner()
            elif match := _TOTAL.match(own.text):
                self._steps.announce(int(match.group(1).replace(",", "")))
            yield from self._dict(own, text, line)

    def _dict(self, own: OwnText, text: str, line: Line) -> Iterator[Record]:
        ended = line.ended or not own.last
        if self._open is not None and not text.startswith("{"):
            joined = self._open + own.text.rstrip()
            values = _between_braces(joined)
            if values is not None and is_log_record(values):
                self.notes.add("wrapped_line", "a record went on on the next line; joined")
                self._open = None
                yield from self._take(values)
                return
            if ended and "}" not in text and len(joined) < MAX_DICT:
                self._open = joined
                return
        self._drop_open()
        if text.startswith("{'") or (text.startswith("'") and text.endswith("}")):
            yield from self._whole(text, ended=ended, cut=line.cut and own.last)
        elif text.count("': ") > 2 and any(f"'{mark}': " in text for mark in _MARKS):
            self.notes.add("rejected_line", f"holds what looks like a record, but is no whole one: {text[:60]}")

    def _whole(self, text: str, *, ended: bool, cut: bool) -> Iterator[Record]:
        repaired = not text.startswith("{")
        values = _between_braces("{" + text if repaired else text)
        if values is not None:
            if is_log_record(values):
                if repaired:
                    self.notes.add("repaired_line", "a record was read although its opening brace is missing")
                yield from self._take(values)
            return
        known = any(f"'{mark}'" in text for mark in _MARKS) or "'eval_" in text
        if cut and known:
            self.notes.add("value_cut", "a record that was cut at 4096 characters was left out")
        elif not ended and known:
            self.notes.add("truncated_line", "the file ends inside a record")
        elif not repaired and "}" not in text:
            self._open = text
        elif known:
            self.notes.add("corrupt_line", f"a record that cannot be read was left out: {text[:60]}")

    def _take(self, values: dict[str, object]) -> Iterator[Record]:
        metrics = numbers_of(values, self.notes)
        if "train_runtime" in metrics:
            self._summary = metrics
            self._steps.close()
        elif metrics:
            yield from self._steps.record(values, metrics)

    def _drop_open(self) -> None:
        if self._open is not None and any(f"'{mark}'" in self._open for mark in _MARKS):
            self.notes.add("corrupt_line", f"a record without end was left out: {self._open[:60]}")
        self._open = None

    def to_plain(self) -> dict[str, Any]:
        """As `Parser.to_plain`."""
        return {"steps": self._steps.to_plain(), "open": self._open, "summary": self._summary}

    def restore(self, state: Mapping[str, Any]) -> None:
        """As `Parser.restore`."""
        self._steps.restore(state["steps"])
        self._open, self._summary = state["open"], state["summary"]


def _between_braces(text: str) -> dict[str, object] | None:
    if not (text.startswith("{") and text.endswith("}")):
        return None
    return python_dict(text[1:-1])


class MsSwiftLog(JsonLines):
    """ms-swift's `logging.jsonl`, and other flat records of a trainer as JSON lines."""

    format = "ms_swift_jsonl"

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes)
        self._steps = Steps(notes)
        self._summary: dict[str, float] | None = None

    def record(self, value: dict[str, Any]) -> Iterable[Record]:
        """As `JsonLines.record`; records of run facts are passed over."""
        if not is_log_record(value):
            return ()
        metrics = numbers_of(value, self.notes)
        if "train_runtime" in metrics:
            self._summary = metrics
            self._steps.close()
            return ()
        return self._steps.record(value, metrics) if metrics else ()

    def summary(self) -> Mapping[str, float] | None:
        """As `Parser.summary`."""
        return self._summary

    def to_plain(self) -> dict[str, Any]:
        """As `Parser.to_plain`."""
        return {"steps": self._steps.to_plain(), "summary": self._summary}

    def restore(self, state: Mapping[str, Any]) -> None:
        """As `Parser.restore`."""
        self._steps.restore(state["steps"])
        self._summary = state["summary"]


def trainer_state(document: Mapping[str, Any], notes: Notes) -> tuple[list[Record], dict[str, float] | None]:
    """The records and the closing record of a `trainer_state.json`."""
    steps, summary = Steps(notes), None
    records: list[Record] = []
    for entry in document["log_history"]:
        if not isinstance(entry, dict):
            continue
        metrics = numbers_of(entry, notes)
        if "train_runtime" in metrics:
            summary = {key: value for key, value in metrics.items() if key not in _STEP_KEYS}
            steps.close()
        elif metrics:
            records += steps.record(entry, metrics)
    return records, summary
