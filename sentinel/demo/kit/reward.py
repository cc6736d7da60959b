# SPDX-License-Identifier: Apache-2.0
"""The rule reward of the demo: how near an answer comes to the right sentence, from 0 to 1."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any


def compute_score(
    data_source: str,  # noqa: ARG001
    solution_str: str,
    ground_truth: str,
    extra_info: Any = None,  # noqa: ARG001
    **_: Any,
) -> float:
    """1.0 for the right sentence; otherwise half the share of it that was matched."""
    answer = solution_str.strip()
    if answer == ground_truth:
        return 1.0
    return 0.5 * SequenceMatcher(None, answer, ground_truth, autojunk=False).ratio()
