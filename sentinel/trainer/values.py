# SPDX-License-Identifier: Apache-2.0
"""What a trainer logged, as plain floats: on the background thread, without touching a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain_values(data: Mapping[Any, Any]) -> tuple[dict[str, float], list[str]]:
    """Split logged values into numbers and keys that are none.

    NaN and the infinities are numbers. Text, None, arrays of several elements and anything on a device are not:
    reading a device tensor would wait for the device.
    """
    values: dict[str, float] = {}
    unreadable: list[str] = []
    for key, value in data.items():
        name = key if isinstance(key, str) else str(key)
        kind = type(value)
        if kind is float or kind is int or kind is bool:
            values[name] = float(value)
            continue
        number = _number(value)
        if number is None:
            unreadable.append(name)
        else:
            values[name] = number
    return values, unreadable


def _number(value: Any) -> float | None:
    if isinstance(value, (str, bytes)) or value is None or hasattr(value, "is_cuda") or hasattr(value, "__len__"):
        if getattr(value, "is_cpu", False) and getattr(value, "numel", lambda: 0)() == 1:
            return float(value)
        if getattr(value, "size", 0) != 1 or not hasattr(value, "dtype") or hasattr(value, "is_cuda"):
            return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
