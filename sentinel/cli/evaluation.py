# SPDX-License-Identifier: Apache-2.0
"""`sentinel evaluate`: the engine on runs whose fault, onset and stage are known, beside the reference detectors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from sentinel.cli import output

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from sentinel.cli.scoring import Evaluation, ReferenceScore
    from sentinel.core.detect.evaluate import Estimate, Outcome
    from sentinel.core.detect.sweep import Point


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser("evaluate", help="score the engine on runs whose faults are known")
    parser.add_argument(
        "corpus",
        metavar="CORPUS",
        help="directory with corpus.json and runs.parquet, or a labelled set of rollout text (.jsonl, .jsonl.gz), or of dump pairs",
    )
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes (default: one per CPU)")
    parser.add_argument("--regime", choices=("replayed", "free"), help="only the groups of this regime")
    parser.add_argument("--without-twins", action="store_true", help="leave the twins out of each reference")
    parser.add_argument("--one-seed", action="store_true", help="keep only the first seed of each reference")
    parser.add_argument(
        "--details", action="store_true", help="add each run's alarms, and the curves of the references"
    )
    output.add_json_flag(parser)
    parser.set_defaults(run=run_evaluate)


def run_evaluate(args: argparse.Namespace) -> int:
    """Print the score; 0 whatever it is: a score is an answer, not a fault."""
    from sentinel.cli.triage_scoring import is_pair_set

    if is_pair_set(Path(args.corpus)):
        return _evaluate_pairs(args)
    if Path(args.corpus).is_file():
        return _evaluate_texts(args)
    from sentinel.cli.progress import Progress
    from sentinel.cli.scoring import Options, evaluate
    from sentinel.storage.corpus import read_corpus

    options = Options(
        regime=args.regime,
        twins=not args.without_twins,
        seeds=1 if args.one_seed else None,
        jobs=max(0, args.jobs),
    )
    with Progress() as progress:
        progress.says("reading the corpus")
        evaluation = evaluate(read_corpus(args.corpus), options, progress.says)
    document = to_plain(evaluation, details=args.details)
    output.emit(args, document, lambda console: show(evaluation, console))
    return 0


def _evaluate_pairs(args: argparse.Namespace) -> int:
    from sentinel.cli.progress import Progress
    from sentinel.cli.triage_scoring import score_pairs, show_pairs

    with Progress() as progress:
        triage = score_pairs(Path(args.corpus), progress.says)
    output.emit(args, {"rows": [], "references": [], "triage": triage}, lambda console: show_pairs(triage, console))
    return 0


def _evaluate_texts(args: argparse.Namespace) -> int:
    from sentinel.cli.text_scoring import score_texts, show_texts
    from sentinel.storage.text_set import read_text_set

    text = score_texts(read_text_set(args.corpus))
    output.emit(args, {"rows": [], "references": [], "text": text}, lambda console: show_texts(text, console))
    return 0


def to_plain(evaluation: Evaluation, *, details: bool = False) -> dict[str, object]:
    """The document of `sentinel evaluate --json`."""
    from sentinel.core.detect.evaluate import row_to_plain

    document: dict[str, object] = {
        "split": evaluation.split,
        "rows": [row_to_plain(row) for row in evaluation.rows],
        "references": [
            {
                "name": reference.rule.name,
                "threshold": reference.rule.threshold,
                "rows": [row_to_plain(row) for row in reference.rows],
                "at_equal_false_alarms": equals(evaluation, reference),
            }
            for reference in evaluation.references
        ],
        "compared": {regime: _point(mine) for regime, mine in own_points(evaluation).items()},
    }
    if details:
        document["runs"] = [_run(outcome) for outcome in evaluation.outcomes]
        document["curves"] = [
            {
                "name": reference.rule.name,
                "curves": {regime: [_point(one) for one in points] for regime, points in reference.curves.items()},
            }
            for reference in evaluation.references
        ]
    return document


def own_points(evaluation: Evaluation) -> dict[str, Point]:
    """The engine's own place on the plane of the references' curves, by regime."""
    from sentinel.core.detect.sweep import point

    regimes = dict.fromkeys(outcome.regime for outcome in evaluation.outcomes)
    return {regime: point([o for o in evaluation.outcomes if o.regime == regime], math.nan) for regime in regimes}


def equals(evaluation: Evaluation, reference: ReferenceScore) -> dict[str, object]:
    """By regime: the reference at the threshold of highest recall with no more false alarms than the engine."""
    from sentinel.core.detect.sweep import at_most, point

    chosen: dict[str, object] = {}
    for regime, mine in own_points(evaluation).items():
        published = point([o for o in reference.outcomes if o.regime == regime], reference.rule.threshold)
        best = at_most((*reference.curves.get(regime, ()), published), mine.false_alarms)
        chosen[regime] = None if best is None else _point(best)
    return chosen


def _point(point: Point) -> dict[str, object]:
    from sentinel.core.detect.evaluate import WITHIN

    return {
        "threshold": None if math.isnan(point.threshold) else point.threshold,
        "false_alarms": point.false_alarms,
        "recall": point.recall,
        "found_within": {str(limit): part for limit, part in zip(WITHIN, point.within, strict=True)},
    }


def _run(outcome: Outcome) -> dict[str, object]:
    from sentinel.core.detect.evaluate import delay, strength_class

    fault = outcome.fault
    return {
        "run": outcome.run,
        "regime": outcome.regime,
        "steps": outcome.steps,
        "fault": None
        if fault is None
        else {
            "kind": fault.kind,
            "stage": fault.stage,
            "magnitude": fault.magnitude,
            "onset": fault.onset,
            "strength": fault.strength,
            "class": strength_class(fault.strength),
            "visible_from": fault.visible_from,
            "delay": delay(outcome),
        },
        "closest": outcome.closest,
        "alarms": [{"step": a.step, "stages": list(a.stages), "because": a.because} for a in outcome.alarms],
    }


# --------------------------------------------------------------------------- for people


def show(evaluation: Evaluation, console: Console) -> None:
    """The same as tables."""
    from rich.table import Table

    table = Table(
        "regime", "strength", "faults", "recall", "delay p50", "p95", "false alarms / 1000", "top-1", "top-2", box=None
    )
    for row in evaluation.rows:
        table.add_row(
            row.regime,
            row.strength,
            str(row.faults),
            _share(row.recall),
            _number(row.delay_median),
            _number(row.delay_p95),
            f"{_number(row.false_alarms)} of {row.clean_steps}",
            _share(row.stage_top1),
            _share(row.stage_top2),
        )
    console.print(table)
    console.print(
        "\nthe references, at their own threshold and at no more false alarms than the engine (visible faults)"
    )
    table = Table(
        "detector",
        "regime",
        "false alarms / 1000",
        "recall",
        "0 steps",
        "3 steps",
        "at equal: recall",
        "0",
        "3",
        box=None,
    )
    for regime, mine in own_points(evaluation).items():
        table.add_row("sentinel", regime, f"{mine.false_alarms:.2f}", f"{mine.recall:.0%}", *_early(mine), "", "", "")
        for reference in evaluation.references:
            _show_reference(table, evaluation, reference, regime)
    console.print(table)


def _show_reference(table: object, evaluation: Evaluation, reference: ReferenceScore, regime: str) -> None:
    from rich.table import Table

    from sentinel.core.detect.sweep import at_most, point

    assert isinstance(table, Table)
    mine = own_points(evaluation)[regime]
    own = point([o for o in reference.outcomes if o.regime == regime], reference.rule.threshold)
    best = at_most((*reference.curves.get(regime, ()), own), mine.false_alarms)
    equal = ("-", "-", "-") if best is None else (f"{best.recall:.0%}", *_early(best))
    table.add_row(reference.rule.name, regime, f"{own.false_alarms:.2f}", f"{own.recall:.0%}", *_early(own), *equal)


def _early(point: Point) -> tuple[str, str]:
    return f"{point.within[0]:.0%}", f"{point.within[2]:.0%}"


def _share(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    return f"{100 * estimate.value:.1f} % ({100 * estimate.low:.0f}-{100 * estimate.high:.0f})"


def _number(estimate: Estimate) -> str:
    return f"{estimate.value:.3g} ({estimate.low:.2g}-{estimate.high:.2g})"
