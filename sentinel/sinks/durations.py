# SPDX-License-Identifier: Apache-2.0
"""Durations as people read them."""

from __future__ import annotations


def short(seconds: float) -> str:
    """Return a duration in its largest sensible unit.

    >>> short(3.2), short(600.0), short(7300.0), short(300000.0)
    ('3 s', '10 min', '2 h', '3 d')
    """
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} d"
