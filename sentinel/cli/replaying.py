# SPDX-License-Identifier: Apache-2.0
"""`sentinel replay`: the live engine over a finished or growing metric file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sentinel.cli import output

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from sentinel.core.engine import Engine, WatchState
    from sentinel.core.rollout.decision import Decision
    from sentinel.records import ReadResult, Reference, ReferenceRun, RunSnapshot

NO_TRAINER = "a file is judged: no trainer is attached that could dump a step"
HEALTHY = "healthy"


@dataclass(frozen=True)
class Outcome:
    """What a replay came to."""

    verdict: str
    """healthy, diverged, not_comparable or no_metrics."""
    snapshot: RunSnapshot
    steps: int
    decision: Decision
    """Which side the fault is on, as far as this comparison tells."""
    warnings: tuple[str, ...] = field(default=())


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser("replay", help="judge a finished metric file with the live engine")
    parser.add_argument(
        "candidate", metavar="CANDIDATE", help="metric file of any format that `sentinel read` knows, or a recording"
    )
    parser.add_argument(
        "--baseline",
        metavar="REF",
        action="append",
        default=[],
        help="bundle, recording or metric file; several are seeds",
    )
    parser.add_argument(
        "--twin", metavar="REF", action="append", default=[], help="clean repeat of a baseline on the same rollouts"
    )
    parser.add_argument(
        "--regime", choices=("auto", "replayed", "free"), default="auto", help="recognised unless said (default: auto)"
    )
    output.add_json_flag(parser)
    parser.set_defaults(run=run_replay)


def run_replay(args: argparse.Namespace) -> int:
    """Judge the file; 1 when something is wrong with it or it cannot be judged."""
    from sentinel.core.engine import Engine, EngineSettings
    from sentinel.daemon.metric_catalogue import load_catalogue
    from sentinel.daemon.references import load_references
    from sentinel.records import ReadResult

    candidate = candidate_of(args.candidate)
    assert isinstance(candidate, ReadResult)
    reference = load_references(args.baseline, args.twin)
    plain = EngineSettings()
    settings = replace(plain, capture=replace(plain.capture, enabled=False, why_not=NO_TRAINER))
    outcome = replayed(Engine(settings, load_catalogue()), args.candidate, candidate, reference, args.regime)
    output.emit(args, to_plain(outcome), lambda console: show(outcome, console))
    return 0 if outcome.verdict == HEALTHY else 1


def candidate_of(path: str) -> ReadResult:
    """A metric file or a recording, read whole."""
    from pathlib import Path

    from sentinel.sources import read_file
    from sentinel.storage.recording import is_recording, read_recording

    if Path(path).is_file() and is_recording(Path(path)):
        run = read_recording(Path(path)).run
        from sentinel.records import ReadResult

        return ReadResult(format="recording", steps=run.readings, resolution=run.resolution)
    return read_file(path)


def replayed(
    engine: Engine, name: str, candidate: ReadResult, reference: Reference | None, regime: str = "auto"
) -> Outcome:
    """Walk the engine over every step of the file."""
    from sentinel.core.rollout.decision import METRICS, decide
    from sentinel.records import StepReported

    if reference is not None and candidate.resolution is not None:
        reference = replace(reference, runs=tuple(_coarser(run, candidate.resolution) for run in reference.runs))
    state = engine.initial(name, reference, regime)
    for reading in candidate.steps:
        event = StepReported(step=reading.step, values=reading.metrics, kind=reading.kind, attempt=reading.attempt)
        state, _ = engine.advance(state, event)
    snapshot = engine.snapshot(state)
    bare = () if reference is not None else ("no_baseline: only the rules that need none were applied",)
    warnings = tuple(dict.fromkeys((*candidate.warnings, *bare, *snapshot.warnings)))
    return Outcome(
        verdict=_verdict(state, snapshot, reference),
        snapshot=snapshot,
        steps=state.steps_seen,
        decision=decide(snapshot.regime, snapshot.incidents, engine.charts(state, METRICS)),
        warnings=warnings,
    )


def _coarser(run: ReferenceRun, resolution: float) -> ReferenceRun:
    """The run as if its file showed no more digits than the candidate's."""
    return replace(run, resolution=max(run.resolution or 0.0, resolution))


def _verdict(state: WatchState, snapshot: RunSnapshot, reference: Reference | None) -> str:
    if not state.steps_seen:
        return "no_metrics"
    if snapshot.incidents:
        return "diverged"
    if reference is not None and state.regime in {"alone", "unknown"}:
        return "not_comparable"
    return HEALTHY


def to_plain(outcome: Outcome) -> dict[str, object]:
    """The document of `sentinel replay --json`."""
    from sentinel.core.report.render import incident_to_plain

    return {
        "regime": outcome.snapshot.regime,
        "steps": outcome.steps,
        "verdict": outcome.verdict,
        "incidents": [incident_to_plain(incident) for incident in outcome.snapshot.incidents],
        "decision": {
            "side": outcome.decision.side,
            "stage": outcome.decision.stage,
            "because": outcome.decision.because,
            "evidence": list(outcome.decision.evidence),
            "equal_up_to_step": outcome.decision.equal_up_to_step,
        },
        "warnings": list(outcome.warnings),
    }


def show(outcome: Outcome, console: Console) -> None:
    """The same for people."""
    snapshot = outcome.snapshot
    against = f"against {snapshot.baseline}, regime {snapshot.regime}" if snapshot.baseline else "without a baseline"
    style = "green" if outcome.verdict == HEALTHY else "bold red"
    console.print(f"{outcome.verdict}: {outcome.steps} steps {against}", style=style)
    for incident in snapshot.incidents:
        until = "" if incident.closed_at_step is None else f", closed at step {incident.closed_at_step}"
        console.print(
            f"{incident.severity}: {incident.kind} in {incident.stage} since step {incident.opened_at_step}{until}"
        )
        console.print(f"  {incident.because}")
        for suspect in incident.suspects:
            console.print(f"  {suspect.confidence:5.0%}  {suspect.stage}: {suspect.because}")
        for note in incident.notes:
            console.print(f"  - {note}")
    if snapshot.baseline:
        console.print(f"decision: {outcome.decision.side}: {outcome.decision.because}", style="bold")
        for line in outcome.decision.evidence:
            console.print(f"  {line}")
    for warning in outcome.warnings:
        console.print(f"warning: {warning}")
