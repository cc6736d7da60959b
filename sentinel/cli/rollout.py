# SPDX-License-Identifier: Apache-2.0
"""`sentinel rollout check`: what the rollouts say as text, alone or beside the baseline's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli import FOUND, OK, cross_replay, output
from sentinel.errors import SettingsError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from sentinel.core.rollout.against import Against
    from sentinel.core.rollout.rows import JudgedRow, StepText, Tally
    from sentinel.records import RolloutRow

_SHOWN = 12
_TEXT = 160


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser("rollout", help="judge rollout text: healthy, garbled, repetitive or empty")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    check = verbs.add_parser(
        "check",
        help="judge a rollout file or folder, alone or beside the baseline's",
        description="Judge the text that a run generated (verl: trainer.rollout_data_dir=DIR). No model is needed.",
    )
    check.add_argument("path", metavar="PATH", type=Path, help="a rollout jsonl file, or a folder of them")
    check.add_argument(
        "--against",
        metavar="PATH",
        type=Path,
        help="the baseline's rollouts: a file, a folder, or a baseline bundle; rows are aligned by step and prompt",
    )
    check.add_argument(
        "--threshold", metavar="SHARE", type=float, help="share of bad rows that is not healthy (default: 0.05)"
    )
    check.add_argument(
        "--reproduce",
        metavar="FILE",
        type=Path,
        help="write a program that asks vLLM or vllm-ascend alone for the first bad row's answer, greedy",
    )
    output.add_json_flag(check)
    check.set_defaults(run=run_check)
    cross_replay.register(verbs)


def run_check(args: argparse.Namespace) -> int:
    """Judge and print; 1 unless the text is healthy."""
    from sentinel.core.rollout.rows import HEALTHY, THRESHOLD, judge_step, total
    from sentinel.sources.rollout_text import Notices, read_rollouts

    threshold = THRESHOLD if args.threshold is None else args.threshold
    if not 0 < threshold <= 1:
        raise SettingsError(f"--threshold {threshold}: a share above 0 and up to 1 is wanted")
    notices = Notices()
    there = _other_side(args.against) if args.against else None
    steps: list[StepText] = []
    compared: list[tuple[int | None, Sequence[RolloutRow]]] = []
    for part in read_rollouts(args.path, notices):
        steps.append(judge_step(part.step, part.rows))
        if there is not None:
            compared.append((part.step, part.rows))
    whole = total(step.tally for step in steps)
    beside = None
    if there is not None:
        from sentinel.core.rollout.against import against

        beside = against(compared, there)
        if not beside.steps:
            raise SettingsError(f"{args.against}: has no step in common with {args.path}")
    document = to_plain(steps, whole, threshold, notices.codes, beside)
    if args.reproduce is not None:
        document["reproduction"] = _reproduction(args.reproduce, steps)
    output.emit(args, document, lambda console: _show(console, document, steps, whole, beside))
    return OK if document["verdict"] == HEALTHY else FOUND


def _reproduction(path: Path, steps: Sequence[StepText]) -> dict[str, Any] | None:
    """Write the program for the first bad row; None where there is none."""
    from sentinel.core.rollout.advice import overrides, script

    bad = next((row for step in steps for row in step.worst), None)
    if bad is None:
        return None
    path.write_text(script(bad), encoding="utf-8")
    return {"script": str(path), "step": bad.step, "row": bad.place, "overrides": list(overrides())}


def to_plain(
    steps: Sequence[StepText], whole: Tally, threshold: float, warnings: Sequence[str], beside: Against | None
) -> dict[str, Any]:
    """The document of `sentinel rollout check --json`."""
    tallies: dict[str, Tally] = {}
    for step in steps:
        name = "unknown" if step.step is None else str(step.step)
        tallies[name] = tallies[name] + step.tally if name in tallies else step.tally
    document: dict[str, Any] = {
        "verdict": whole.verdict(threshold),
        "share": whole.share,
        "threshold": threshold,
        "rows": [label for step in steps for label in step.labels],
        "by_step": {
            name: {
                "verdict": tally.verdict(threshold),
                "share": tally.share,
                "rows": tally.rows,
                "truncated": tally.truncated,
            }
            for name, tally in tallies.items()
        },
        "counts": dict(whole.counts),
        "truncated": whole.truncated,
        "bad_rows": [_row(row) for step in steps for row in step.worst][:_SHOWN],
        "warnings": list(warnings),
    }
    if beside is not None:
        document["against"] = _against(beside)
    return document


def _row(row: JudgedRow) -> dict[str, Any]:
    return {"step": row.step, "row": row.place, "label": row.label, "why": row.why, "output": row.output[:_TEXT]}


def _against(beside: Against) -> dict[str, Any]:
    from sentinel.core.rollout.against import quantiles

    return {
        "aligned_rows": beside.aligned,
        "identical_rows": beside.identical,
        "first_different_step": beside.first_different_step,
        "rows": beside.rows_here,
        "other_rows": beside.rows_there,
        "steps": len(beside.steps),
        "partings": [
            {"step": p.step, "prompt": p.prompt, "at_character": p.at, "here": p.here, "there": p.there}
            for p in beside.partings
        ],
        "score_differs_rows": beside.score_gap_rows,
        "score_differs": [
            {"step": g.step, "prompt": g.prompt, "output": g.output, "here": g.here, "there": g.there}
            for g in beside.score_gaps
        ],
        "characters": quantiles(beside.lengths_here),
        "other_characters": quantiles(beside.lengths_there),
    }


def _other_side(path: Path) -> Mapping[int | None, Sequence[RolloutRow]]:
    from sentinel.sources.rollout_text import Notices, read_rollouts
    from sentinel.storage.bundle import is_bundle, open_bundle

    if path.is_file() and is_bundle(path):
        import tempfile

        bundle = open_bundle(path)
        with tempfile.TemporaryDirectory() as scratch:
            found = bundle.extract_rollouts(Path(scratch))
            if found is None:
                raise SettingsError(f"{path}: the bundle holds no rollouts; `sentinel baseline record --rollouts DIR`")
            return _by_step(found, Notices(), read_rollouts)
    return _by_step(path, Notices(), read_rollouts)


def _by_step(path: Path, notices: Any, read: Any) -> Mapping[int | None, Sequence[RolloutRow]]:
    found: dict[int | None, list[RolloutRow]] = {}
    for part in read(path, notices):
        found.setdefault(part.step, []).extend(part.rows)
    return found


def _show(
    console: Console, document: Mapping[str, Any], steps: Sequence[StepText], whole: Tally, beside: Against | None
) -> None:
    good = document["verdict"] == "healthy"
    kinds = ", ".join(f"{count} {label}" for label, count in sorted(whole.counts.items()))
    console.print(
        f"{document['verdict']}: {whole.bad} of {whole.rows} rows are bad ({whole.share:.1%}): {kinds}",
        style="green" if good else "bold red",
    )
    if whole.truncated:
        console.print(f"{whole.truncated} sound rows stop in the middle: the length limit (max_response_length)?")
    if len(steps) > 1:
        _show_steps(console, document["by_step"])
    for row in document["bad_rows"]:
        where = f"row {row['row']}" if row["step"] is None else f"step {row['step']}, row {row['row']}"
        console.print(f"{where}: {row['label']}: {row['why']}")
        console.print(f"  {printable(row['output'])}")
    if (smaller := document.get("reproduction")) is not None:
        console.print(
            f"a smaller reproduction outside of verl: python {smaller['script']} MODEL; inside of it, these overrides:"
        )
        for override in smaller["overrides"]:
            console.print(f"  {override}")
    if beside is not None:
        _show_against(console, beside)
    for code in document["warnings"]:
        console.print(f"warning: {code}")


def _show_steps(console: Console, by_step: Mapping[str, Mapping[str, Any]]) -> None:
    from rich.table import Table

    table = Table()
    for name in ("step", "verdict", "rows", "bad", "truncated"):
        table.add_column(name)
    bad = [name for name, found in by_step.items() if found["share"]]
    shown = [name for name in by_step if name in bad][:40] or list(by_step)[-5:]
    for name in shown:
        found = by_step[name]
        table.add_row(name, found["verdict"], str(found["rows"]), f"{found['share']:.1%}", str(found["truncated"]))
    console.print(table)
    if len(shown) < len(by_step):
        console.print(f"{len(by_step) - len(shown)} more steps")


def _show_against(console: Console, beside: Against) -> None:
    from sentinel.core.rollout.against import quantiles

    first = beside.first_different_step
    since = "all rows are equal" if first is None else f"the first step that differs is {first}"
    console.print(
        f"against the other side: {beside.identical} of {beside.aligned} aligned rows are identical in {len(beside.steps)} steps; {since}"
    )
    if beside.score_gap_rows:
        console.print(
            f"{beside.score_gap_rows} rows of equal text have another score: the reward function (or its ground truth) differs",
            style="bold red",
        )
    for gap in beside.score_gaps[:3]:
        console.print(f"  step {gap.step}: {gap.here:g} here, {gap.there:g} there: {printable(gap.output)}")
    for parting in beside.partings[:5]:
        console.print(f"  step {parting.step}: parts after {parting.at} characters: {printable(parting.prompt[-60:])}")
        console.print(f"    here:  {printable(parting.here)}")
        console.print(f"    there: {printable(parting.there)}")
    here, there = quantiles(beside.lengths_here), quantiles(beside.lengths_there)
    console.print(
        "characters a row, here / there: "
        + ", ".join(f"{name} {here[name]:.0f} / {there[name]:.0f}" for name in here if name in there)
    )


def printable(text: str) -> str:
    """Model output as one line that no terminal obeys: controls and escapes are written out."""
    shown = text[:_TEXT].encode("unicode_escape").decode("ascii") if not text.isprintable() else text[:_TEXT]
    if not text.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:_TEXT])
    return shown + ("…" if len(text) > _TEXT else "")
