# SPDX-License-Identifier: Apache-2.0
"""What every console log does to a line, and how it is undone: the one core that all text readers share.

Bytes become lines (line ends, carriage returns, the 4096 rule, a bounded length), a line becomes the texts that
its processes wrote (colours, Ray prefixes, progress bars), a text becomes numbers.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

CUT_LENGTH = 4096
"""Characters after which W&B's console capture cuts a line; a line of exactly this length may be cut."""

MAX_LINE = 1 << 22
"""Bytes of the longest line that is read. A longer one is left out whole and said so; memory stays flat."""


class Notes:
    """Warning codes in order of first appearance, each with the text that was first said about it."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._fresh: list[tuple[str, str]] = []

    def add(self, code: str, text: str = "") -> None:
        """Once per code."""
        if code not in self._texts:
            self._texts[code] = text
            self._fresh.append((code, text))

    def again(self, code: str, text: str = "") -> None:
        """As `add`, and heard by a live reader each time: a signal rather than a remark about the data."""
        self._texts.setdefault(code, text)
        self._fresh.append((code, text))

    @property
    def codes(self) -> tuple[str, ...]:
        """All codes so far."""
        return tuple(self._texts)

    def drain(self) -> tuple[tuple[str, str], ...]:
        """What was said since the last call, as (code, text)."""
        fresh, self._fresh = tuple(self._fresh), []
        return fresh

    def to_plain(self) -> dict[str, str]:
        """The codes and texts, without what waits to be drained."""
        return dict(self._texts)

    def restore(self, plain: dict[str, str]) -> None:
        """Codes of an earlier life: known, and not said again."""
        self._texts.update(plain)


class Line(NamedTuple):
    """A line without its end."""

    text: str
    ended: bool = True
    """False: the file ends here, without a line end."""
    cut: bool = False
    """The 4096 rule: its end may be missing."""


class Splitter:
    r"""Bytes in any portions -> lines. `\n`, `\r\n` and a lone `\r` end a line.

    What stands between two `\n` is released together, because the 4096 rule needs its length; a longer stretch
    cannot be a cut one, so its parts between `\r` go at once (progress bars without end).
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._tail = b""
        self._skipping = False
        self._begun = False

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that are whole now."""
        if b"\0" in chunk:
            # A file that was emptied under its writer's hands begins with a hole, which reads as zeros.
            self._notes.add("zero_bytes", "zero bytes were passed over")
            chunk = chunk.translate(None, b"\0")
        if self._skipping:
            end = chunk.find(b"\n")
            if end < 0:
                return []
            self._skipping, chunk = False, chunk[end + 1 :]
        end = chunk.rfind(b"\n")
        if end < 0:
            self._tail += chunk
            return self._relieve() if len(self._tail) > CUT_LENGTH else []
        body, self._tail = self._tail + chunk[:end], chunk[end + 1 :]
        lines = self._lines(self._text(body))
        if len(self._tail) > MAX_LINE:
            lines += self._relieve()
        return lines

    def finish(self) -> list[Line]:
        """The rest of a file that has ended, judged as possibly cut."""
        tail, self._tail = self._tail, b""
        text = self._text(tail) if tail else ""
        self._skipping = self._begun = False
        if not tail:
            return []
        ended = text.endswith("\r")
        lines = self._lines(text)
        if lines and not ended:
            lines[-1] = Line(lines[-1].text, ended=False, cut=lines[-1].cut)
        return lines

    def to_plain(self) -> dict[str, object]:
        """State as plain values; bytes as Latin-1 text."""
        return {"tail": self._tail.decode("latin-1"), "skipping": self._skipping, "begun": self._begun}

    def restore(self, plain: dict[str, object]) -> None:
        """The inverse of `to_plain`."""
        self._tail = str(plain["tail"]).encode("latin-1")
        self._skipping, self._begun = bool(plain["skipping"]), bool(plain["begun"])

    def _relieve(self) -> list[Line]:
        r"""Keeps the unfinished stretch small: whole `\r` parts go, an endless part is left out."""
        lines: list[Line] = []
        end = self._tail.rfind(b"\r", 0, len(self._tail) - 1)
        if end >= 0 and len(self._tail.decode("utf-8", "replace")) > CUT_LENGTH + 1:
            body, self._tail = self._tail[:end], self._tail[end + 1 :]
            lines = [Line(part) for part in self._text(body).split("\r")]
        if len(self._tail) > MAX_LINE:
            self._notes.add("line_too_long", f"a line of more than {MAX_LINE} bytes was left out")
            self._tail, self._skipping = b"", True
        return lines

    def _text(self, body: bytes) -> str:
        if not self._begun:
            self._begun = True
            body = body.removeprefix(codecs.BOM_UTF8)
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError:
            self._notes.add("invalid_utf8", "bytes that are not UTF-8 were replaced")
            return body.decode("utf-8", "replace")

    @staticmethod
    def _lines(text: str) -> list[Line]:
        lines: list[Line] = []
        add = lines.append
        for raw in text.split("\n"):
            if "\r" not in raw:
                add(Line(raw, True, len(raw) == CUT_LENGTH))
                continue
            whole = raw.removesuffix("\r")
            *parts, last = whole.split("\r")
            lines += map(Line, parts)
            add(Line(last, cut=CUT_LENGTH in (len(raw), len(whole))))
        return lines


# --------------------------------------------------------------------------- who wrote what on a line

_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_LONGEST_COLOUR = 40
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_RAY_PREFIX = re.compile(r"\((\w[\w.:-]* pid=\d+(?:, ip=[^)\s]+)?)\) ?")
# The part of a tqdm bar that cannot be anything else: percent, bar, count/total, times.
_BAR = re.compile(r"\d+%\|[^|\r\n]*\|\s*(\d+)/(\d+)\s*\[[^\]\r\n]*\]")


class OwnText(NamedTuple):
    """What one process wrote: without colours, prefix and the progress bar before it."""

    text: str
    process: str | None = None
    """Ray's name for the writer, `TaskRunner pid=7`; None where the line has no prefix."""
    bars: tuple[tuple[int, int], ...] = ()
    """(count, total) of the progress bars that stand before it on the same line."""
    glued: bool = False
    """Foreign text (a bar, another process) follows on the same line without a line end."""
    last: bool = True
    """Nothing follows on the line."""


def plain(text: str) -> str:
    """The text without colour codes and without Ray's `[repeated 3x across cluster]`."""
    last = text.rfind("\x1b")
    if last >= 0:
        # Usually the colours are those of the prefix: no need to look at kilobytes of numbers.
        end = last + _LONGEST_COLOUR if "\x1b]" not in text else len(text)
        text = _ANSI.sub("", text[:end]) + text[end:]
    if "[repeated " in text:
        text = _REPEATED.sub("", text)
    return text


def own_texts(text: str) -> list[OwnText]:
    """The texts of one line in order; the usual line has one."""
    text = plain(text)
    head = _RAY_PREFIX.match(text)
    process, start = (head.group(1), head.end()) if head else (None, 0)
    if "%|" not in text and text.find(" pid=", start) < 0:
        return [OwnText(text[start:], process)]
    found: list[OwnText] = []
    bars: list[tuple[int, int]] = []
    marks = [(m.start(), m.end(), m) for m in (*_BAR.finditer(text, start), *_RAY_PREFIX.finditer(text, start))]
    for begin, end, match in sorted(marks, key=lambda mark: mark[0]):
        if begin < start:
            continue
        if text[start:begin].strip():
            found.append(OwnText(text[start:begin], process, tuple(bars), glued=True, last=False))
            bars = []
        start = end
        if match.re is _BAR:
            bars.append((int(match.group(1)), int(match.group(2))))
        else:
            process = match.group(1)
    found.append(OwnText(text[start:], process, tuple(bars)))
    return found


def unglued(texts: Iterable[OwnText], marker: re.Pattern[str]) -> Iterator[OwnText]:
    """Parts records that stand on one line because the line end between them is lost; `marker` begins a record."""
    for own in texts:
        starts = [match.start() for match in marker.finditer(own.text)][1:]
        if not starts:
            yield own
            continue
        begin = 0
        for start in starts:
            yield own._replace(text=own.text[begin:start], glued=True, last=False)
            begin = start
        yield own._replace(text=own.text[begin:], bars=())


# --------------------------------------------------------------------------- numbers

PLAIN_NUMBER = (
    r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|NaN|NAN|inf(?:inity)?|Inf(?:inity)?|INF)(?![A-Za-z]))"
)
NUMBER = rf"(?:(?:np|numpy)\.(?:float|int|uint)\d+\(\s*{PLAIN_NUMBER}\s*\)|True|False|{PLAIN_NUMBER})"
"""A number as frameworks print it, numpy's reprs and booleans included."""

_WHOLE = re.compile(PLAIN_NUMBER)
_WRAPPED = re.compile(rf"(?:np|numpy)\.(?:float|int|uint)\d+\(\s*({PLAIN_NUMBER})\s*\)")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_WORDS = {"True": 1.0, "False": 0.0, "np.True_": 1.0, "np.False_": 0.0}


def number(text: str) -> float | None:
    """The number that the whole text is, or None; `1.2.3`, `1_000`, `a`, `` are none."""
    text = text.strip()
    if _WHOLE.fullmatch(text):
        return float(text)
    if text in _WORDS:
        return _WORDS[text]
    if match := _WRAPPED.fullmatch(text):
        return float(match.group(1))
    if _THOUSANDS.fullmatch(text):
        return float(text.replace(",", ""))
    return None


def unwrap(text: str) -> str:
    """The text with numpy's reprs replaced by the numbers in them."""
    return _WRAPPED.sub(r"\1", text) if "np." in text or "numpy." in text else text
