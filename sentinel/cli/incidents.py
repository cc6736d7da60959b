# SPDX-License-Identifier: Apache-2.0
"""Verbs on what the daemon decided: incidents and captures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli import FOUND, OK, cluster, incident_files, output, rollout_dump
from sentinel.errors import DaemonError
from sentinel.sinks import json_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.console import Console


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs."""
    _register_incidents(subparsers)
    _register_captures(subparsers)


def _register_incidents(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = subparsers.add_parser("incidents", help="what went wrong: list, show, report")
    verbs = group.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = _verb(verbs, "list", "all incidents, also of runs that are over", run_list)
    listing.add_argument("--run", dest="name", metavar="RUN", help="of this run only")
    listing.add_argument("--state", choices=("open", "closed"), help="in this state only")
    show = _verb(verbs, "show", "one incident with everything that is known", run_show)
    show.add_argument("id", metavar="ID")
    report = _verb(verbs, "report", "one incident as a self-contained HTML page", run_report)
    report.add_argument("id", metavar="ID")
    report.add_argument("-o", "--output", metavar="FILE", help="write it there (default: standard output)")
    for parser in (listing, show, report):
        parser.add_argument("--home", default="~/.sentinel", help="the daemon's folder, read where no daemon runs")


def _register_captures(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = subparsers.add_parser("captures", help="dumps: list, request, cancel, plan, rollout")
    verbs = group.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = _verb(verbs, "list", "all dumps that were ordered, and what became of them", run_captures)
    listing.add_argument("--run", dest="name", metavar="RUN", help="of this run only")
    request = _verb(verbs, "request", "order a dump by hand, from the next step on", run_request)
    request.add_argument("--run", dest="name", metavar="RUN", required=True)
    request.add_argument("--stages", required=True, metavar="S[,S]", help="stages to dump")
    request.add_argument("--steps", type=int, default=1, metavar="N", help="how many steps (default 1)")
    request.add_argument("--level", default="L0", metavar="L0|L1|mix", help="modules, operations or both (default L0)")
    request.add_argument("--ranks", default="all", metavar="R[,R]|all", help="ranks that dump (default all)")
    cancel = _verb(verbs, "cancel", "take an order back", run_cancel)
    cancel.add_argument("id", metavar="ID")
    plan = _verb(verbs, "plan", "the order for a golden dump made to order, for SENTINEL_ORDERS", run_plan)
    plan.add_argument("incident", metavar="INCIDENT")
    plan.add_argument("-o", "--output", metavar="FILE", help="write it there")
    rollout = verbs.add_parser(
        "rollout", help="the rollout engine's dump configuration (vLLM-Ascend), written or switched"
    )
    rollout.set_defaults(run=run_rollout)
    rollout_dump.add_options(rollout)
    output.add_json_flag(rollout)


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    about: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=about)
    parser.set_defaults(run=run)
    cluster.add_address_options(parser)
    output.add_json_flag(parser)
    return parser


def _ask(args: argparse.Namespace, what: str, question: dict[str, Any]) -> dict[str, Any]:
    """Return the daemon's answer, or that of its files where no daemon runs."""
    try:
        return cluster.ask(args, what, question)
    except cluster.AbsentError as error:
        home = Path(args.home).expanduser()
        if not (home / "incidents").is_dir():
            raise
        output.note(f"{error}; read from {home}")
        return incident_files.answer(home, what, question)


def run_list(args: argparse.Namespace) -> int:
    """List incidents; 1 where one is open."""
    from sentinel.sinks import terminal

    document = _ask(args, "incidents", {"run": args.name, "state": args.state})
    output.emit(args, document, lambda console: terminal.show_incidents(console, document["incidents"]))
    return FOUND if any(row["state"] == "open" for row in document["incidents"]) else OK


def run_show(args: argparse.Namespace) -> int:
    """Show one incident; 1 while it is open."""
    document = _ask(args, "incident", {"id": args.id})
    if args.json:
        output.emit(args, document, lambda _: None)
    else:
        text = _ask(args, "report", {"id": args.id, "form": "markdown"})["text"]
        output.console().print(text)
    return FOUND if document["state"] == "open" else OK


def run_report(args: argparse.Namespace) -> int:
    """Write the HTML report of one incident."""
    text = str(_ask(args, "report", {"id": args.id, "form": "html"})["text"])
    if args.output is None and not args.json:
        print(text)
        return OK
    path = Path(args.output or f"{args.id.replace('/', '_').replace(':', '-')}.html")
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise DaemonError(f"{path}: {error.strerror}") from error
    document = {"id": args.id, "report": str(path.absolute()), "bytes": path.stat().st_size}
    output.emit(args, document, lambda console: console.print(f"written: {document['report']}"))
    return OK


def run_captures(args: argparse.Namespace) -> int:
    """List captures; 1 where one failed."""
    from sentinel.sinks import terminal

    document = cluster.ask(args, "captures", {"run": args.name})
    output.emit(args, document, lambda console: terminal.show_captures(console, document["captures"]))
    return FOUND if any(row["state"] == "failed" for row in document["captures"]) else OK


def run_request(args: argparse.Namespace) -> int:
    """Order a dump."""
    from sentinel.sinks import terminal

    question: dict[str, Any] = {
        "run": args.name,
        "stages": [stage.strip() for stage in args.stages.split(",") if stage.strip()],
        "steps": args.steps,
        "level": args.level,
        "ranks": parse_ranks(args.ranks),
    }
    document = cluster.ask(args, "request", question)
    output.emit(args, document, lambda console: terminal.show_captures(console, [document]))
    return OK


def run_cancel(args: argparse.Namespace) -> int:
    """Take an order back."""
    from sentinel.sinks import terminal

    document = cluster.ask(args, "cancel", {"id": args.id})
    output.emit(args, document, lambda console: terminal.show_captures(console, [document]))
    return OK


def run_plan(args: argparse.Namespace) -> int:
    """Write the order that a reference run obeys, so that an incident's dump has a golden one."""
    document = cluster.ask(args, "plan", {"id": args.incident})
    if args.output is not None:
        try:
            Path(args.output).write_text(json_text.to_text(document, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise DaemonError(f"{args.output}: {error.strerror}") from error
        output.note(f"written: {args.output}")
    output.emit(args, document, lambda console: _show_plan(console, document))
    return OK


def run_rollout(args: argparse.Namespace) -> int:
    """Write or switch the dump configuration of the rollout engine."""
    document = rollout_dump.document(args)

    def show(console: Console) -> None:
        console.print(f"{document['config']}: dumping is {document['switched']}")
        for override in document["overrides"]:
            console.print(override, soft_wrap=True)
        console.print(document["how"])

    output.emit(args, document, show)
    return OK


def _show_plan(console: Console, document: dict[str, Any]) -> None:
    for order in document["orders"]:
        steps = f"{order['first_step']} to {order['last_step']}"
        console.print(f"dump {', '.join(order['stages'])} at steps {steps}, level {order['level']}, all ranks")
    console.print(f"checkpoint: {document['checkpoint'] or 'not known'}")
    console.print(f"rollouts: {document['rollouts'] or 'not known'}")
    console.print(document["how"])


def parse_ranks(text: str) -> list[int] | None:
    """Return the ranks of `0,2`; None for `all`.

    Raises:
        DaemonError: it is neither.
    """
    if text == "all":
        return None
    try:
        ranks = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise DaemonError(f"--ranks {text!r}: expected numbers with commas between, or `all`") from None
    if ranks[0] < 0:
        raise DaemonError(f"--ranks {text!r}: ranks begin at 0")
    return ranks
