# SPDX-License-Identifier: Apache-2.0
"""Dumped tensors compared element by element, in a process of its own.

torch is optional, a tensor file may be hostile or huge, and loading may be killed for memory: a child process loads with
`weights_only`, so nothing is unpickled freely, and its death costs a note. Where it cannot answer, statistics have to do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TIME_LIMIT_SECONDS = 120.0
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
    command = [sys.executable, "-c", _CHILD]
    try:
        done = subprocess.run(  # noqa: S603  # our own script, by this interpreter
            command, input=json.dumps(there), capture_output=True, text=True, timeout=limit_seconds, check=False
        )
        printed = done.stdout
        why = "" if done.returncode == 0 else f"the process that loads them ended: {_last(done.stderr)}"
    except subprocess.TimeoutExpired as late:
        printed = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        why = f"not all of them within {limit_seconds:g} s"
    found = {}
    for pair, line in zip(there, printed.splitlines(), strict=False):
        gap = _gap(line)
        if gap is not None:
            found[pair] = gap
    return found, f"tensors compared element by element: {len(found)} of {len(there)}" + (f"; {why}" if why else "")


def _gap(line: str) -> ElementGap | None:
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return ElementGap(*answer) if isinstance(answer, list) and len(answer) == 4 else None


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "without a word"
