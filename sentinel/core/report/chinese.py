# SPDX-License-Identifier: Apache-2.0
"""The sentences of findings, suspects and triage in Chinese.

Records carry each sentence in English. Its form is known, so the table of forms gives its parts back, and the same parts stand in a Chinese
sentence that a person wrote: `{key}` is one word (a metric, a module, a number), `{why~}` a phrase with a form of its own or text as it is,
`{why*}` the same up to the next sentence that may follow one without a full stop. What no form knows stays English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from sentinel.core.report.chinese_findings import FINDINGS, SUSPECTS, WORDS
from sentinel.core.report.chinese_rollout import ROLLOUT
from sentinel.core.report.chinese_triage import TRIAGE

_HOLE = re.compile(r"\{(\w+)([~*]?)\}")
# What may begin after a phrase that ends without a full stop.
_NEXT = (
    r"(?=\.?\s+(?:Deeper, at |The dump of |It (?:contradicts|does not bear out|bears out|names) |It is back: )|\.?$)"
)
MOST_CHARACTERS = 4000
"""A longer text is none of Sentinel's sentences."""
_END = r"(?:\.(?=\s|$)|(?<=\?)(?=\s)|$)"


@dataclass(frozen=True)
class Form:
    """One sentence in both languages."""

    pattern: re.Pattern[str]
    chinese: str

    def filled(self, parts: dict[str, str]) -> str:
        """The Chinese sentence with these parts."""
        return _HOLE.sub(lambda hole: _part(parts[hole[1]]), self.chinese)


def in_chinese(text: str) -> str | None:
    """A text in Chinese, sentence by sentence; None where none of its sentences is known.

    >>> in_chinese("actor/grad_norm is NaN at step 7; it was 0.31 before.")
    '第 7 步 actor/grad_norm 为 NaN，此前为 0.31。'
    """
    told = list(sentences(text)) if len(text) <= MOST_CHARACTERS else []
    if all(chinese is None for _, chinese in told):
        return None
    parts = [f" {english} " if chinese is None else _stopped(chinese) for english, chinese in told[:-1]]
    english, chinese = told[-1]
    return "".join([*parts, f" {english}" if chinese is None else chinese]).strip()


def _stopped(sentence: str) -> str:
    return sentence if sentence.endswith(("。", "？")) else f"{sentence}。"


def sentences(text: str) -> Iterator[tuple[str, str | None]]:
    """Each sentence of a text and its Chinese form; None where that is not known."""
    rest = text.strip()
    while rest:
        english, chinese = _first(rest)
        yield english, chinese
        rest = rest[len(english) :].lstrip()


def _first(text: str) -> tuple[str, str | None]:
    """The sentence that a text begins with, and its Chinese form where it has one."""
    for form in _forms():
        found = form.pattern.match(text)
        if found is not None:
            return found[0], form.filled(found.groupdict()) + ("。" if found[0].endswith(".") else "")
    cut = re.search(r"(?<=[.?!])\s+", text)
    return (text[: cut.start()] if cut else text), None


@cache
def _forms() -> tuple[Form, ...]:
    return tuple(_form(english, chinese) for english, chinese in (*FINDINGS, *SUSPECTS, *ROLLOUT, *TRIAGE))


def _form(english: str, chinese: str) -> Form:
    parts = []
    at = 0
    for hole in _HOLE.finditer(english):
        parts.append(re.escape(english[at : hole.start()]))
        body = {"": r"[^\s]+?", "~": r".+?", "*": r".+?"}[hole[2]]
        parts.append(f"(?P<{hole[1]}>{body})" + (_NEXT if hole[2] == "*" else ""))
        at = hole.end()
    parts.append(re.escape(english[at:]))
    written = "".join(parts)
    if written[0].isalpha():
        written = f"[{written[0].upper()}{written[0].lower()}]{written[1:]}"
    ends = r"\.?" if english.endswith("*}") else _END
    return Form(re.compile(written + ends, re.DOTALL), chinese)


def _part(value: str) -> str:
    """A part of a sentence: a word or phrase with a form of its own, else as it is."""
    if value in WORDS:
        return WORDS[value]
    told = list(sentences(value))
    return "".join(chinese for _, chinese in told if chinese) if all(chinese for _, chinese in told) else value
