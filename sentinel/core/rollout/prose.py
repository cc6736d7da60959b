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
_ASCII_WORD = re.compile(r"[a-z]+")
_HAN = re.compile(r"[\u3400-\u9fff]")
_HARD = re.compile(r"[\n\r:;：；，,、。！？!?|()（）/=→\-]+|\.(?=\s)")
_ODD = re.compile(r"(?<![^\s])[.\-_@$%&#/\\=>:<\]})(]+\w|[a-z][A-Z]|\w[\]})(;\"]+[\w({\[]|\w_\w")
"""Marks of torn code: signs stuck to a word's front, a capital inside a word, brackets between letters."""

_SOUP_WORDS, _SOUP_SHARE, _SOUP_HINT = 20, 0.86, 0.55
_SMALL_ONLY = re.compile(f"(?:{'|'.join(sorted(ENGLISH, key=len, reverse=True))})+")
"""Small words, also where no blank stands between them."""
_GLUED = re.compile(
    r"[A-Za-zÀ-ɏ][\u0370-\u10ff\u1200-\u1fff]|[\u0370-\u10ff\u1200-\u1fff][A-Za-zÀ-ɏ\u3400-\u9fff]|[\u3400-\u9fff][\u0370-\u10ff\u1200-\u1fff]"
)
"""Two scripts inside one word, but for those that live together (Latin beside Han, Kana or Hangul)."""
_SALAD_WORDS, _SALAD_SHARE = 14, 0.07
_TORN, _TORN_STRICT = 0.04, 0.12
_HAN_LEAST, _HAN_SHARE, _HAN_SOUP = 30, 0.045, 0.62
_FOREIGN_WORDS, _FOREIGN_SHARE = 6, 0.15
_MANY_SCRIPTS, _MANY_WORDS, _MANY_CHANGES = 4, 8, 0.6
_NOISE_CHARACTERS, _NOISE_CHANGES, _NOISE_SIGNS, _NOISE_CAPITALS = 48, 0.48, 0.16, 0.2
_SIGNS_CHARACTERS, _SIGNS_LETTERS = 80, 0.12
_PROSE_LINE = 9
_PROSE_LOW, _PROSE_HIGH, _VARIED = 0.15, 0.55, 0.4
_END_WORDS, _END_CHARACTERS = 20, 120

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
    small: int
    """How many hold prose together."""
    distinct: int

    @staticmethod
    def of(text: str) -> Words:
        """Split a text."""
        plain = text.isascii()
        found = (_ASCII_WORD if plain else _WORD).findall(text.lower())
        small = sum(map(FUNCTION_WORDS.__contains__, found))
        return Words(text=text, all=found, ascii=plain, small=small, distinct=len(set(found)))

    @property
    def is_prose(self) -> bool:
        """Latin letters, held together by as many small words as prose is, and saying more than one thing."""
        count = len(self.all)
        return (
            self.ascii and _PROSE_LOW * count <= self.small <= _PROSE_HIGH * count and self.distinct >= _VARIED * count
        )


def soup(words: Words) -> str | None:
    """Why these are small words and signs without anything that they hold together; None if they are not."""
    long = [word for word in words.all if len(word) > 1] if words.ascii else ()
    if len(long) >= _SOUP_WORDS:
        small = sum(map(ENGLISH.__contains__, long))
        if _SOUP_HINT * len(long) <= small < _SOUP_SHARE * len(long):
            small = sum(_SMALL_ONLY.fullmatch(word) is not None for word in long)
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
    scripts = [script_of(word) for word in words.all]
    met = {script for script in scripts if script != "other"}
    if len(met) < 3:
        return None
    glued = len(_GLUED.findall(words.text))
    if glued >= max(2, 0.05 * len(words.all)):
        return f"{glued} words change their script in the middle"
    foreign, pairs = _foreign(words.text)
    if pairs >= _FOREIGN_WORDS and foreign >= max(3, _FOREIGN_SHARE * pairs):
        return f"{len(met)} scripts change {foreign} times within {pairs + 1} words ({', '.join(sorted(met)[:5])})"
    changes = sum(left != right for left, right in pairwise(scripts))
    many = len(met) >= _MANY_SCRIPTS and len(scripts) >= _MANY_WORDS
    if many and changes >= _MANY_CHANGES * len(scripts) and 2 * scripts.count("latin") <= len(scripts):
        return f"{len(met)} scripts in {len(scripts)} words, another one with nearly every word"
    return None


def _foreign(text: str) -> tuple[int, int]:
    """How often the script changes between neighbours that no separator parts, and how many neighbours there are."""
    foreign = pairs = 0
    for segment in _HARD.split(text):
        scripts = [script_of(word) for word in _WORD.findall(segment)]
        for left, right in pairwise(scripts):
            pairs += 1
            foreign += left != right and not {left, right} <= COMPATIBLE
    return foreign, pairs


def salad(words: Words, *, strict: bool = False) -> str | None:
    """Why these words hang together by nothing; None if they do, or if it is a list, a table or code.

    `strict`: of a part of a text, which needs more evidence: torn code as well.
    """
    if words.small > _SALAD_SHARE * len(words.all):
        return None if words.ascii else _han_salad(words)
    lines = [line.split() for line in words.text.split("\n")]
    prose = [token for line in lines if len(line) >= _PROSE_LINE for token in line]
    letters = [word for word in words.all if len(word) > 1]
    if len(prose) >= _SALAD_WORDS and len(letters) >= _SALAD_WORDS and 2 * len(prose) >= sum(map(len, lines)):
        return _latin_salad(words, prose, letters, _TORN_STRICT if strict else _TORN)
    return None if words.ascii else _han_salad(words)


def ends_soundly(words: Words) -> bool:
    """Whether the last words are held together as prose is, so that nothing broke on the way."""
    end = words.all[-_END_WORDS:]
    small = sum(map(FUNCTION_WORDS.__contains__, end))
    if words.ascii:
        return _PROSE_LOW * len(end) <= small <= _PROSE_HIGH * len(end)
    han = _HAN.findall(words.text[-_END_CHARACTERS:])
    held = sum(map(HAN_FUNCTION.__contains__, han))
    empty = sum(map(CONTEXT_FREE.__contains__, han))
    return len(han) >= _HAN_LEAST // 2 and held >= 2 * _HAN_SHARE * len(han) and empty < _HAN_SOUP * len(han) / 2


def noise(text: str) -> str | None:
    """Why these are signs and letters at random; None if they are not."""
    data = text.encode("utf-8", "replace")
    classes = data.translate(_CLASS)
    visible = len(classes) - classes.count(3)
    signs = classes.count(4)
    if visible >= _NOISE_CHARACTERS and signs >= _NOISE_SIGNS * visible:
        changes = len(_CHANGE.findall(classes))
        small, capital = classes.count(0), classes.count(1)
        if changes >= _NOISE_CHANGES * visible and min(small, capital) >= _NOISE_CAPITALS * (small + capital) > 6:
            return f"letters, digits and signs change places {changes} times within {visible} characters"
    if visible >= _SIGNS_CHARACTERS and visible - signs <= _SIGNS_LETTERS * visible and _varied(text):
        return f"{signs} of {visible} characters are signs"
    return None


def _varied(text: str) -> bool:
    """Whether the signs are many kinds in no order: rules, tables and brackets are few kinds."""
    signs = [c for c in text if not c.isalnum() and not c.isspace()]
    pairs = set(pairwise(signs))
    return len(pairs) >= 0.35 * len(signs) or (len(set(signs)) >= 5 and len(pairs) >= 0.12 * len(signs))


def _plain(word: str) -> str:
    """A Latin word without the marks over its letters."""
    if word.isascii():
        return word
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))


def _latin_salad(words: Words, prose: list[str], letters: list[str], torn: float) -> str | None:
    small = words.small
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
    if distinct < 0.6 or (odd < torn * len(prose) and (torn == _TORN_STRICT or len(letters) < 2 * _SALAD_WORDS)):
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
