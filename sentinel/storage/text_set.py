# SPDX-License-Identifier: Apache-2.0
"""A labelled set of rollout text: JSON lines, packed or not, `{"split", "kind", "label", "output"}` each."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from sentinel.errors import UnreadableLog

_FIELDS = ("split", "kind", "label", "output")


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One row and what is right about it."""

    split: str
    """`tune`: thresholds were chosen on it; `held`: never."""
    kind: str
    label: str
    output: str


def read_text_set(path: Path | str) -> tuple[LabelledText, ...]:
    """Read a set.

    Raises:
        UnreadableLog: it cannot be read, or is none.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
        rows = [json.loads(line) for line in text.splitlines() if line]
        found = tuple(LabelledText(*(str(row[name]) for name in _FIELDS)) for row in rows)
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise UnreadableLog(path, "unknown_format", f"is no labelled set of rollout text: {error}") from error
    if not found:
        raise UnreadableLog(path, "empty_file", "holds no labelled row")
    return found
