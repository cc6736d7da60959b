# SPDX-License-Identifier: Apache-2.0
"""msprobe dumps as layer statistics: one rank, one stage, a step or a whole tree.

A dump that cannot be trusted (cut off, empty, several runs in one folder) is refused in one line; it never reads as "nothing found".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sentinel.errors import UnreadableDump
from sentinel.records import UNKNOWN_STAGE, LayerStat
from sentinel.sources.msprobe_json import entries, parents
from sentinel.sources.msprobe_rows import Rows

_STEP = re.compile(r"^step_?(\d+)$")
_RANK = re.compile(r"^rank(\d+)$")
_PROCESS = re.compile(r"^proc\d+$")

Stats = tuple[LayerStat, ...]


@dataclass(frozen=True, slots=True)
class RankDump:
    """What one rank dumped of one stage."""

    path: str
    task: str
    level: str
    stats: Stats
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dump:
    """The dumps of one step: stage -> rank -> layer statistics in order of completion."""

    path: str
    step: int | None
    level: str
    task: str
    stages: Mapping[str, Mapping[int, Stats]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where one dump.json lies: outer step, stage and rank as its folders say."""

    file: Path
    step: int | None
    stage: str
    inner_step: int | None
    rank: int | None


def read_dump(path: str | os.PathLike[str], *, step: int | None = None, stages: tuple[str, ...] | None = None) -> Dump:
    """Read the dump of one step from a root, step, stage or rank directory, or from a dump.json.

    Args:
        path: where to look.
        step: which step to take when `path` holds several.
        stages: read only these, where the tree names stages; None reads all.

    Raises:
        UnreadableDump: nothing there, several steps or runs mixed, or a file that is cut off, empty or no dump.
    """
    places = _of_one_step(Path(path), find_dumps(path), step)
    if stages is not None:
        places = [place for place in places if place.stage in stages or place.stage == UNKNOWN_STAGE]
        if not places:
            raise UnreadableDump(path, f"holds no dump of {', '.join(stages)}")
    by_stage: dict[str, dict[int, Stats]] = {}
    notes: list[str] = []
    levels: list[str] = []
    tasks: list[str] = []
    for place in places:
        dump = read_rank(place.file)
        by_stage.setdefault(place.stage, {})[place.rank or 0] = dump.stats
        levels.append(dump.level)
        tasks.append(dump.task)
        notes += [note for note in dump.notes if note not in notes]
    return Dump(str(path), places[0].step, _one(levels), _one(tasks), by_stage, tuple(notes))


def find_dumps(path: str | os.PathLike[str]) -> list[Place]:
    """Every dump.json at or below `path`, in order of step, stage and rank.

    Raises:
        UnreadableDump: there is none, or a step folder mixes several processes.
    """
    start = Path(path)
    if not start.exists():
        raise UnreadableDump(path, "does not exist")
    if start.is_file():
        if start.suffix != ".json":
            raise UnreadableDump(path, "is no msprobe dump: give a dump folder or a dump.json")
        return [_place(start)]
    files = [Path(folder) / "dump.json" for folder in _folders(start) if (Path(folder) / "dump.json").is_file()]
    if not files:
        raise UnreadableDump(path, "no dump.json in it: not an msprobe dump, or nothing was written yet")
    _refuse_mixed_processes(files)
    places = [_place(file) for file in files]
    return sorted(places, key=lambda p: (p.step or 0, p.stage, p.inner_step or 0, p.rank or 0))


def steps_of(places: list[Place]) -> tuple[int, ...]:
    """The steps that these dumps belong to."""
    return tuple(sorted({place.step for place in places if place.step is not None}))


def read_rank(file: Path) -> RankDump:
    """Read one dump.json, and construct.json beside it where there is one.

    Raises:
        UnreadableDump: cut off, empty, or not a dump.
    """
    notes: list[str] = []
    parent_of = parents(file.parent / "construct.json", notes)
    header: dict[str, object] = {}
    stats: list[LayerStat] = []
    rows = Rows(str(file.parent / "dump_tensor_data"))
    for order, (name, entry) in enumerate(entries(file, header)):
        if isinstance(entry, dict):
            stats += rows.of(name, entry, order, parent_of.get(name) or "")
    if not stats:
        raise UnreadableDump(
            file, "holds no tensor: the dump has only just begun, or its scope matched no module; trust it after stop()"
        )
    return RankDump(str(file), str(header.get("task", "")), str(header.get("level", "")), tuple(stats), tuple(notes))


def _folders(start: Path) -> Iterator[str]:
    for folder, below, _ in os.walk(start):
        depth = len(Path(folder).relative_to(start).parts)
        below[:] = [] if depth >= 5 else sorted(name for name in below if name != "dump_tensor_data")
        yield folder


def _place(file: Path) -> Place:
    names = [part for part in file.absolute().parent.parts if part]
    rank = next((int(m[1]) for name in names[-1:] if (m := _RANK.match(name))), None)
    marks = [(at, int(m[1]), name) for at, name in enumerate(names) if (m := _STEP.match(name))]
    outer = next(((at, step) for at, step, name in reversed(marks) if name.startswith("step_")), None)
    inner = next(((at, step) for at, step, name in reversed(marks) if not name.startswith("step_")), None)
    if outer is None:
        return Place(file, inner[1] if inner else None, UNKNOWN_STAGE, None, rank)
    between = names[outer[0] + 1 : inner[0] if inner and inner[0] > outer[0] else len(names) - 1]
    return Place(file, outer[1], between[-1] if between else UNKNOWN_STAGE, inner[1] if inner else None, rank)


def _of_one_step(path: Path, places: list[Place], step: int | None) -> list[Place]:
    steps = steps_of(places)
    if step is not None and len(steps) > 1:
        places = [place for place in places if place.step == step]
        if not places:
            raise UnreadableDump(path, f"holds the steps {', '.join(map(str, steps))} and not {step}")
    elif len(steps) > 1:
        raise UnreadableDump(path, f"holds the steps {', '.join(map(str, steps))}: name one of their folders")
    seen: dict[tuple[str, int | None], Place] = {}
    for place in places:
        twin = seen.setdefault((place.stage, place.rank), place)
        if twin is not place:
            raise UnreadableDump(path, f"two dumps of the same stage and rank: {twin.file} and {place.file}; name one")
    return places


def _refuse_mixed_processes(files: list[Path]) -> None:
    processes: dict[Path, list[str]] = {}
    for file in files:
        folder = file.parent
        if _PROCESS.match(folder.name):
            processes.setdefault(folder.parent, []).append(folder.name)
        elif _RANK.match(folder.name):
            processes.setdefault(folder.parent, [])
    for step, names in processes.items():
        ranks = [file for file in files if file.parent.parent == step and _RANK.match(file.parent.name)]
        if len(names) > 1 or (names and ranks):
            raise UnreadableDump(
                step, f"holds the process folders {', '.join(sorted(names))} of several runs: name one of them"
            )


def _one(values: list[str]) -> str:
    kinds = sorted(set(values))
    return kinds[0] if len(kinds) == 1 else "+".join(kinds)
