# SPDX-License-Identifier: Apache-2.0
"""verl's field list, `key:number - key:number ...`, taken apart; and what is not part of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from sentinel.sources.lines import NUMBER, OwnText, number, unwrap

MARKER = re.compile(r"step([:=])(\d+) -(?: |$)")
MARKER_BEGUN = re.compile(r"step[:=]\d* ?-?")
KEY_BEGUN = re.compile(r" - [^\s:]+[_/]$")
FIELD = re.compile(rf"([^\s:]+|(?:val-core|val-aux|val|test_score)/[^:]*):({NUMBER})")
# A field whose end is still to come: a key, a key with the beginning of a number, a field with half a separator.
OPEN = re.compile(r"(?:[^\s:]*|(?:val-core|val-aux|val|test_score)/[^:]*)(?::[-+\w.()]*)?(?: -?)?")
NUMBER_TAIL = re.compile(r"[-+.\deE]+\)?")
# What other processes write after a value without a line end. Anything else makes the line prose.
FOREIGN = re.compile(
    r"\s*(?:\(\w[\w.:-]* pid=|\[?(?:rank\s?\d|20\d\d[-/])|(?:DEBUG|INFO|WARN|WARNING|ERROR|Traceback|wandb)\b|\s\ufffd)"
)
# Without a blank between, it takes a word to be foreign: `0.5x7` is a damaged number, `0.5Dumped to ...` is not.
GLUED = re.compile(r"\s*[^\W\d_]{3,}(?!\d)|\s+\S")


@dataclass(frozen=True, slots=True)
class FieldList:
    """The field list of a step line, taken apart."""

    metrics: dict[str, float]
    text: str
    """The list as it was printed, without numpy's reprs."""
    rest: str = ""
    """What could not be read at the end."""
    damaged: bool = False
    """A field in the middle could not be read."""

    def printed(self) -> list[str]:
        """The values as they were printed."""
        return [part.rpartition(":")[2] for part in self.text.split(" - ")]


_OBJECT = msgspec.json.Decoder(dict[str, float])
_REPRS = ("np.float64(", "np.float32(", "np.int64(", "np.int32(")


def parse_fields(text: str) -> FieldList:
    """`key:number - key:number ...`; whatever follows the last number is left in `rest`.

    A list of plain numbers is a JSON object but for its punctuation, and a JSON decoder is the fastest reader of
    numbers at hand. Whatever it does not take goes the slow way.
    """
    text = _without_reprs(text)
    # A second colon in a field, or none, makes no JSON; a blank in a key would, and prose has blanks.
    members = text.replace(" - ", ',"').replace(":", '":')
    if " " not in members and '"' not in text and "\\" not in text:
        try:
            metrics = _OBJECT.decode(f'{{"{members}}}')
        except msgspec.MsgspecError:
            pass
        else:
            if "" not in metrics:
                return FieldList(metrics, text)
    return _parse_slowly(text, text.split(" - "))


_NEXT = re.compile(r"step[:=]\d+ - ")


def end_of_list(text: str) -> int:
    """Where another step line begins that was glued to a value: a key never begins right behind a digit."""
    at = text.find("step", 1)
    while at > 0:
        if (text[at - 1].isdigit() or text[at - 1] == ")") and _NEXT.match(text, at):
            return at
        at = text.find("step", at + 1)
    return len(text)


def _without_reprs(text: str) -> str:
    """`np.float64(0.5)` as `0.5`; where brackets do not pair up, one by one."""
    if "np." not in text:
        return text
    opened = sum(text.count(name) for name in _REPRS)
    if opened != text.count(") - ") + text.endswith(")"):
        return unwrap(text)
    for name in _REPRS:
        text = text.replace(name, "")
    return text.replace(") - ", " - ").removesuffix(")")


def _parse_slowly(text: str, parts: list[str]) -> FieldList:
    metrics: dict[str, float] = {}
    damaged = False
    for index, part in enumerate(parts):
        match = FIELD.fullmatch(part)
        if match is None:
            if index == len(parts) - 1:
                return FieldList(metrics, text, part, damaged)
            # Foreign text may itself hold ' - ': nothing after a recognisable stranger belongs to the record.
            head = FIELD.match(part)
            if head is not None and FOREIGN.match(part, head.end()):
                return FieldList(metrics, text, " - ".join(parts[index:]), damaged)
            damaged = True
            continue
        value = number(match.group(2))
        assert value is not None
        metrics[match.group(1)] = value
    return FieldList(metrics, text, "", damaged)


def without_last(body: str) -> tuple[str, bool]:
    """The list without its last field, which may be cut, and whether a value was dropped with it."""
    head, separator, last = body.rpartition(" - ")
    if not separator:
        head, last = "", body
    match = FIELD.match(last)
    if match and last[match.end() :] and not last[match.end() :].strip(" -"):
        return body[: len(body) - len(last) + match.end()], False
    return head, ":" in last


def unglued_steps(texts: Iterable[OwnText]) -> Iterator[OwnText]:
    """Parts step lines that stand on one line because the line end between them is lost."""
    for own in texts:
        rest = own
        while MARKER.match(rest.text) and (end := end_of_list(rest.text)) < len(rest.text):
            yield rest._replace(text=rest.text[:end], glued=True, last=False)
            rest = rest._replace(text=rest.text[end:], bars=())
        yield rest


def marker_end(text: str) -> int:
    """Where the field list begins."""
    marker = MARKER.match(text)
    return marker.end() if marker else 0


class Precision:
    """Whether every value was printed with exactly three decimals, as old consoles do."""

    def __init__(self) -> None:
        self._shown = 0
        self._three = True

    def see(self, fields: FieldList) -> None:
        """One more list; after the first value of another form nothing is looked at any more."""
        if not self._three:
            return
        for value in fields.printed():
            _, dot, decimals = value.partition(".")
            if dot and fields.metrics:
                self._three = len(decimals) == 3 and decimals.isdigit()
                self._shown += 1
            if not self._three:
                return

    @property
    def resolution(self) -> float | None:
        """0.001, or None where values show more, or none was seen."""
        return 0.001 if self._shown and self._three else None

    def to_plain(self) -> list[int]:
        """State as plain values."""
        return [self._shown, int(self._three)]

    def restore(self, state: list[int]) -> None:
        """The inverse of `to_plain`."""
        self._shown, self._three = state[0], bool(state[1])
