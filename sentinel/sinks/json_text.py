# SPDX-License-Identifier: Apache-2.0
"""JSON as Sentinel writes it for other programs: numbers that are not finite become "nan", "inf" and "-inf"."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping


def to_text(document: object, *, indent: int | None = None) -> str:
    """Return `document` as JSON text that every parser reads: no bare NaN, no bare Infinity."""
    return json.dumps(finite(document), ensure_ascii=False, allow_nan=False, indent=indent)


def finite(value: object) -> object:
    """Return `value` with plain containers, text keys, and each float that is not finite as text.

    Anything that is no JSON type (a path, a numpy number) becomes its text or its Python number.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return _number(float(value))
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [finite(item) for item in value]
    if hasattr(value, "item"):
        return finite(value.item())
    return str(value)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"
