# SPDX-License-Identifier: Apache-2.0
"""The manifest of a baseline bundle: its form, and how runs, dumps and rollouts are described in it."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from sentinel.errors import BaselineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sentinel.records import GoldenDump, ReferenceRun

FORMAT = 1
"""Rises when an older Sentinel could no longer read a bundle rightly."""


class RunEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the metric table."""

    source: str
    steps: int
    first_step: int | None
    last_step: int | None
    twin: bool = False
    attempts: int = 1
    resolution: float | None = None


class DumpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The golden dump of one stage of one step."""

    step: int
    stage: str
    ranks: list[int]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One other member of the bundle."""

    sha256: str
    bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle holds; without `parts` it is what `sentinel baseline show` prints."""

    format: int
    name: str
    created: str
    """UTC, as in 2026-01-31T12:00:00Z."""
    made: str
    runs: list[RunEntry]
    metrics: list[str]
    """In the order of the table's columns."""
    rollout_steps: list[int]
    dumps: list[DumpEntry]
    fingerprint: dict[str, Any] | None
    parts: dict[str, Part]

    def digest(self) -> str:
        """Return a name for exactly these contents: the hash of the manifest, which holds the hashes of all parts."""
        return hashlib.sha256(encode(self)).hexdigest()


def utc_text(at: datetime | None = None) -> str:
    """Return a time (now, if not given) as the manifest writes it."""
    return (at or datetime.now(timezone.utc)).astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def encode(manifest: Manifest) -> bytes:
    """Return the manifest as JSON; the standard module, because keys of strangers may hold lone surrogates."""
    return json.dumps(msgspec.to_builtins(manifest), indent=1, allow_nan=False).encode()


def decode(content: bytes, path: object) -> Manifest:
    """Return the manifest in a bundle's text.

    Raises:
        BaselineError: it is none, or one of an unknown format.
    """
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BaselineError(path, "its manifest is no JSON; copy the bundle again") from error
    found = plain.get("format") if isinstance(plain, dict) else None
    if found != FORMAT:
        raise BaselineError(path, f"bundle format {found!r} is not known here (known: {FORMAT}); upgrade Sentinel")
    try:
        return msgspec.convert(plain, Manifest)
    except msgspec.ValidationError as error:
        raise BaselineError(path, f"its manifest is at fault: {error}") from error


def describe_run(run: ReferenceRun) -> RunEntry:
    """Return the manifest's entry of a run."""
    steps = sorted({reading.step for reading in run.readings})
    return RunEntry(
        source=run.source,
        steps=len(steps),
        first_step=steps[0] if steps else None,
        last_step=steps[-1] if steps else None,
        twin=run.twin,
        attempts=max((reading.attempt for reading in run.readings), default=0),
        resolution=run.resolution,
    )


def describe_dumps(dumps: Sequence[GoldenDump]) -> list[DumpEntry]:
    """Return the manifest's index of golden dumps, by step and stage."""
    ranks: dict[tuple[int, str], set[int]] = {}
    for dump in dumps:
        ranks.setdefault((dump.step, dump.stage), set()).update(dump.ranks)
    return [DumpEntry(step=step, stage=stage, ranks=sorted(ranks[step, stage])) for step, stage in sorted(ranks)]


def rollout_steps(names: Iterable[str]) -> list[int]:
    """Return the steps of rollout files: of `<N>.jsonl`, and of a recording's folders `<N>/`."""
    steps: set[int] = set()
    for name in names:
        path = PurePosixPath(name)
        texts = [path.stem] if path.suffix == ".jsonl" else list(path.parts[:-1])
        steps.update(int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) <= 12)
    return sorted(steps)
