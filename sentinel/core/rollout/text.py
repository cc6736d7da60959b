# SPDX-License-Identifier: Apache-2.0
"""The verdict on one piece of model output, by its characters alone: no model, no word list of any size, no baseline.

ok           language, code, mathematics, tables, JSON, a short answer: wrong ones included
garbled      no language: a character for ever, signs at random, words without grammar, undecodable bytes
repetitive   real words in a loop
empty        nothing, blanks, or only an end marker
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sentinel.core.rollout.loops import RULE_CHARACTERS, TIGHT, counting_loop, longest_run, loop_at_end, tightness
from sentinel.core.rollout.prose import Words, ends_soundly, mixed_scripts, noise, salad, soup

OK, GARBLED, REPETITIVE, EMPTY = "ok", "garbled", "repetitive", "empty"
LABELS = (OK, GARBLED, REPETITIVE, EMPTY)

_MARKER = re.compile(
    r"<\|[\w .-]{1,40}\|>|</?s>|<(?:eos|bos|pad|end_of_turn|start_of_turn)>|\[(?:PAD|CLS|SEP)\]|<｜[^｜\n]{1,40}｜>|</?think>"
)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd\ue000-\uf8ff]")
_MOJIBAKE = re.compile(r"[ÃÂâåæçð][\x80-\xbf‚ƒ„…†‡ˆ‰Š‹Œ‘’“”•–—˜™š›œžŸ€]")
_BLANK = re.compile(r"[\u200b-\u200f\u2060\ufeff\u00ad]")
_WINDOW = 6000
_RUN, _RUN_SHARE, _RUN_AT_END = 24, 0.5, 40
_RULE_RUN, _RULE_SHARE = 200, 0.8
_UNREADABLE_SHARE = 0.06
_DISTINCT = 0.35
"""Share of words that are said once or more, above which a text that ends in no loop is no loop."""


@dataclass(frozen=True, slots=True)
class TextVerdict:
    """What a text is, and why."""

    label: str
    why: str = ""
    """Empty for `ok`."""


_OK = TextVerdict(OK)


def judge_text(text: str) -> TextVerdict:
    """Judge one output. Of long ones the beginning, the middle and the end are looked at, 6,000 characters each."""
    bare = _MARKER.sub("", text) if "<" in text or "[" in text else text
    if not bare.isascii():
        bare = _BLANK.sub("", bare)
    if not bare or bare.isspace():
        return TextVerdict(EMPTY, "nothing but end markers" if text.strip() else "no text")
    if len(bare) <= 2 * _WINDOW:
        return _judge(bare)
    middle = len(bare) // 2
    for part in (bare[-_WINDOW:], bare[:_WINDOW], bare[middle : middle + _WINDOW]):
        verdict = _judge(part)
        if verdict.label != OK:
            return verdict
    return _OK


def _judge(text: str) -> TextVerdict:
    compact = "".join(text.split())
    if not compact:
        return _OK
    why = _unreadable(text, len(compact)) or _run(compact)
    if why:
        return TextVerdict(GARBLED, why)
    words = Words.of(text)
    found = _loop(text, words)
    if found is not None:
        return found
    why = None if words.is_prose else soup(words) or mixed_scripts(words) or noise(text) or salad(words)
    why = why or (None if ends_soundly(words) else _broken_end(text))
    return TextVerdict(GARBLED, why) if why else _OK


def _unreadable(text: str, visible: int) -> str | None:
    found = len(_CONTROL.findall(text))
    if "<unk>" in text:
        found += text.count("<unk>")
    if not text.isascii():
        found += len(_MOJIBAKE.findall(text))
    # One or two may be halves of characters that a limit cut.
    if found >= 3 and found >= _UNREADABLE_SHARE * visible:
        return f"{found} of {visible} characters are undecodable or control characters"
    return None


def _run(compact: str) -> str | None:
    character, length, end = longest_run(compact)
    if not length:
        return None
    if character in RULE_CHARACTERS:
        broken = length >= _RULE_RUN and length >= _RULE_SHARE * len(compact)
    else:
        at_end = end >= len(compact) - 2 and length >= _RUN_AT_END
        broken = at_end or (length >= _RUN and length >= _RUN_SHARE * len(compact))
    return f"{character!r} {length} times in a row" if broken else None


def _loop(text: str, words: Words) -> TextVerdict | None:
    data = text.encode("utf-8", "replace")
    loop = loop_at_end(text) or counting_loop(data)
    if loop is not None:
        what = " ".join(loop.period.split())[:60]
        speaks = any(len(word) > 1 for word in re.findall(r"[^\W\d_]+", loop.period))
        label = REPETITIVE if speaks or any(ord(c) > 0x2E80 for c in loop.period) else GARBLED
        return TextVerdict(label, f"ends in {what!r}, {loop.covered / len(loop.period):.0f} times over")
    if words.distinct > _DISTINCT * len(words.all):
        return None
    ratio = tightness(data)
    if ratio >= TIGHT or RULE_CHARACTERS.issuperset(text):
        return None
    return TextVerdict(REPETITIVE, f"says the same again and again: {ratio:.0%} of its size when compressed")


def _broken_end(text: str) -> str | None:
    """The end alone, where sound text broke on the way."""
    for size in (220, 400, len(text) // 3):
        if size >= 220 and len(text) >= size + 100:
            end = text[-size:]
            last = Words.of(end[end.find(" ") + 1 :])
            if why := soup(last) or mixed_scripts(last) or salad(last, strict=True):
                return why
    return None
