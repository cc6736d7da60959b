# SPDX-License-Identifier: Apache-2.0
"""The writing system of a word, by its first letter."""

from __future__ import annotations

from bisect import bisect_right

_RANGES = (
    (0x0041, "latin"), (0x0250, "other"), (0x0370, "greek"), (0x0400, "cyrillic"), (0x0530, "armenian"),
    (0x0590, "hebrew"), (0x0600, "arabic"), (0x0780, "other"), (0x0900, "devanagari"), (0x0980, "bengali"),
    (0x0A00, "gurmukhi"), (0x0A80, "gujarati"), (0x0B00, "oriya"), (0x0B80, "tamil"), (0x0C00, "telugu"),
    (0x0C80, "kannada"), (0x0D00, "malayalam"), (0x0D80, "sinhala"), (0x0E00, "thai"), (0x0E80, "lao"),
    (0x0F00, "tibetan"), (0x1000, "burmese"), (0x10A0, "georgian"), (0x1100, "hangul"), (0x1200, "ethiopic"),
    (0x13A0, "other"), (0x1780, "khmer"), (0x1800, "mongolian"), (0x18B0, "other"), (0x1E00, "latin"),
    (0x1F00, "greek"), (0x2000, "other"), (0x3040, "han"), (0xA000, "other"), (0xAC00, "hangul"), (0xD7B0, "other"),
    (0xF900, "han"), (0xFB00, "latin"), (0xFB13, "other"), (0xFB50, "arabic"), (0xFE00, "other"), (0xFE70, "arabic"),
    (0xFEFF, "other"), (0xFF21, "latin"), (0xFF66, "han"), (0xFFA0, "other"), (0x20000, "han"), (0x323B0, "other"),
)  # fmt: skip
"""First code point -> script, up to the next entry. Kana count as `han`: Japanese writes both in one word."""
_STARTS = tuple(start for start, _ in _RANGES)
_NAMES = ("other", *(name for _, name in _RANGES))
COMPATIBLE = frozenset({"latin", "han"})
"""Scripts that sound text mixes word by word: Chinese with terms in Latin letters."""


def script_of(word: str) -> str:
    """The script of a word's first letter; `other` for symbols and rare scripts."""
    return _NAMES[bisect_right(_STARTS, ord(word[0]))]
