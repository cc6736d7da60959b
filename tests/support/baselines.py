# SPDX-License-Identifier: Apache-2.0
"""Builders of reference runs, golden dump trees and recordings, for tests."""

import json
import math
from pathlib import Path

from sentinel.records import GoldenDump, Reading, ReferenceRun


def a_run(
    source="seed1.log", *, steps=5, offset=0.0, twin=False, resolution=None, keys=("actor/loss", "actor/grad_norm")
):
    """A run whose values are `offset + step + position of the key / 10`."""
    readings = tuple(
        Reading(step=step, metrics={key: offset + step + position / 10 for position, key in enumerate(keys)})
        for step in range(1, steps + 1)
    )
    return ReferenceRun(source=source, readings=readings, twin=twin, resolution=resolution)


def same_readings(a, b):
    """Whether two sequences of readings are equal, NaN being equal to NaN and absent to absent only."""
    return len(a) == len(b) and all(
        (x.step, x.kind, x.attempt) == (y.step, y.kind, y.attempt)
        and x.metrics.keys() == y.metrics.keys()
        and all(same_number(x.metrics[key], y.metrics[key]) for key in x.metrics)
        for x, y in zip(a, b, strict=True)
    )


def same_number(a, b):
    """Whether two floats are the same value: NaN equals NaN, -0.0 does not equal 0.0."""
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def write_dump(root: Path, step: int, stage: str, rank: int = 0, norm: float = 1.0) -> Path:
    """Write the dump of one rank; return its folder."""
    folder = root / f"step_{step}" / stage / "step0" / f"rank{rank}"
    folder.mkdir(parents=True, exist_ok=True)
    statistics = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Norm": norm, "Mean": math.nan}
    data = {"Module.model.lm_head.Linear.forward.0": {"input_args": [statistics], "output": [statistics]}}
    document = {"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": None, "data": data}
    (folder / "dump.json").write_text(json.dumps(document))
    (folder / "construct.json").write_text("{}")
    (folder / "stack.json").write_text("{}")
    return folder


def a_golden(root: Path, step: int = 3, stage: str = "actor_update", ranks=(0,)) -> GoldenDump:
    """A golden dump that lies on disk."""
    for rank in ranks:
        write_dump(root, step, stage, rank)
    return GoldenDump(step=step, stage=stage, ranks=tuple(ranks), path=str(root / f"step_{step}" / stage))


def start_record(**facts):
    """The line with which a trainer process begins."""
    known = {"verl": "0.9.1", "trainer": "v1", "pid": 7, "host": "gpu1", "experiment": "exp", **facts}
    return {"t": "start", "at": 1_700_000_000.0, "facts": known, "config": {"path": "s.yaml", "text": "run: exp"}}


def step_record(step, **values):
    """The line of one step; `__` in a name stands for `/`."""
    numbers = {key.replace("__", "/"): value for key, value in values.items()}
    return {"t": "step", "step": step, "at": 1_700_000_000.0 + step, "values": numbers, "unreadable": []}


def receipt_record(step, stage, outcome="complete"):
    """The line that says that a dump was finished."""
    receipt = {"first_step": step, "last_step": step, "stages": [stage], "ranks": [0], "paths": [], "bytes": 1}
    return {
        "t": "receipt",
        "capture": "golden",
        "receipt": receipt | {"seconds": 0.1, "outcome": outcome, "why": ""},
        "at": 1.0,
    }


def write_recording(path: Path, *records) -> Path:
    """Write a recording as the trainer side does: bare NaN, one object a line."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
