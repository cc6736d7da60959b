# SPDX-License-Identifier: Apache-2.0
"""Who ran inside whom in one dump: its entries as a tree, and keys by which both sides' entries find each other.

msprobe writes entries as they complete and numbers the calls of each module over the whole step. Neither survives a recomputed
layer or an expert that is hit on one side only, so keys count calls within the parent, and recomputed forwards are told apart.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from sentinel.records import LayerStat

_WRAPPERS = re.compile(r"(^|\.)(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod|_forward_module)(?=\.|$)")

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
    """Set by `key_forwards` and `key_others`."""
    parent: Entry | None = None
    forward: Entry | None = None
    """For a backward entry, the forward whose graph it walked."""
    primary: Entry | None = None
    """For a recomputed forward, its first run."""


def outline(stats: Sequence[LayerStat], rename: Rename | None = None) -> list[Entry]:
    """The entries of a dump in order of completion, with parents set."""
    paths = {path: clean_path(path) for path in {row.module for row in stats}}
    if rename is not None:
        paths = {path: rename(clean) for path, clean in paths.items()}
    entries = [_entry(tuple(rows), paths) for _, rows in groupby(stats, key=attrgetter("name"))]
    _unwrap_list_index(entries)
    forwards = [entry for entry in entries if entry.kind == "forward"]
    backwards = [entry for entry in entries if entry.kind == "backward"]
    primaries = _mark_recomputed(forwards, backwards)
    _nest_forwards(forwards)
    _nest_backwards(forwards, backwards)
    for entry in forwards if primaries else ():
        entry.primary = primaries.get(id(entry))
    return entries


def clean_path(path: str) -> str:
    """A module path without the names that wrappers (FSDP, checkpointing, torch.compile) put into it.

    >>> clean_path("_fsdp_wrapped_module.model.layers.0._checkpoint_wrapped_module.mlp")
    'model.layers.0.mlp'
    """
    return _WRAPPERS.sub("", path).lstrip(".")


def _entry(rows: tuple[LayerStat, ...], paths: dict[str, str]) -> Entry:
    """One call; `paths` remembers what became of the module paths so far."""
    first = rows[0]
    name, kind = first.name, first.direction
    operation = not name.startswith("Module.")
    if kind == "parameters":
        # The gradients of parameters are an entry of their own; parameters stand beside what was computed with them.
        gradients = first.position.startswith("parameters_grad")
        kind = "parameters_grad" if gradients else next((r.direction for r in rows if r.direction != kind), "forward")
    module = first.module if operation else paths[first.module]
    return Entry(name, module, kind, _call_number(name), first.order, operation, first.parent, rows)


def _call_number(name: str) -> int:
    """The number of the call: `X.forward.3` of modules, `X.3.forward` of operations; 0 where there is none."""
    head, _, last = name.rpartition(".")
    if last in {"forward", "backward"}:
        last = head.rpartition(".")[2]
    return int(last) if last.isdecimal() else 0


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
    """Tell the second run of a checkpointed module from a second call; return the first run of each by identity.

    Of a call and its second run only one is followed by a backward pass of its number: the second where checkpointing is
    reentrant, the first, and later than the second run, where it is not.
    """
    walked = {(entry.module, entry.call): entry.order for entry in backwards}
    last_of: dict[str, Entry] = {}
    primaries: dict[int, Entry] = {}
    for entry in forwards:
        if entry.operation:
            continue
        last = last_of.get(entry.module)
        if last is not None and last.kind == "forward" and _same_inputs(last, entry):
            first_walked = walked.get((entry.module, last.call))
            again = (entry.module, entry.call) in walked
            if again if first_walked is None else not again and first_walked > entry.order:
                entry.kind = "recompute"
                primaries[id(entry)] = last
        last_of[entry.module] = entry
    return primaries


def _same_inputs(one: Entry, other: Entry) -> bool:
    ones, others = (
        [(row.position, row.shape, row.max, row.min) for row in entry.rows if row.direction == "forward"][:1]
        for entry in (one, other)
    )
    return ones == others


def _nest_backwards(forwards: list[Entry], backwards: list[Entry]) -> None:
    """A backward entry stands where its forward stood: its own order of completion lies where inputs came by keyword."""
    forward_of = {(entry.module, entry.call, entry.operation): entry for entry in forwards}
    backward_of: dict[int, Entry] = {}
    for entry in backwards:
        forward = forward_of.get((entry.module, entry.call, entry.operation))
        if forward is not None:
            entry.forward = forward
            backward_of[id(forward)] = entry
    for entry in backwards:
        above = entry.forward.parent if entry.forward is not None else None
        while above is not None and id(above) not in backward_of:
            above = above.parent
        entry.parent = backward_of[id(above)] if above is not None else None


class Counter:
    """Numbers calls of one name within one surrounding."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = defaultdict(int)

    def key(self, above: str, module: str) -> str:
        """The next key of that name there."""
        self._counts[above, module] += 1
        return f"{above}>{module}#{self._counts[above, module]}"


def key_forwards(entries: Sequence[Entry], shared: Container[str]) -> dict[str, list[Entry]]:
    """Give each forward entry the key that its counterpart on the other side has; return the operations by surrounding key.

    Calls are counted within the nearest surrounding module that both sides dumped (`shared`), so that an expert that was hit on
    one side only, or a container that one side left out, does not shift the numbers of what follows.
    """
    counter = Counter()
    operations: dict[str, list[Entry]] = defaultdict(list)
    forwards = list(_calls_in_order([entry for entry in entries if entry.kind in {"forward", "recompute"}]))
    for kind in ("forward", "recompute"):
        for entry in forwards:
            if entry.kind != kind:
                continue
            above = entry.parent
            while above is not None and above.module not in shared:
                above = above.parent
            if entry.primary is not None and (above is None or above.kind != "recompute"):
                entry.key = f"R:{entry.primary.key}"
            else:
                entry.key = counter.key(above.key if above is not None else "", entry.module)
            if entry.operation:
                operations[above.key if above is not None else ""].append(entry)
    return operations


def key_others(entries: Sequence[Entry]) -> None:
    """Give backward entries the keys of their forwards, and gradients keys by module."""
    counter = Counter()
    for entry in entries:
        if entry.kind == "backward":
            forward = entry.forward
            entry.key = (
                f"B:{(forward.primary or forward).key}" if forward is not None else counter.key("B:", entry.module)
            )
        elif entry.kind == "parameters_grad":
            entry.key = counter.key("G:", entry.module)


def _calls_in_order(forwards: Sequence[Entry]) -> Iterator[Entry]:
    """Parents before their children, siblings in order of completion."""
    inside: dict[int, list[Entry]] = defaultdict(list)
    for entry in forwards:
        inside[id(entry.parent)].append(entry)
    pending = deque(inside[id(None)])
    while pending:
        entry = pending.popleft()
        yield entry
        pending.extend(inside.get(id(entry), ()))
