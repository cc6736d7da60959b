# SPDX-License-Identifier: Apache-2.0
"""`sentinel demo`: the main job on a real verl run on this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sentinel.cli.output import add_json_flag, console, emit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from sentinel.demo.course import Finished
    from sentinel.demo.kit.faults import Fault
    from sentinel.demo.scenarios import Outcome

REPEAT_SECONDS = 15.0


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "demo",
        help="the main job on a real verl run on this machine: baseline, healthy replay, planted faults",
        description="Runs stock verl (GRPO, a tiny model, the CPU): a reference run becomes the baseline, a healthy replay "
        "must stay silent, planted faults must be found. Exit 0: found equals planted everywhere.",
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="STAGE:MODULE:KIND=SIZE@STEP",
        help="plant this fault instead of the standard ones (repeatable), e.g. actor_update:model.layers.1.mlp:scale=1.1@4; "
        "stages actor_compute_log_prob, ref_compute_log_prob, actor_update; "
        "kinds scale, bias, mask, mantissa, stale, nan_grad",
    )
    parser.add_argument("--random", type=int, default=0, metavar="N", help="plant N faults drawn from the seed")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of --random (default 0)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("sentinel-demo"),
        metavar="DIR",
        help="where everything is kept (default ./sentinel-demo)",
    )
    parser.add_argument(
        "--extra",
        action="store_true",
        help="two more runs: a replay that is asked for and does not happen, weights that reach the rollout engine scrambled",
    )
    parser.add_argument("--keep", action="store_true", help="keep the daemon up at the end, until Ctrl-C")
    add_json_flag(parser)
    parser.set_defaults(run=demo)


def demo(args: argparse.Namespace) -> int:
    """Give the demo and print what was planted beside what was found."""
    from sentinel.demo import course, scenarios
    from sentinel.demo import places as folders

    faults = wanted_faults(args.fault, args.random, args.seed)
    course.check_installed()
    places = folders.claim(args.out)
    chosen = scenarios.asked(faults) if faults else scenarios.standard()
    chosen += scenarios.extra() if args.extra else ()
    audience = Terminal(console(stderr=True))

    def hold(finished: Finished) -> None:
        if args.keep:
            audience.close()
            show(args, finished)
            wait_for_interrupt(finished)

    try:
        finished = course.play(places, chosen, audience, hold)
    finally:
        audience.close()
    if not args.keep:
        show(args, finished)
    return 0 if finished.ok else 1


def wanted_faults(texts: Sequence[str], count: int, seed: int) -> list[Fault]:
    """The faults that the command asks for.

    Raises:
        PlanError: one of them cannot be planted.
    """
    from sentinel.demo.assets import module_paths
    from sentinel.demo.plans import PlanError, draw, parse
    from sentinel.demo.scenarios import STEPS

    modules = module_paths()
    if count < 0:
        raise PlanError(f"--random {count}: the number of faults cannot be negative")
    return [parse(text, modules=modules, steps=STEPS) for text in texts] + draw(
        seed, count, modules=modules, steps=STEPS
    )


def show(args: argparse.Namespace, finished: Finished) -> None:
    """Print the result."""
    document = {
        "scenarios": [outcome.to_plain() for outcome in finished.outcomes],
        "ok": finished.ok,
        "seconds": round(finished.seconds, 1),
        "folder": str(finished.places.root),
    }
    emit(args, document, lambda out: print_result(out, finished))
    sys.stdout.flush()


def print_result(out: Console, finished: Finished) -> None:
    """Print planted against found, and where to look on."""
    from rich.table import Table

    table = Table("run", "planted", "found", "", title="Planted and found", show_lines=True)
    for outcome in finished.outcomes:
        table.add_row(outcome.scenario.name, planted(outcome), found(outcome), "ok" if outcome.ok else "WRONG")
    out.print(table)
    for outcome in finished.outcomes:
        out.print(f"{outcome.scenario.name}: {outcome.scenario.title}: {outcome.why}")
        for label, value in (("golden", outcome.golden), ("dump", outcome.dump), ("report", outcome.report)):
            if value:
                out.print(f"  {label}: {value}")
    places = finished.places
    out.print(
        f"\n{len(finished.outcomes)} runs watched, {finished.seconds:.0f} s in all. Everything lies in {places.root}"
    )
    out.print(f"Look on with the command line and in a browser: sentinel up --config {places.settings}")


def planted(outcome: Outcome) -> str:
    """The plan in words."""
    fault, mishap = outcome.scenario.fault, outcome.scenario.mishap
    if mishap is not None:
        return f"{mishap.stage}\n{mishap.kind} from step {mishap.step}"
    if fault is None:
        return "nothing"
    return f"{fault.stage}\n{fault.module}\n{fault.kind} {fault.size:g} from step {fault.step}"


def found(outcome: Outcome) -> str:
    """What Sentinel said, in words."""
    if outcome.found is None:
        return "nothing"
    module = outcome.found.module or "(no module: the next step was clean)"
    return f"{outcome.found.stage}\n{module}\nat step {outcome.found.step}"


def wait_for_interrupt(finished: Finished) -> None:
    """Keep everything up until Ctrl-C."""
    print(f"The daemon stays up at {finished.endpoint} until Ctrl-C.", file=sys.stderr, flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print("Ending the demo's cluster.", file=sys.stderr, flush=True)


class Terminal:
    """The audience at a terminal: bars where it is one, lines where it is not; on standard error."""

    def __init__(self, out: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._out = out
        self._live: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._said: tuple[str, str] = ("", "")
        self._said_at = 0.0
        if out.is_terminal:
            self._live = Progress(
                TextColumn("{task.fields[name]:<10}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[doing]}"),
                console=out,
            )
            self._live.start()

    def phase(self, name: str, doing: str, done: int, of: int) -> None:
        """Move the part's bar, or print a line when it does something new and now and then."""
        if self._live is not None:
            task = self._tasks.get(name)
            if task is None:
                task = self._tasks[name] = self._live.add_task("", name=name, doing=doing, total=of)
            self._live.update(task, completed=done, total=of, doing=doing)
            return
        now = time.monotonic()
        key = (name, doing.partition(" (")[0])
        if key != self._said or now - self._said_at >= REPEAT_SECONDS:
            self._said, self._said_at = key, now
            self._out.print(f"{name}: {doing}, step {done} of {of}")

    def command(self, words: Sequence[str]) -> None:
        """Show the command."""
        self._out.print(f"$ sentinel {' '.join(words)}")

    def ended(self, name: str, seconds: float, remark: str) -> None:
        """Say that a part is over."""
        self._finish(name, remark)
        if self._live is None:
            self._out.print(f"{name}: done in {seconds:.0f} s: {remark}")

    def outcome(self, outcome: Outcome) -> None:
        """Say what came of a scenario."""
        verdict = "as planted" if outcome.ok else "WRONG"
        self._finish(outcome.scenario.name, verdict)
        self._out.print(f"{outcome.scenario.name}: {verdict} ({outcome.seconds:.0f} s): {outcome.why}")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _finish(self, name: str, remark: str) -> None:
        if self._live is not None and name in self._tasks:
            task = self._live.tasks[self._tasks[name]]
            self._live.update(task.id, completed=task.total, doing=remark)
            self._live.stop_task(task.id)
