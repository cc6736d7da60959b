# SPDX-License-Identifier: Apache-2.0
"""Which entry of the target belongs to which entry of the golden dump, and what is left over on either side."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sentinel.core.triage.alignment import common_subsequence
from sentinel.core.triage.outline import Entry, Rename, clean_path, key_forwards, key_others
from sentinel.records import LayerStat

RowPair = tuple[LayerStat, LayerStat]


@dataclass(slots=True)
class Pair:
    """One entry on both sides, with the rows that stand at the same position of both."""

    target: Entry
    golden: Entry
    rows: tuple[RowPair, ...]
    lone_positions: tuple[str, ...] = ()
    """Positions that only one side has."""


@dataclass(slots=True)
class Pairing:
    """All pairs, in the target's order of completion."""

    pairs: list[Pair]
    only_in_target: list[Entry]
    only_in_golden: list[Entry]
    notes: tuple[str, ...] = ()


def pair_up(target: Sequence[Entry], golden: Sequence[Entry]) -> Pairing:
    """Pair the entries of two outlines by key."""
    shared = {entry.module for entry in target} & {entry.module for entry in golden}
    mine, theirs = key_forwards(target, shared), key_forwards(golden, shared)
    for above in mine.keys() & theirs.keys():
        _align(mine[above], theirs[above])
    key_others(target)
    key_others(golden)
    waiting = {entry.key: entry for entry in golden}
    pairs: list[Pair] = []
    lone: list[Entry] = []
    for entry in target:
        other = waiting.pop(entry.key, None)
        if other is None:
            lone.append(entry)
            continue
        pairs.append(_pair(entry, other))
    return Pairing(pairs, lone, list(waiting.values()))


def _align(mine: list[Entry], theirs: list[Entry]) -> None:
    """Give operations of one surrounding common keys where the two sides ran different ones in between."""
    names, others = [_shape_of_call(entry) for entry in mine], [_shape_of_call(entry) for entry in theirs]
    if names == others:
        return
    for entry in (*mine, *theirs):
        entry.key = f"{entry.key}?{id(entry)}"
    for one, other in common_subsequence(names, others):
        theirs[other].key = mine[one].key


def _shape_of_call(entry: Entry) -> tuple[str, list[int]]:
    """An operation's name, and how many dimensions its arguments have."""
    return entry.module, [len(row.shape) for row in entry.rows if row.position.startswith("input.")]


def renaming(
    target: Sequence[LayerStat], golden: Sequence[LayerStat], mapping: Mapping[str, str]
) -> tuple[Rename | None, str]:
    """How a module path of the target is called in the golden dump, and a note about it.

    Args:
        target: rows of the target.
        golden: rows of the golden dump.
        mapping: the user's words: target path (or its beginning; `*` stands for one component) -> golden path.
    """
    if mapping:
        return _mapped(mapping), f"{len(mapping)} names mapped as asked"
    paths, wanted = _paths(target), _paths(golden)
    if not paths or not wanted or len(paths & wanted) * 2 >= min(len(paths), len(wanted)):
        return None, ""
    best, strip, add = max(
        (sum(_moved(path, strip, add) in wanted for path in paths), strip, add)
        for strip, add in _prefix_candidates(paths, wanted)
    )
    if best * 2 < min(len(paths), len(wanted)):
        return None, ""
    note = f"names of the target taken as {add + '.' if add else ''}... instead of {strip + '.' if strip else ''}..."
    return (lambda path: _moved(path, strip, add)), note


def _pair(entry: Entry, other: Entry) -> Pair:
    if [row.position for row in entry.rows] == [row.position for row in other.rows]:
        return Pair(entry, other, tuple(zip(entry.rows, other.rows, strict=True)))
    theirs = {row.position: row for row in other.rows}
    rows = []
    lone = []
    for row in entry.rows:
        match = theirs.pop(row.position, None)
        if match is None:
            lone.append(row.position)
        else:
            rows.append((row, match))
    return Pair(entry, other, tuple(rows), (*lone, *theirs))


def _paths(rows: Sequence[LayerStat]) -> set[str]:
    return {clean_path(path) for path in {row.module for row in rows if row.name.startswith("Module.")}}


def _prefix_candidates(paths: set[str], wanted: set[str]) -> list[tuple[str, str]]:
    """Heads that one side may carry before what is otherwise the same path."""
    tails: dict[str, set[str]] = {}
    for path in wanted:
        parts = path.split(".")
        for cut in range(min(len(parts), 4)):
            tails.setdefault(".".join(parts[cut:]), set()).add(".".join(parts[:cut]))
    votes: Counter[tuple[str, str]] = Counter({("", ""): 1})
    for path in paths:
        parts = path.split(".")
        for cut in range(min(len(parts), 4)):
            for add in tails.get(".".join(parts[cut:]), ()):
                votes[".".join(parts[:cut]), add] += 1
    return [pair for pair, _ in votes.most_common(8)]


def _moved(path: str, strip: str, add: str) -> str:
    if strip and path != strip and not path.startswith(strip + "."):
        return path
    rest = path[len(strip) :].lstrip(".")
    return f"{add}.{rest}".strip(".")


def _mapped(mapping: Mapping[str, str]) -> Rename:
    rules = [(re.compile(_pattern(source)), target) for source, target in mapping.items()]

    def rename(path: str) -> str:
        for pattern, target in rules:
            found = pattern.match(path)
            if found:
                for part in found.groups():
                    target = target.replace("*", part, 1)
                return target + path[found.end() :]
        return path

    return rename


def _pattern(source: str) -> str:
    components = ["([^.]+)" if part == "*" else fnmatch.translate(part)[4:-3] for part in source.split(".")]
    return r"\.".join(components) + r"(?=\.|$)"
