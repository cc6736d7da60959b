# SPDX-License-Identifier: Apache-2.0
"""What others say of the same pairs: msprobe's comparison and its first-difference analysis, in process, and the simple noise rule."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from bench.triage_score import Answer, Case, sides
from sentinel.core.triage.deviation import deviations
from sentinel.core.triage.outline import outline
from sentinel.core.triage.pairing import pair_up
from sentinel.sources.msprobe_dump import split_name

NOISE_FACTOR = 3.0


def msprobe_table(target: Path, golden: Path) -> list[dict[str, str]]:
    """The rows that msprobe's comparison of two rank folders writes."""
    from msprobe.pytorch.compare.pt_compare import pt_compare

    with tempfile.TemporaryDirectory() as folder:
        paths = {
            "npu_path": str(target / "dump.json"),
            "bench_path": str(golden / "dump.json"),
            "is_print_compare_log": False,
        }
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            pt_compare(paths, folder)
        found = list(Path(folder).glob("*.csv"))
        if not found:
            return []
        with found[0].open(encoding="utf-8") as stream:
            return list(csv.DictReader(stream))


def msprobe_first(case: Case, corpus: Path) -> Answer:
    """The first row of msprobe's table whose verdict is not `pass`."""
    for row in msprobe_table(corpus / case.pair["target"] / "rank0", corpus / case.pair["golden"] / "rank0"):
        if row.get("Result", "pass") != "pass":
            return _answer(row["NPU Name"])
    return Answer(None)


def msprobe_difference(case: Case, corpus: Path) -> Answer:
    """What `msprobe compare -da` names first."""
    from msprobe.core.compare.find_first.analyzer import DiffAnalyzer

    with tempfile.TemporaryDirectory() as folder:
        with (
            contextlib.suppress(Exception),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            DiffAnalyzer(str(corpus / case.pair["target"]), str(corpus / case.pair["golden"]), folder).analyze()
        for file in Path(folder).glob("diff_analyze_*.json"):
            for nodes in json.loads(file.read_text()).values():
                for node in nodes:
                    return _answer(str(node.get("op_name", "")))
    return Answer(None)


def _answer(name: str) -> Answer:
    head = name
    for mark in (".input.", ".output.", ".parameters.", ".parameters_grad.", ".input_args.", ".kwargs."):
        head = head.partition(mark)[0]
    for part in (head, f"{head}.0", f"{head}.forward.0"):
        split = split_name(part)
        if split is not None:
            return Answer(split[0])
    return Answer(head)


def noise_rule(case: Case, corpus: Path) -> Answer:
    """The first row whose norm is off by three times what a clean pair of other weights showed for its kind of module."""
    target, golden = case.pair["calibration"]
    noise: dict[tuple[str, str, str], float] = {}
    for kind, gap, _, _ in _rows(corpus, target, golden):
        noise[kind] = max(noise.get(kind, 0.0), gap)
    for kind, gap, name, direction in _rows(corpus, case.pair["target"], case.pair["golden"]):
        if gap > NOISE_FACTOR * max(noise.get(kind, 0.0), 1e-7):
            return Answer(name, direction)
    return Answer(None)


def _rows(corpus: Path, target: str, golden: str):
    mine, theirs = (next(iter(next(iter(sides(corpus, name).values())).values())) for name in (target, golden))
    rows = [row for pair in pair_up(outline(mine), outline(theirs)).pairs for row in pair.rows]
    gaps = np.nan_to_num(deviations(rows).size[:, 0], nan=0.0, posinf=1e9)
    for (row, _), gap in zip(rows, gaps, strict=True):
        direction = "parameters" if row.position.startswith("parameters.") else row.direction
        direction = "backward" if row.position.startswith("parameters_grad") else direction
        yield (row.name.split(".")[-3], direction, row.position.partition(".")[0]), gap, row.module, direction


PEERS = {
    "msprobe compare": msprobe_first,
    "msprobe compare -da": msprobe_difference,
    "three times the noise": noise_rule,
}
os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
