# SPDX-License-Identifier: Apache-2.0
"""Text that runs in circles: an exact period at its end, or text that compresses like one.

Character runs (`!!!!`, also with blanks between) are the loops of period one. Rules, table lines and long decimals
repeat in sound text as well and are allowed more.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

import numpy as np

RULE_CHARACTERS = frozenset("-=_*#~.|+·─━═—–…0123456789^ \t\n\r,")
_RUN = re.compile(r"(\S)\1{11,}")
_EQUAL = b"\x01" * 11
_SUFFIX = 12
_CANDIDATES = 6
_LEAST_COVERED = 80
_LEAST_REPEATS = 4
_LONG_COVERED, _LONG_REPEATS = 400, 3
_RULE_COVERED = 400
_WINDOW = 4000
TIGHT = 0.085
"""Compressed size over size below which nothing but a loop lies: machine-made configuration of 1,500 characters has 0.09."""
_TIGHT_FROM = 600
_COUNTED_LETTERS, _COUNTED_ROUNDS, _COUNTED_PROSE = 10, 8, 0.8


@dataclass(frozen=True, slots=True)
class Loop:
    """A part of a text that repeats."""

    period: str
    covered: int
    """Characters that are the period over and over."""


def longest_run(compact: str) -> tuple[str, int, int]:
    """Character, length and end of the longest run of one character in text without blanks; ("", 0, 0) for none of 12."""
    codes = np.frombuffer(compact.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    if (codes[1:] == codes[:-1]).tobytes().find(_EQUAL) < 0:
        return ("", 0, 0)
    best = max(_RUN.finditer(compact), key=lambda m: m.end() - m.start(), default=None)
    return ("", 0, 0) if best is None else (best[1], best.end() - best.start(), best.end())


def loop_at_end(text: str) -> Loop | None:
    """The loop that `text` ends in; None where it ends in none.

    A period counts from four rounds and 80 characters on, or from three rounds and 400; one of rules and digits only
    from 400 characters on.
    """
    text = text[-_WINDOW:].rstrip()
    size = len(text)
    if size < _LEAST_COVERED:
        return None
    suffix = text[-_SUFFIX:]
    at = size - _SUFFIX
    for _ in range(_CANDIDATES):
        at = text.rfind(suffix, 0, at + _SUFFIX - 1)
        if at < 0:
            return None
        period = size - _SUFFIX - at
        covered = _matching(text, period) + period
        if _is_loop(text[-period:], covered):
            return Loop(period=text[-period:], covered=covered)
    return None


def counting_loop(data: bytes) -> Loop | None:
    """The loop that remains when the digits are taken out: one with a counter in it.

    Eight rounds of something that is mostly letters: records of a table or a document are mostly signs.
    """
    bare = data[-_WINDOW:].translate(None, b"0123456789")
    if len(bare) == min(len(data), _WINDOW):
        return None
    loop = loop_at_end(bare.decode("utf-8", "replace"))
    if loop is None or loop.covered < _COUNTED_ROUNDS * len(loop.period):
        return None
    letters = sum(map(str.isalpha, loop.period))
    prose = letters + loop.period.count(" ")
    return loop if letters >= _COUNTED_LETTERS and prose >= _COUNTED_PROSE * len(loop.period) else None


def tightness(data: bytes) -> float:
    """Compressed size over size, of the whole or of its last 1,500 bytes; 1.0 for what is too short to say."""
    if len(data) < _TIGHT_FROM:
        return 1.0
    end = data[-1500:]
    ratio = len(zlib.compress(end, 1)) / len(end)
    return ratio if len(data) < 2 * len(end) else min(ratio, len(zlib.compress(data, 1)) / len(data))


def _matching(text: str, period: int) -> int:
    """How many characters from the end on equal those one period before."""
    later, earlier = text[period:], text[:-period]
    low, high = 0, len(later)
    while low < high:
        middle = (low + high + 1) // 2
        if later[-middle:] == earlier[-middle:]:
            low = middle
        else:
            high = middle - 1
    return low


def _is_loop(period: str, covered: int) -> bool:
    if RULE_CHARACTERS.issuperset(period):
        return covered >= _RULE_COVERED
    rounds = covered / len(period)
    if covered >= _LEAST_COVERED and rounds >= _LEAST_REPEATS:
        return True
    return covered >= _LONG_COVERED and rounds >= _LONG_REPEATS
