# SPDX-License-Identifier: Apache-2.0
"""Whether words make a language: soup (nothing but small words), salad (none of them), scripts mixed word by word, noise.

No dictionary and no model: what is used is that prose of every language is held together by a few dozen words, that
sound text changes its script at a separator or between two scripts that live together, and that letters, digits and
signs stand in runs. It misses sound words in a random order when the small words are among them, and broken text of
fewer than a dozen words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sentinel.core.rollout.function_words import CONTEXT_FREE, ENGLISH, FUNCTION_WORDS, HAN_FUNCTION
from sentinel.core.rollout.scripts import COMPATIBLE, script_of

_WORD = re.compile(r"[^\W\d_]+")
_HAN = re.compile(r"[\u3400-\u9fff]")
_HARD = re.compile(r"[\n\r:;：；，,、。|()（）/=→\-]+")
_ODD = re.compile(r"(?<![^\s])[.\-_@$%&#/\\=>:<\]})(]+\w|[a-z][A-Z]|\w[\]})(;\"]+[\w({\[]|\w_\w")
"""Marks of torn code: signs stuck to a word's front, a capital inside a word, brackets between letters."""

_SOUP_WORDS, _SOUP_SHARE = 20, 0.86
_SALAD_WORDS, _SALAD_SHARE = 14, 0.07
_HAN_LEAST, _HAN_SHARE, _HAN_SOUP = 30, 0.045, 0.62
_FOREIGN_WORDS, _FOREIGN_SHARE = 6, 0.15
_NOISE_CHARACTERS, _NOISE_CHANGES, _NOISE_SIGNS = 48, 0.52, 0.14
_SIGNS_CHARACTERS, _SIGNS_LETTERS = 80, 0.12
_PROSE_LINE = 9

_CLASS = bytes(
    0 if 97 <= c <= 122 else 1 if 65 <= c <= 90 else 2 if 48 <= c <= 57 else 3 if c <= 32 else 4 if c < 128 else 0
    for c in range(256)
)
_CHANGE = re.compile(rb"(\x00(?=[\x01\x02\x04])|\x01(?=[\x02\x04])|\x02(?=[\x00\x01\x04])|\x04(?=[\x00\x01\x02]))")


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a text, lower case, in order."""

    text: str
    all: Sequence[str]
    ascii: bool

    @staticmethod
    def of(text: str) -> Words:
        """Split a text."""
        return Words(text=text, all=_WORD.findall(text.lower()), ascii=text.isascii())


def soup(words: Words) -> str | None:
    """Why these are small words and signs without anything that they hold together; None if they are not."""
    long = [word for word in words.all if len(word) > 1] if words.ascii else ()
    if len(long) >= _SOUP_WORDS:
        small = sum(map(ENGLISH.__contains__, long))
        if small >= _SOUP_SHARE * len(long):
            return f"{small} of {len(long)} words are the smallest of the language, with nothing between them"
    if words.ascii:
        return None
    han = _HAN.findall(words.text)
    empty = sum(map(CONTEXT_FREE.__contains__, han))
    if len(han) >= _HAN_LEAST and empty >= _HAN_SOUP * len(han):
        return f"{empty} of {len(han)} characters are grammatical ones, with nothing between them"
    return None


def mixed_scripts(words: Words) -> str | None:
    """Why the scripts change as they do in no language; None if they do not."""
    if words.ascii:
        return None
    foreign, pairs, met = 0, 0, set()
    for segment in _HARD.split(words.text):
        scripts = [script_of(word) for word in _pieces(segment)]
        met.update(scripts)
        for left, right in pairwise(scripts):
            pairs += 1
            foreign += left != right and not {left, right} <= COMPATIBLE
    met.discard("other")
    if len(met) >= 3 and pairs >= _FOREIGN_WORDS and foreign >= max(3, _FOREIGN_SHARE * pairs):
        return f"{len(met)} scripts change {foreign} times within {pairs + 1} words ({', '.join(sorted(met)[:5])})"
    return None


def salad(words: Words) -> str | None:
    """Why these words hang together by nothing; None if they do, or if it is a list, a table or code."""
    lines = [line.split() for line in words.text.split("\n")]
    prose = [token for line in lines if len(line) >= _PROSE_LINE for token in line]
    letters = [word for word in words.all if len(word) > 1]
    if len(prose) >= _SALAD_WORDS and len(letters) >= _SALAD_WORDS and 2 * len(prose) >= sum(map(len, lines)):
        return _latin_salad(words, prose, letters)
    return None if words.ascii else _han_salad(words)


def noise(text: str) -> str | None:
    """Why these are signs and letters at random; None if they are not."""
    data = text.encode("utf-8", "replace")
    classes = data.translate(_CLASS)
    visible = len(classes) - classes.count(3)
    signs = classes.count(4)
    if visible >= _NOISE_CHARACTERS and signs >= _NOISE_SIGNS * visible:
        changes = len(_CHANGE.findall(classes))
        if changes >= _NOISE_CHANGES * visible and visible - signs >= 0.3 * visible:
            return f"letters, digits and signs change places {changes} times within {visible} characters"
    if visible >= _SIGNS_CHARACTERS and visible - signs <= _SIGNS_LETTERS * visible and _varied(text):
        return f"{signs} of {visible} characters are signs"
    return None


def _varied(text: str) -> bool:
    """Whether the signs are many kinds in no order: rules, tables and brackets are few kinds."""
    signs = [c for c in text if not c.isalnum() and not c.isspace()]
    pairs = set(pairwise(signs))
    return len(pairs) >= 0.35 * len(signs) or (len(set(signs)) >= 5 and len(pairs) >= 0.12 * len(signs))


def _pieces(segment: str) -> list[str]:
    """Words of a segment; a change between Han and other letters inside one word is no change here."""
    return _WORD.findall(segment)


def _plain(word: str) -> str:
    """A Latin word without the marks over its letters."""
    if word.isascii():
        return word
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))


def _latin_salad(words: Words, prose: list[str], letters: list[str]) -> str | None:
    small = sum(map(FUNCTION_WORDS.__contains__, words.all))
    if small > _SALAD_SHARE * len(letters):
        return None
    if not words.ascii:
        small += sum(_plain(word) in FUNCTION_WORDS for word in words.all if not word.isascii())
        han = _HAN.findall(words.text)
        small += sum(map(HAN_FUNCTION.__contains__, han)) // 2
        if small > _SALAD_SHARE * (len(letters) + len(han) / 2):
            return None
    separated = sum(token.endswith((",", "，", "、", ";", "|", ":")) for token in prose)
    numbers = sum(not any(c.isalpha() for c in token) for token in prose)
    capital = sum(token[:1].isupper() for token in prose)
    if separated > 0.25 * len(prose) or numbers > 0.35 * len(prose) or capital > 0.7 * len(prose):
        return None
    odd = len(_ODD.findall(words.text))
    distinct = len(set(letters)) / len(letters)
    if distinct < 0.6 or (odd < 0.04 * len(prose) and len(letters) < 2 * _SALAD_WORDS):
        return None
    return f"{small} small words among {len(letters)}: nothing holds them together"


def _han_salad(words: Words) -> str | None:
    han = _HAN.findall(words.text)
    if len(han) < _HAN_LEAST:
        return None
    small = sum(map(HAN_FUNCTION.__contains__, han))
    separators = len(re.findall(r"[，、。；：,;:\n|]", words.text))
    if small >= _HAN_SHARE * len(han) or separators > len(han) / 6:
        return None
    return f"{small} grammatical characters among {len(han)} Chinese ones: nothing holds them together"
