# SPDX-License-Identifier: Apache-2.0
"""`sentinel rollout cross`: the decisive experiment both ways, as a table of two trainers and two sources of rollouts.

    trained on ->        GPU's rollouts     NPU's rollouts
    GPU trainer          A                  B
    NPU trainer          C                  D

C beside A and D beside B compare the trainers on equal text; B beside A and D beside C compare the text. A fault of training
parts both columns and no row; one of inference parts the rows and no column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sentinel.cli import FOUND, OK, output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from rich.console import Console

    from sentinel.cli.replaying import Outcome
    from sentinel.records import ReadResult

CELLS = {
    "gpu_on_gpu": "GPU trainer, GPU's rollouts",
    "gpu_on_npu": "GPU trainer, NPU's rollouts",
    "npu_on_gpu": "NPU trainer, GPU's rollouts",
    "npu_on_npu": "NPU trainer, NPU's rollouts",
}
SHOWN = ("critic/score/mean", "critic/rewards/mean", "actor/pg_loss", "actor/grad_norm", "response_length/mean")


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb below `sentinel rollout`."""
    parser = verbs.add_parser(
        "cross",
        help="the 2x2 of two trainers and two sources of rollouts",
        description="Compare both trainers on each side's rollouts: four metric files of the same recipe.",
    )
    for name, text in CELLS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", required=name != "gpu_on_npu", help=text)
    parser.add_argument("--twin", metavar="FILE", action="append", default=[], help="clean repeat on the same rollouts")
    output.add_json_flag(parser)
    parser.set_defaults(run=run_cross)


def run_cross(args: argparse.Namespace) -> int:
    """Print the table; 1 unless the trainers agree on equal text."""
    from sentinel.cli.replaying import candidate_of

    cells = {name: candidate_of(path) for name in CELLS if (path := getattr(args, name))}
    columns = {"gpu": _column(args, cells, "gpu_on_gpu", "npu_on_gpu")}
    if "gpu_on_npu" in cells:
        columns["npu"] = _column(args, cells, "gpu_on_npu", "npu_on_npu")
    document = to_plain(cells, columns)
    output.emit(args, document, lambda console: _show(console, document))
    return OK if document["verdict"] == "inference" else FOUND


def _column(args: argparse.Namespace, cells: Mapping[str, ReadResult], baseline: str, candidate: str) -> Outcome:
    """Both trainers on one side's rollouts."""
    from sentinel.cli.replaying import NO_TRAINER, replayed
    from sentinel.core.engine import Engine, EngineSettings
    from sentinel.daemon.metric_catalogue import load_catalogue
    from sentinel.daemon.references import load_references

    plain = EngineSettings()
    settings = replace(plain, capture=replace(plain.capture, enabled=False, why_not=NO_TRAINER))
    reference = load_references([getattr(args, baseline)], args.twin if baseline == "gpu_on_gpu" else ())
    return replayed(Engine(settings, load_catalogue()), candidate, cells[candidate], reference, "replayed")


def to_plain(cells: Mapping[str, ReadResult], columns: Mapping[str, Outcome]) -> dict[str, Any]:
    """The document of `sentinel rollout cross --json`."""
    healthy = {side: outcome.verdict == "healthy" for side, outcome in columns.items()}
    stages = {
        side: next((i.stage for i in outcome.snapshot.incidents), None) if not healthy[side] else None
        for side, outcome in columns.items()
    }
    return {
        "verdict": _verdict(healthy, stages),
        "columns": {
            side: {"trainers_agree": healthy[side], "stage": stages[side], "because": outcome.decision.because}
            for side, outcome in columns.items()
        },
        "cells": {name: {metric: _mean(read, metric) for metric in SHOWN} for name, read in cells.items()},
    }


def _verdict(healthy: Mapping[str, bool], stages: Mapping[str, str | None]) -> str:
    if all(healthy.values()):
        return "inference"
    if any(stage in {"data", "config"} for stage in stages.values()):
        return "undecided"
    return "training" if not any(healthy.values()) else "mixed"


def _mean(read: ReadResult, metric: str) -> float | None:
    values = [r.metrics[metric] for r in read.steps if r.kind == "train" and metric in r.metrics]
    return sum(values) / len(values) if values else None


_WORDS = {
    "inference": "on equal text both trainers agree: what differs between the sides comes from inference",
    "training": "on equal text the trainers part: the fault is in training",
    "mixed": "the trainers agree on one side's text only: text that one of them never meets in health (look at its verdict first)",
    "undecided": "the inputs of a column are not equal: nothing can be decided",
}


def _show(console: Console, document: Mapping[str, Any]) -> None:
    from rich.table import Table

    console.print(f"{document['verdict']}: {_WORDS[document['verdict']]}", style="bold")
    table = Table(title="means over the steps", title_justify="left")
    for head in ("", *SHOWN):
        table.add_column(head)
    for name, values in document["cells"].items():
        table.add_row(CELLS[name], *("-" if values[m] is None else f"{values[m]:.5g}" for m in SHOWN))
    console.print(table)
    for side, column in document["columns"].items():
        words = "agree" if column["trainers_agree"] else f"part, first stage {column['stage']}"
        console.print(f"on {side.upper()}'s rollouts the trainers {words}: {column['because']}")
