# SPDX-License-Identifier: Apache-2.0
"""Numbers out of JSON objects and printed Python dicts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from sentinel.sources.lines import Notes, number, unwrap

_ENTRY = re.compile(
    r"\s*'((?:[^'\\]|\\.)*)':\s*"
    r"(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(\[[^\[\]]*\]|\([^()]*\)|\{[^{}]*\})|([^,'\"\[\]{}()\s]+(?:\([^()]*\))?))\s*(,|$)"
)


def first_value(text: str, notes: Notes) -> tuple[Any, int]:
    """The JSON value at the beginning of the text, and where it ends; bare NaN and Infinity are allowed and noted.

    Raises ValueError, also for nesting without end.
    """

    def constant(name: str) -> float:
        notes.add("bare_nan", f"{name} without quotes in JSON text")
        return float(name)

    try:
        value, end = json.JSONDecoder(parse_constant=constant).raw_decode(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    return value, end


def loads(text: str, notes: Notes) -> Any:
    """The one JSON value that the text is. Raises ValueError."""
    text = text.strip()
    value, end = first_value(text, notes)
    if end != len(text):
        raise ValueError(f"something follows the value at character {end}")
    return value


def numbers_of(data: Mapping[str, Any], notes: Notes, *, null: float | None = None) -> dict[str, float]:
    """The numeric entries of a JSON object; text that is a number counts and is noted; `null` stands for null."""
    metrics: dict[str, float] = {}
    for key, value in data.items():
        if value is None:
            if null is not None:
                notes.add("non_finite_as_null", f"{key} is null: not finite")
                metrics[key.strip()] = null
        elif isinstance(value, (bool, int, float)):
            metrics[key.strip()] = _as_float(value)
        elif isinstance(value, str) and (told := number(value)) is not None:
            notes.add("quoted_number", f"{key} is a number in quotes")
            metrics[key.strip()] = told
    return metrics


def whole_number(value: object) -> int | None:
    """The integer that a step field holds, as a number or in quotes; None where it holds none."""
    told = number(value) if isinstance(value, str) else value
    if isinstance(told, bool) or not isinstance(told, (int, float)):
        return None
    return int(told) if math.isfinite(told) and told == int(told) and abs(told) < 1 << 53 else None


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def python_dict(text: str) -> dict[str, object] | None:
    """The flat dict that the text between braces is (numbers, quoted texts; nested values as text), or None."""
    found: dict[str, object] = {}
    at, text = 0, unwrap(text)
    while at < len(text):
        match = _ENTRY.match(text, at)
        if match is None:
            return None if text[at:].strip() else found
        key, single, double, nested, bare, _ = match.groups()
        quoted = single if single is not None else double
        if quoted is not None:
            found[key] = quoted
        elif nested is None:
            value = number(bare)
            if value is None and bare != "None":
                return None
            found[key] = value
        at = match.end()
    return found
