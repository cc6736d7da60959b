# SPDX-License-Identifier: Apache-2.0
"""What others say of a pair of dumps: msprobe's table, its first difference, and the rule of three times the noise."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Pair = Mapping[str, Any]
"""`target` and `golden` are paths below the set's folder; `calibration` may name a clean pair (target, golden) beside it."""
Answer = tuple[str | None, str | None]
"""Module and direction; None and None for silence, a direction of None where the method tells none."""
Method = Callable[[Pair, Path], Answer]
Kind = tuple[str, str, str, str]
"""Class of the module or name of the operation, direction, role, dtype."""
NOISE_FACTOR = 3.0
LEAST_NOISE = 1e-7
"""What a kind of row is off by at least, as a share of its norm: the last place of fp32."""
NOT_FINITE = 1e9
"""Stands for a deviation that is not finite: NaN or Inf on one side, another shape."""


def peers(pairs: Sequence[Pair], folder: Path) -> dict[str, Method]:
    """Those that can be asked: msprobe's where it is installed, the noise rule where any pair shows clean noise."""
    there = importlib.util.find_spec("msprobe") is not None
    asked: dict[str, Method] = {"msprobe compare": first_row, "msprobe compare -da": first_difference} if there else {}
    rule = NoiseRule.of(pairs, folder)
    if rule.learnt:
        asked["three times the noise"] = rule
    return asked


def msprobe_table(target: Path, golden: Path) -> list[dict[str, str]]:
    """The rows that msprobe's comparison of two folders that each hold a dump.json writes."""
    from msprobe.pytorch.compare.pt_compare import pt_compare

    asked = {
        "npu_path": str(target / "dump.json"),
        "bench_path": str(golden / "dump.json"),
        "is_print_compare_log": False,
    }
    with tempfile.TemporaryDirectory() as out:
        with quiet():
            pt_compare(asked, out)
        for table in Path(out).glob("*.csv"):
            with table.open(encoding="utf-8") as stream:
                return list(csv.DictReader(stream))
    return []


def first_row(pair: Pair, folder: Path) -> Answer:
    """The first row of msprobe's table whose verdict is not `pass`."""
    target, golden = (next((folder / pair[side]).rglob("dump.json")).parent for side in ("target", "golden"))
    for row in msprobe_table(target, golden):
        if row.get("Result", "pass") != "pass":
            return module_of_row(row["NPU Name"]), None
    return None, None


def first_difference(pair: Pair, folder: Path) -> Answer:
    """What `msprobe compare -da` names first."""
    from msprobe.core.compare.find_first.analyzer import DiffAnalyzer

    with tempfile.TemporaryDirectory() as out:
        # It raises on what it cannot align, which is an answer of nothing.
        with contextlib.suppress(Exception), quiet():
            DiffAnalyzer(str(folder / pair["target"]), str(folder / pair["golden"]), out).analyze()
        for file in Path(out).glob("diff_analyze_*.json"):
            for nodes in json.loads(file.read_text(encoding="utf-8")).values():
                for node in nodes:
                    return module_of_row(str(node.get("op_name", ""))), None
    return None, None


@dataclass(frozen=True)
class NoiseRule:
    """The first row in order of execution whose norm is off by over three times what clean pairs show for its kind of row.

    A pair that names a clean pair of its own (`calibration`) is judged by that one, any other by all clean pairs of the set
    but itself.
    """

    learnt: Mapping[str, Mapping[Kind, float]] = field(default_factory=dict)
    """Target of each clean pair -> the largest deviation by kind of row."""

    @classmethod
    def of(cls, pairs: Sequence[Pair], folder: Path) -> NoiseRule:
        """Learn from the clean pairs of a set."""
        clean = [pair for pair in pairs if pair["evidence"] == "clean"]
        return cls({_name(pair): noise_of(folder / pair["target"], folder / pair["golden"]) for pair in clean})

    def __call__(self, pair: Pair, folder: Path) -> Answer:
        """The module and direction of that row; silence where there is none."""
        known: list[Mapping[Kind, float]]
        if "calibration" in pair:
            target, golden = pair["calibration"]
            known = [noise_of(folder / target, folder / golden)]
        else:
            known = [noise for name, noise in self.learnt.items() if name != _name(pair)]
        for kind, gap, module in _gaps(folder / pair["target"], folder / pair["golden"]):
            if gap > NOISE_FACTOR * max([LEAST_NOISE, *(noise.get(kind, 0.0) for noise in known)]):
                return module, kind[1]
        return None, None


def noise_of(target: Path, golden: Path) -> dict[Kind, float]:
    """The largest deviation of the norm that each kind of row of a clean pair shows."""
    noise: dict[Kind, float] = {}
    for kind, gap, _ in _gaps(target, golden):
        noise[kind] = max(noise.get(kind, 0.0), gap)
    return noise


def _name(pair: Pair) -> str:
    return f"{pair['target']} {pair['golden']}"


def _gaps(target: Path, golden: Path) -> Iterator[tuple[Kind, float, str]]:
    """Kind, relative deviation of the norm, and module of every row that both sides have, in order of completion."""
    import numpy as np

    from sentinel.core.triage.outline import clean_path
    from sentinel.core.triage.sides import prepare, rank_pairs, stage_pairs
    from sentinel.sources.msprobe_dump import read_dump

    mine, theirs = read_dump(target).stages, read_dump(golden).stages
    for stage, one, other in stage_pairs(mine, theirs, []):
        for rank, partner in rank_pairs(one, other, stage, []):
            _, forest, measured, _ = prepare(one[rank], other[partner], {})
            gaps = np.nan_to_num(measured.size[:, 0], nan=0.0, posinf=NOT_FINITE).tolist()
            for (row, reference), gap in zip(forest.rows, gaps, strict=True):
                role = row.position.partition(".")[0]
                direction = {"parameters": "parameters", "parameters_grad": "backward"}.get(role, row.direction)
                yield (row.name.split(".")[-3], direction, role, reference.dtype), gap, clean_path(row.module)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without msprobe's progress bars, and without the warnings of the libraries it uses."""
    os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


def module_of_row(name: str) -> str:
    """The module path in a row name of msprobe's."""
    from sentinel.sources.msprobe_rows import split_name

    head = name
    for mark in (".input.", ".output.", ".parameters.", ".parameters_grad.", ".input_args.", ".kwargs."):
        head = head.partition(mark)[0]
    split = next(filter(None, map(split_name, (head, f"{head}.0", f"{head}.forward.0"))), None)
    return split[0] if split else head
