# SPDX-License-Identifier: Apache-2.0
"""`sentinel read`: one metric file of any supported format, parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sentinel.cli import output

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from sentinel.records import ReadResult

EPILOG = """Formats, recognised by content: consoles of verl, Megatron, MindSpeed-LLM, Trainer, TRL, ms-swift, slime, torchtitan,
nanotron, mmengine and xtuner; W&B output.log, run file and summary; JSON lines of verl's file logger, of ms-swift and of
SENTINEL_RECORD; trainer_state.json, golden values of Megatron and MindSpeed-LLM; TensorBoard event files and folders of
them; runs of MLflow stored as files; CSV exports. Exit code 1: no step so far."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs of this group."""
    read = subparsers.add_parser("read", help="parse one metric file of any supported format", epilog=EPILOG)
    read.add_argument("file", metavar="FILE", help="log, JSON lines, event file, or a folder of event files")
    output.add_json_flag(read)
    read.set_defaults(run=run_read)


def run_read(args: argparse.Namespace) -> int:
    """Print the steps of a file; 1 when the format is known and no step stands in it yet."""
    from sentinel.cli.progress import Progress
    from sentinel.sources import read_file

    with Progress() as progress:
        progress.says(f"reading {args.file}")
        result = read_file(args.file, lambda count: progress.says(f"reading {args.file}: {count >> 20} MiB"))
    output.emit(args, to_plain(result), lambda console: show(result, console))
    return 0 if result.steps else 1


def to_plain(result: ReadResult) -> dict[str, object]:
    """The document of `sentinel read --json`."""
    document: dict[str, object] = {
        "format": result.format,
        "steps": [
            {"step": reading.step, "kind": reading.kind, "attempt": reading.attempt, "metrics": dict(reading.metrics)}
            for reading in result.steps
        ],
        "warnings": list(result.warnings),
    }
    if result.summary is not None:
        document["summary"] = dict(result.summary)
    if result.resolution is not None:
        document["resolution"] = result.resolution
    return document


def show(result: ReadResult, console: Console) -> None:
    """The same for people: what was found, and the last value of each metric."""
    from rich.table import Table

    if not result.steps:
        console.print(f"{result.format}: no metrics yet")
    else:
        attempts = result.steps[-1].attempt
        first, last = result.steps[0].step, result.steps[-1].step
        again = f", {attempts} attempts" if attempts > 1 else ""
        console.print(f"{result.format}: {len(result.steps)} steps, {first} to {last}{again}")
        newest: dict[str, tuple[int, float]] = {}
        for reading in result.steps:
            newest.update((key, (reading.step, value)) for key, value in reading.metrics.items())
        table = Table("metric", "step", "value", box=None)
        for key, (step, value) in sorted(newest.items()):
            table.add_row(key, str(step), f"{value:.6g}")
        console.print(table)
    for warning in result.warnings:
        console.print(f"warning: {warning}")
