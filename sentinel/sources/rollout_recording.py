# SPDX-License-Identifier: Apache-2.0
"""verl's rollout recordings on disk: where a run looks for its own, and what lies there. Nothing in them is opened but meta.json.

    <dump_dir>/<experiment>_<project>/GBS<b>_N<n>_in<p>_out<r>/<step>/{gen_batch.dp, meta.json}             V0, async
    <dump_dir>/<experiment>_<project>/GBS<b>_N<n>_in<p>_out<r>/<step>/<inner>/{tq_batch.pt, meta.json}      V1

Names, batch size, answers a prompt and lengths are part of the path: a run with another one finds nothing, says so in
one line of its log, and generates.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from sentinel.errors import BaselineError
from sentinel.records import RolloutRecording

V0_FILE, V1_FILE, META = "gen_batch.dp", "tq_batch.pt", "meta.json"
_SHAPE = re.compile(r"GBS(\d+)_N(\d+)_in(\d+)_out(\d+)")
_META_LIMIT = 1 << 16


def recordings(root: Path) -> list[RolloutRecording]:
    """Return the recordings below a folder: a dump_dir, or one of the folders inside it.

    Raises:
        BaselineError: there is no such folder.
    """
    if not root.is_dir():
        raise BaselineError(root, "no such folder; skip.*.dump_dir of the run that recorded")
    shapes = [root] if _SHAPE.fullmatch(root.name) else []
    shapes += [path for depth in ("*", "*/*") for path in sorted(root.glob(depth)) if _SHAPE.fullmatch(path.name)]
    return [_look(path) for path in shapes if path.is_dir()]


def _look(path: Path) -> RolloutRecording:
    steps, broken, layouts, inner, size = [], {}, set(), 1, 0
    for folder in sorted(path.iterdir()):
        if not folder.is_dir() or not folder.name.isdecimal():
            continue
        step = int(folder.name)
        layout, parts, problem = _step(folder, step)
        if problem:
            broken[step] = problem
            continue
        steps.append(step)
        layouts.add(layout)
        inner = max(inner, len(parts))
        size += sum(part.stat().st_size for part in parts)
    return RolloutRecording(
        path=str(path),
        names=path.parent.name,
        shape=path.name,
        layout="/".join(sorted(layouts)),
        steps=tuple(sorted(steps)),
        broken=broken,
        inner=inner,
        bytes=size,
    )


def _step(folder: Path, step: int) -> tuple[str, list[Path], str]:
    """Layout, files and what is wrong with one step."""
    if (folder / V0_FILE).is_file():
        return "v0", [folder / V0_FILE], _part(folder, V0_FILE, step)
    inner = sorted((p for p in folder.iterdir() if p.is_dir() and p.name.isdecimal()), key=lambda p: int(p.name))
    if not inner:
        return "", [], f"neither {V0_FILE} nor a mini-batch folder with {V1_FILE}"
    if [int(p.name) for p in inner] != list(range(len(inner))):
        return "v1", [], "a mini-batch is missing: " + ", ".join(p.name for p in inner)
    problems = [f"mini-batch {p.name}: {problem}" for p in inner if (problem := _part(p, V1_FILE, step))]
    return "v1", [p / V1_FILE for p in inner], "; ".join(problems)


def _part(folder: Path, name: str, step: int) -> str:
    if not (folder / name).is_file():
        return f"no {name}"
    if not (folder / name).stat().st_size:
        return f"{name} is empty"
    meta = folder / META
    if not meta.is_file():
        return f"no {META} (the run that recorded was cut off)"
    try:
        said = json.loads(meta.read_bytes()[:_META_LIMIT])
    except ValueError:
        return f"{META} is no JSON"
    told = said.get("global_steps") if isinstance(said, dict) else None
    return "" if told in (None, step) else f"{META} speaks of step {told}"
