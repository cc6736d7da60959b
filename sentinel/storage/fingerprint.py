# SPDX-License-Identifier: Apache-2.0
"""What a baseline remembers of the run that it was recorded from; credentials are cut out before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sentinel.facts.secrets import clean_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_THE_PROCESS = frozenset({"pid", "host", "rollout_data_dir"})


def facts_fingerprint(facts: Mapping[str, object]) -> dict[str, object]:
    """Return what a run said of itself, without what says nothing about the recipe (process and host)."""
    plain = clean_plain({key: value for key, value in facts.items() if key not in _OF_THE_PROCESS})
    assert isinstance(plain, dict)
    return plain


def flatten(value: object, prefix: str = "") -> dict[str, object]:
    """Return nested mappings as one level of dotted keys."""
    if not isinstance(value, dict) or not value:
        return {prefix: value} if prefix else {}
    flat: dict[str, object] = {}
    for key, inner in value.items():
        flat |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat
