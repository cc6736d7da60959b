# SPDX-License-Identifier: Apache-2.0
"""verl's field list, `key:number - key:number ...`, taken apart; and what is not part of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sentinel.sources.lines import NUMBER, number, unwrap

FIELD = re.compile(rf"(\S*?[^\s:]|(?:val-core|val-aux|val|test_score)/[^:]*):({NUMBER})")
KEY_BEGUN = re.compile(r"[^\s:]*|(?:val-core|val-aux|val|test_score)/[^:]*")
# What other processes write after a value without a line end. Anything else makes the line prose.
FOREIGN = re.compile(
    r"\s*(?:\(\w[\w.:-]* pid=|\[?(?:rank\s?\d|20\d\d[-/])|(?:DEBUG|INFO|WARN|WARNING|ERROR|Traceback|wandb)\b|\s\ufffd)"
)
GLUED = re.compile(r"\s*[^\W\d_]{3,}[^\d]*$|\s+\S.*$")


@dataclass(frozen=True, slots=True)
class FieldList:
    """The field list of a step line, taken apart."""

    metrics: dict[str, float]
    printed: list[str]
    """The values as they were printed."""
    rest: str = ""
    """What could not be read at the end."""
    damaged: bool = False
    """A field in the middle could not be read."""


def parse_fields(text: str) -> FieldList:
    """`key:number - key:number ...`; whatever follows the last number is left in `rest`."""
    text = unwrap(text)
    parts = text.split(" - ")
    if text.count(":") == len(parts) and text.count(" ") == 2 * (len(parts) - 1):
        pairs = [part.partition(":") for part in parts]
        try:
            metrics = {key: float(value) for key, _, value in pairs}
        except ValueError:
            pass
        else:
            printed = [value for _, _, value in pairs]
            if not any("_" in value for value in printed) and "" not in metrics:
                return FieldList(metrics, printed)
    return _parse_slowly(parts)


def _parse_slowly(parts: list[str]) -> FieldList:
    metrics: dict[str, float] = {}
    printed: list[str] = []
    damaged = False
    for index, part in enumerate(parts):
        match = FIELD.fullmatch(part)
        if match is None:
            if index == len(parts) - 1:
                return FieldList(metrics, printed, part, damaged)
            # Foreign text may itself hold ' - ': nothing after a recognisable stranger belongs to the record.
            head = FIELD.match(part)
            if head is not None and FOREIGN.match(part, head.end()):
                return FieldList(metrics, printed, " - ".join(parts[index:]), damaged)
            damaged = True
            continue
        value = number(match.group(2))
        assert value is not None
        metrics[match.group(1)] = value
        printed.append(match.group(2))
    return FieldList(metrics, printed, "", damaged)


def without_last(body: str) -> tuple[str, bool]:
    """The list without its last field, which may be cut, and whether a value was dropped with it."""
    head, separator, last = body.rpartition(" - ")
    if not separator:
        head, last = "", body
    match = FIELD.match(last)
    if match and last[match.end() :] and not last[match.end() :].strip(" -"):
        return body[: len(body) - len(last) + match.end()], False
    return head, ":" in last
