# SPDX-License-Identifier: Apache-2.0
"""Dumped tensors compared element by element, in a process of its own; where it cannot answer, statistics have to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sentinel.sources.torch_child import TIME_LIMIT_SECONDS, ask_child

# Reads `[[target, golden], ...]`, writes one JSON line a pair: cosine, share within a thousandth, relative norm, place of the worst.
_CHILD = """
import json, sys
import torch
def load(path):
    return torch.load(path, map_location="cpu", weights_only=True).detach()
for one, other in json.load(sys.stdin):
    try:
        a, b = load(one), load(other)
        if a.shape != b.shape or not a.numel() or not (a.is_floating_point() and b.is_floating_point()):
            raise ValueError("not comparable")
        a, b = a.double().flatten(), b.double().flatten()
        gap = (a - b).abs()
        scale = b.norm().item()
        cosine = (torch.dot(a, b) / (a.norm() * b.norm()).clamp_min(1e-300)).item()
        close = (gap <= 1e-3 * b.abs().clamp_min(1e-300)).double().mean().item()
        answer = [cosine, close, gap.norm().item() / max(scale, 1e-300), int(gap.argmax())]
    except Exception as error:
        answer = str(error)[:200]
    print(json.dumps(answer), flush=True)
"""


@dataclass(frozen=True, slots=True)
class ElementGap:
    """Two tensors, element by element."""

    cosine: float
    within_thousandth: float
    """Share of the elements that differ by no more than a thousandth."""
    relative: float
    """Norm of the difference over the golden norm."""
    worst: int
    """Flat index of the element that differs most."""


def measure(
    pairs: Sequence[tuple[str, str]], *, limit_seconds: float = TIME_LIMIT_SECONDS
) -> tuple[Mapping[tuple[str, str], ElementGap], str]:
    """Compare tensor files; what could not be compared is left out, and the second value says why (empty: nothing to say)."""
    there = [pair for pair in pairs if all(Path(path).is_file() for path in pair)]
    if not there:
        return {}, ""
    answers, why = ask_child(_CHILD, there, limit_seconds=limit_seconds)
    found = {}
    for pair, answer in zip(there, answers, strict=False):
        if isinstance(answer, list) and len(answer) == 4:
            found[pair] = ElementGap(*answer)
    return found, f"tensors compared element by element: {len(found)} of {len(there)}" + (f"; {why}" if why else "")
