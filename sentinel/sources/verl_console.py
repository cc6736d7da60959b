# SPDX-License-Identifier: Apache-2.0
"""verl's console: `step:7 - actor/entropy:0.41 - ... - critic/score/mean:0.29`, in all its versions.

Covers three decimals (old), numpy's reprs (numpy 2), W&B's output.log and its cut lines, SFT lines glued to bars,
wrapped pastes, and the variant `step=7` with one quoted key a line below it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sentinel.sources.ledger import Record
from sentinel.sources.lines import Line, Notes, OwnText, number, own_texts, plain
from sentinel.sources.reader import Parser
from sentinel.sources.verl_fields import (
    FIELD,
    FOREIGN,
    GLUED,
    KEY_BEGUN,
    MARKER,
    MARKER_BEGUN,
    NUMBER_TAIL,
    OPEN,
    FieldList,
    Precision,
    marker_end,
    parse_fields,
    unglued_steps,
    without_last,
)

_QUOTED = re.compile(r"'([^'\s]+/[^'\s]+)': (\S+)")
MAX_JOINED = 1 << 16
"""Characters of the longest record that is joined from wrapped lines."""

_STRONG = 3
"""Fields that make a line a step line even if its end is not clean."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A step line that may go on on the next one."""

    text: str
    process: str | None
    open_end: bool
    """Its end may be missing."""
    ended: bool
    glued: bool
    width: int
    """Length of its last line, prefix included."""


class VerlConsole(Parser):
    """Lines of a verl console -> records."""

    format = "verl_console"

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes)
        self._pending: _Pending | None = None
        self._width = 0
        self._quoted: tuple[int, str | None] | None = None
        self._precision = Precision()
        self._complaining = False

    def line(self, line: Line) -> Iterable[Record]:
        """Most lines of a console are of no interest and are passed over by a look for three marks."""
        text = line.text
        if self._pending is not None or self._quoted is not None or "step:" in text or "step=" in text:
            return self._records(line)
        if " - " in text and text.count("/") > 1:
            return self._records(line)
        if "\x1b" in text and "step" in plain(text):
            return self._records(line)
        if not line.ended and "step" in text:
            return self._records(line)
        if "is not finite" in text:
            self._complaint(text)
        return ()

    def _records(self, line: Line) -> Iterator[Record]:
        for own in unglued_steps(own_texts(line.text)):
            ended, cut = line.ended or not own.last, line.cut and own.last
            if self._inside_a_key() and self._carries_on(own, len(line.text), ended=ended, cut=cut):
                continue
            if MARKER.match(own.text):
                yield from self._flush()
                self._quoted, self._complaining = None, False
                open_end = cut or not ended
                self._pending = _Pending(own.text, own.process, open_end, ended, own.glued, len(line.text))
                if open_end or own.glued:
                    yield from self._flush()
            elif not self._carries_on(own, len(line.text), ended=ended, cut=cut):
                yield from self._flush()
                yield from self._other(own, ended=ended)

    def settle(self) -> Iterable[Record]:
        """The last step line goes out unless it visibly goes on, or wraps were seen in this file."""
        pending = self._pending
        if pending is None or self._width or self._incomplete(pending.text):
            return ()
        return self._flush()

    def finish(self) -> Iterable[Record]:
        """As `Parser.finish`."""
        yield from self._flush()
        self._quoted = None
        if self._precision.resolution is not None:
            self.notes.add("low_precision", "all values have three decimals: differences below 0.001 are invisible")

    def resolution(self) -> float | None:
        """0.001 where every value was printed with three decimals."""
        return self._precision.resolution

    # ------------------------------------------------------------------ wraps

    def _carries_on(self, own: OwnText, width: int, *, ended: bool, cut: bool) -> bool:
        """Joins a line without prefix and marker to the step line before, if the two read as one list."""
        pending, piece = self._pending, own.text
        if pending is None or own.process is not None or own.bars or not piece.strip():
            return False
        lists = " - " in piece or piece.startswith("- ") or piece.endswith(" -")
        if not (lists or pending.width == self._width or self._incomplete(pending.text)):
            if NUMBER_TAIL.fullmatch(piece):
                # The end of the number above, or a number of its own: nobody can tell.
                self._pending = replace(pending, open_end=True)
            return False
        for joined in (pending.text + piece, f"{pending.text} {piece}"):
            fields = parse_fields(joined[marker_end(joined) :])
            if not fields.damaged and OPEN.fullmatch(fields.rest) and len(joined) <= MAX_JOINED:
                self._width = pending.width
                self.notes.add("wrapped_line", "a record went on on the next line; joined")
                self._pending = _Pending(joined, pending.process, cut or not ended, ended, own.glued, width)
                return True
        return False

    def _inside_a_key(self) -> bool:
        """Whether the line before broke off where only a key can: `perf/time_per_`, and what follows may read like a new step."""
        pending = self._pending
        return pending is not None and pending.ended and KEY_BEGUN.search(pending.text) is not None

    @staticmethod
    def _incomplete(text: str) -> bool:
        """Whether the list visibly goes on: it ends in a separator, or its last field is no `key:number` or ends in a point."""
        if text.rstrip().endswith(" -"):
            return True
        last = text[marker_end(text) :].rpartition(" - ")[2]
        field = FIELD.match(last)
        rest = last[field.end() :] if field else last
        return last.endswith(".") or field is None or bool(rest and not GLUED.match(rest))

    # ------------------------------------------------------------------ a step line

    def _flush(self) -> Iterator[Record]:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        marker = MARKER.match(pending.text)
        assert marker is not None
        body = pending.text[marker.end() :]
        body, dropped = without_last(body) if pending.open_end else (body, False)
        if not body.strip() and not dropped:
            self._truncated(pending, dropped=False)
            return
        fields = parse_fields(body) if body else FieldList({}, "")
        record = self._judge(int(marker.group(2)), fields, pending, dropped=dropped)
        if record is not None:
            if marker.group(1) == "=":
                self._quoted = (record.step, pending.process)
            yield record

    def _judge(self, printed_step: int, fields: FieldList, pending: _Pending, *, dropped: bool) -> Record | None:
        metrics = fields.metrics
        named = any("/" in key for key in metrics)
        if (fields.damaged or fields.rest) and not (named and (pending.glued or self._strong(fields))):
            if named:
                self.notes.add("rejected_line", f"looks like a step line, but is not whole: {pending.text[:60]}")
            return None
        if not named and not pending.open_end:
            return None
        cut = pending.open_end or fields.damaged
        if fields.damaged:
            self.notes.add("value_cut", f"a field in the middle of step {printed_step} could not be read")
        if fields.rest:
            cut |= self._rest(fields, metrics, glued=pending.glued)
        elif pending.glued:
            self.notes.add("glued_text", "foreign text after the last value was removed")
        if pending.open_end and (named or dropped):
            self._truncated(pending, dropped=dropped)
        if not named:
            return None
        self._precision.see(fields)
        return Record(self._step(printed_step, metrics), metrics, cut=cut)

    @staticmethod
    def _strong(fields: FieldList) -> bool:
        """Enough of a step line to be one even if a part of it cannot be read."""
        keys = [*fields.metrics, *([head.group(1)] if (head := FIELD.match(fields.rest)) else [])]
        return len(keys) >= _STRONG and sum("/" in key for key in keys) > 1

    def _rest(self, fields: FieldList, metrics: dict[str, float], *, glued: bool) -> bool:
        """The text after the last whole field: a number with foreign text behind it, or a damaged end (then True)."""
        head = FIELD.match(fields.rest)
        tail = fields.rest[head.end() :] if head else ""
        if head and (FOREIGN.match(tail) or GLUED.match(tail) or (glued and not tail.strip())):
            value = number(head.group(2))
            assert value is not None
            metrics[head.group(1)] = value
            self.notes.add("glued_text", f"foreign text after {head.group(1)} was removed")
            return False
        if glued and not head:
            self.notes.add("glued_text", "foreign text after the last value was removed")
        code = "value_cut" if ":" in fields.rest else "torn_line"
        self.notes.add(code, f"the end of a line could not be read: {fields.rest[:40]}")
        return True

    def _truncated(self, pending: _Pending, *, dropped: bool) -> None:
        if not pending.ended:
            self.notes.add("truncated_line", "the file ends inside a record")
        if dropped:
            self.notes.add("value_cut", "the last value of a line may be incomplete and was dropped")

    def _step(self, printed_step: int, metrics: Mapping[str, float]) -> int:
        told = metrics.get("training/global_step")
        if told is None or not math.isfinite(told) or told != int(told):
            return printed_step
        if int(told) != printed_step:
            self.notes.add(
                "step_mismatch", f"printed step {printed_step}, training/global_step {int(told)}: the latter counts"
            )
        return int(told)

    # ------------------------------------------------------------------ other lines that matter

    def _other(self, own: OwnText, *, ended: bool) -> Iterator[Record]:
        text = own.text
        if "is not finite" in text:
            self._complaint(text)
        if not ended and MARKER_BEGUN.fullmatch(text.strip()):
            self.notes.add("truncated_line", "the file ends inside a record")
        if self._quoted is not None and self._quoted[1] == own.process:
            yield from self._quoted_field(text, ended=ended)
        if " - " in text and text.count("/") > 1:
            # A damaged marker, or the tail of a record whose beginning is elsewhere.
            fields = parse_fields(text.partition(" - ")[2] if text.startswith("s") else text.strip())
            if len(fields.metrics) >= 2 and sum("/" in key for key in fields.metrics) == len(fields.metrics):
                self.notes.add("orphan_fragment", f"the tail of a record without its step was left out: {text[:40]}")

    def _quoted_field(self, text: str, *, ended: bool) -> Iterator[Record]:
        assert self._quoted is not None
        match = _QUOTED.fullmatch(text)
        value = number(match.group(2)) if match else None
        if match and not ended:
            self.notes.add("truncated_line", "the file ends inside a record")
            self.notes.add("value_cut", "the last value of a line may be incomplete and was dropped")
        elif match and value is not None:
            self._precision.see(FieldList({match.group(1): value}, match.group(2)))
            yield Record(self._quoted[0], {match.group(1): value})

    def _complaint(self, text: str) -> None:
        if "grad_norm is not finite" in text and not self._complaining:
            self._complaining = True
            self.notes.again("worker_non_finite", text.strip()[:200])

    # ------------------------------------------------------------------ state

    def to_plain(self) -> dict[str, Any]:
        """As `Parser.to_plain`."""
        pending = self._pending
        return {
            "pending": None if pending is None else [pending.text, pending.process, pending.width],
            "width": self._width,
            "quoted": self._quoted,
            "precision": self._precision.to_plain(),
            "complaining": self._complaining,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """As `Parser.restore`."""
        if state["pending"] is not None:
            text, process, width = state["pending"]
            self._pending = _Pending(text, process, open_end=False, ended=True, glued=False, width=width)
        self._width, self._complaining = int(state["width"]), bool(state["complaining"])
        self._quoted = None if state["quoted"] is None else (int(state["quoted"][0]), state["quoted"][1])
        self._precision.restore(state["precision"])
