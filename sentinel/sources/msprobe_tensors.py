# SPDX-License-Identifier: Apache-2.0
"""Dumped tensors compared element by element, in a process of its own; where it cannot answer, statistics have to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sentinel.sources.torch_child import TIME_LIMIT_SECONDS, ask_child

# Reads `[[target, golden], ...]`, writes one JSON line a pair: cosine, share within a thousandth, relative norm, place of the worst,
# and units in the last place: median and 99th percentile, null where the two are of other types. Tensors of integers are equal or not.
_CHILD = """
import json, sys
import torch
def load(path):
    return torch.load(path, map_location="cpu", weights_only=True).detach()
WORDS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
def ordered(x):
    word = x.contiguous().view(WORDS[x.dtype]).long()
    lowest = -(1 << (8 * x.element_size() - 1))
    return torch.where(word < 0, lowest - word, word)
def units(a, b):
    if a.dtype != b.dtype or a.dtype not in WORDS:
        return [None, None]
    gap = (ordered(a) - ordered(b)).abs().flatten()
    return [int(gap.kthvalue(max(1, round(share * gap.numel())))[0]) for share in (0.5, 0.99)]
for one, other in json.load(sys.stdin):
    try:
        a, b = load(one), load(other)
        if a.shape != b.shape or a.is_floating_point() != b.is_floating_point():
            raise ValueError("not comparable")
        if not a.numel() or not a.is_floating_point():
            apart = float(not torch.equal(a, b))
            print(json.dumps([1.0 - apart, 1.0 - apart, apart, 0, None, None]), flush=True)
            continue
        last = units(a, b)
        a, b = a.double().flatten(), b.double().flatten()
        gap = (a - b).abs()
        scale = b.norm().item()
        cosine = (torch.dot(a, b) / (a.norm() * b.norm()).clamp_min(1e-300)).item()
        close = (gap <= 1e-3 * b.abs().clamp_min(1e-300)).double().mean().item()
        answer = [cosine, close, gap.norm().item() / max(scale, 1e-300), int(gap.argmax()), *last]
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
    units_median: int | None = None
    units_high: int | None = None
    """Distance in units in the last place, median and 99th percentile; None where the types differ or are no floats."""


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
        if isinstance(answer, list) and len(answer) == 6:
            found[pair] = ElementGap(*answer)
    return found, f"tensors compared element by element: {len(found)} of {len(there)}" + (f"; {why}" if why else "")
