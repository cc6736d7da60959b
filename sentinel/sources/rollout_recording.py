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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentinel.errors import BaselineError

V0_FILE, V1_FILE, META = "gen_batch.dp", "tq_batch.pt", "meta.json"
_SHAPE = re.compile(r"GBS(\d+)_N(\d+)_in(\d+)_out(\d+)")
_META_LIMIT = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """What of a run's configuration is part of the path."""

    experiment: str
    project: str
    batch: int
    n: int
    prompt_length: int
    response_length: int
    inner: int = 1
    """V1: mini-batches that one step samples (parameter_sync_step)."""

    @property
    def names(self) -> str:
        """First folder."""
        return f"{self.experiment}_{self.project}"

    @property
    def shape(self) -> str:
        """Second folder."""
        return f"GBS{self.batch}_N{self.n}_in{self.prompt_length}_out{self.response_length}"

    @property
    def folder(self) -> str:
        """Both."""
        return f"{self.names}/{self.shape}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One recording."""

    path: Path
    """The folder of steps."""
    names: str
    shape: str
    layout: str
    """v0 (which the fully async trainer writes, too) or v1; empty where no step is complete."""
    steps: tuple[int, ...]
    """Complete ones."""
    broken: Mapping[int, str]
    """Step -> what is wrong with it."""
    inner: int = 1
    """V1: most mini-batches of a step."""
    bytes: int = 0


def place_of(config: Mapping[str, Any]) -> Place | None:
    """Where a run of this configuration looks; None where the configuration does not say everything."""
    data, rollout = _at(config, "data"), _at(config, "actor_rollout_ref.rollout")
    trainer = _at(config, "trainer")
    batch = data.get("gen_batch_size") or data.get("train_batch_size")
    numbers = (batch, rollout.get("n"), data.get("max_prompt_length"), data.get("max_response_length"))
    names = trainer.get("experiment_name"), trainer.get("project_name")
    if not all(str(number).isdecimal() for number in numbers) or not all(names):
        return None
    mode = _at(trainer, "v1").get("trainer_mode")
    inner = _at(trainer, f"v1.{mode}").get("parameter_sync_step") if mode else 1
    return Place(
        experiment=str(names[0]),
        project=str(names[1]),
        batch=int(str(numbers[0])),
        n=int(str(numbers[1])),
        prompt_length=int(str(numbers[2])),
        response_length=int(str(numbers[3])),
        inner=int(inner) if str(inner).isdecimal() else 1,
    )


def recordings(root: Path) -> list[Found]:
    """Return the recordings below a folder: a dump_dir, or one of the folders inside it.

    Raises:
        BaselineError: there is no such folder.
    """
    if not root.is_dir():
        raise BaselineError(root, "no such folder; skip.*.dump_dir of the run that recorded")
    shapes = [root] if _SHAPE.fullmatch(root.name) else []
    shapes += [path for depth in ("*", "*/*") for path in sorted(root.glob(depth)) if _SHAPE.fullmatch(path.name)]
    return [_look(path) for path in shapes if path.is_dir()]


def _look(path: Path) -> Found:
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
    return Found(
        path=path,
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


def _at(config: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    for name in path.split("."):
        inner = config.get(name)
        if not isinstance(inner, dict):
            return {}
        config = inner
    return config
