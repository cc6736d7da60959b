# SPDX-License-Identifier: Apache-2.0
"""Who ran inside whom in one dump: its entries as a tree, each with a key that the other side's dump shares.

msprobe writes entries as they complete and numbers the calls of each module over the whole step. Neither survives a recomputed
layer or an expert that is hit on one side only, so keys count calls within the parent, and recomputed forwards are told apart.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from sentinel.records import LayerStat

_WRAPPERS = re.compile(r"(^|\.)(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod|_forward_module)(?=\.|$)")
_CALL = re.compile(r"\.(\d+)(?:\.(?:forward|backward))?$")

Rename = Callable[[str], str]


@dataclass(slots=True)
class Entry:
    """One call of a module or an operation, in one direction."""

    name: str
    module: str
    """Path of `named_modules()` without wrappers; for an operation, its API name."""
    kind: str
    """forward, backward, recompute, parameters_grad."""
    call: int
    order: int
    operation: bool
    inside: str
    """Name of the entry that this one ran inside, as the dump says; may be empty or not dumped."""
    rows: tuple[LayerStat, ...]
    key: str = ""
    parent: Entry | None = None
    children: list[Entry] = field(default_factory=list)


def outline(stats: Sequence[LayerStat], rename: Rename | None = None) -> list[Entry]:
    """The entries of a dump in order of completion, with parents, children and keys set."""
    entries = [_entry(name, tuple(rows), rename) for name, rows in groupby(stats, key=lambda row: row.name)]
    _unwrap_list_index(entries)
    forwards = [entry for entry in entries if entry.kind == "forward"]
    backwards = [entry for entry in entries if entry.kind == "backward"]
    primaries = _mark_recomputed(forwards, backwards)
    _nest_forwards(forwards)
    _key_forwards(forwards, primaries)
    _nest_backwards(forwards, backwards, primaries)
    _key_gradients(entries)
    for entry in entries:
        if entry.parent is not None:
            entry.parent.children.append(entry)
    return entries


def clean_path(path: str) -> str:
    """A module path without the names that wrappers (FSDP, checkpointing, torch.compile) put into it.

    >>> clean_path("_fsdp_wrapped_module.model.layers.0._checkpoint_wrapped_module.mlp")
    'model.layers.0.mlp'
    """
    return _WRAPPERS.sub("", path).lstrip(".")


def _entry(name: str, rows: tuple[LayerStat, ...], rename: Rename | None) -> Entry:
    first = rows[0]
    operation = not name.startswith("Module.")
    kind = "parameters_grad" if all(row.position.startswith("parameters_grad") for row in rows) else ""
    kind = kind or next((row.direction for row in rows if row.direction != "parameters"), "forward")
    found = _CALL.search(name)
    module = first.module if operation else clean_path(first.module)
    if rename is not None and not operation:
        module = rename(module)
    return Entry(name, module, kind, int(found[1]) if found else 0, first.order, operation, first.parent, rows)


def _unwrap_list_index(entries: list[Entry]) -> None:
    """Drop the leading `0.` or `module.` that a list of one model, or a wrapper, puts before every path."""
    modules = [entry for entry in entries if not entry.operation]
    heads = {entry.module.partition(".")[0] for entry in modules}
    while len(heads) == 1 and (heads <= {"module"} or next(iter(heads)).isdigit()):
        shortened = [entry.module.partition(".")[2] for entry in modules]
        if not all(shortened):
            return
        for entry, module in zip(modules, shortened, strict=True):
            entry.module = module
        heads = {module.partition(".")[0] for module in shortened}


def _nest_forwards(forwards: list[Entry]) -> None:
    """Children complete before their parent: a completing module adopts the open entries below its path."""
    by_name = {entry.name: entry for entry in forwards}
    waiting: list[Entry] = []
    for entry in forwards:
        stated = by_name.get(entry.inside)
        if stated is not None and stated.order > entry.order:
            entry.parent = stated
        if not entry.operation:
            prefix = entry.module + "."
            rest = []
            for orphan in waiting:
                if orphan.module.startswith(prefix) and orphan.kind == entry.kind:
                    orphan.parent = entry
                else:
                    rest.append(orphan)
            waiting = rest
        if entry.parent is None and not entry.operation:
            waiting.append(entry)


def _mark_recomputed(forwards: list[Entry], backwards: list[Entry]) -> dict[int, Entry]:
    """Tell the second run of a checkpointed module from a second call.

    The backward pass bears the number of the forward whose graph it walks: a forward without a backward, followed by one of
    the same inputs that has one, was run again. Returns the first run of each by identity.
    """
    walked = {(entry.module, entry.call) for entry in backwards}
    calls: dict[str, list[Entry]] = defaultdict(list)
    primaries: dict[int, Entry] = {}
    for entry in forwards:
        if entry.operation:
            continue
        before = calls[entry.module]
        last = before[-1] if before else None
        again = (
            last is not None
            and last.kind == "forward"
            and (entry.module, last.call) not in walked
            and (entry.module, entry.call) in walked
            and _same_inputs(last, entry)
        )
        if again and last is not None:
            entry.kind = "recompute"
            primaries[id(entry)] = last
        before.append(entry)
    return primaries


def _same_inputs(one: Entry, other: Entry) -> bool:
    ones, others = (
        [(row.position, row.shape, row.max, row.min) for row in entry.rows if row.direction == "forward"][:1]
        for entry in (one, other)
    )
    return ones == others


def _key_forwards(forwards: list[Entry], primaries: dict[int, Entry]) -> None:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    by_parent: dict[int, list[Entry]] = defaultdict(list)
    for entry in forwards:
        by_parent[id(entry.parent)].append(entry)
    pending = deque(sorted(by_parent[id(None)], key=lambda entry: entry.kind == "recompute"))
    while pending:
        entry = pending.popleft()
        above = entry.parent.key if entry.parent is not None else ""
        if id(entry) in primaries and (entry.parent is None or entry.parent.kind != "recompute"):
            entry.key = f"R:{primaries[id(entry)].key}"
        else:
            place = (above, entry.module)
            entry.key = f"{above}>{entry.module}#{counts[place]}"
            counts[place] += 1
        pending.extend(by_parent.get(id(entry), ()))


def _nest_backwards(forwards: list[Entry], backwards: list[Entry], primaries: dict[int, Entry]) -> None:
    """A backward entry stands where its forward stood: its own order of completion lies where inputs came by keyword."""
    forward_of = {(entry.module, entry.call, entry.operation): entry for entry in forwards}
    backward_of: dict[int, Entry] = {}
    for entry in backwards:
        forward = forward_of.get((entry.module, entry.call, entry.operation))
        if forward is not None:
            backward_of[id(forward)] = entry
            entry.key = f"B:{primaries.get(id(forward), forward).key}"
    counts: dict[str, int] = defaultdict(int)
    for entry in backwards:
        if not entry.key:
            entry.key = f"B:>{entry.module}#{counts[entry.module]}"
            counts[entry.module] += 1
            continue
        above = forward_of[(entry.module, entry.call, entry.operation)].parent
        while above is not None and id(above) not in backward_of:
            above = above.parent
        entry.parent = backward_of[id(above)] if above is not None else None


def _key_gradients(entries: list[Entry]) -> None:
    counts: dict[str, int] = defaultdict(int)
    for entry in entries:
        if entry.kind == "parameters_grad":
            entry.key = f"G:{entry.module}#{counts[entry.module]}"
            counts[entry.module] += 1
