# SPDX-License-Identifier: Apache-2.0
"""Verbs of the daemon: up, status, down, reload, top, attach."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli import AT_FAULT, FOUND, OK, cluster, output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs."""
    up = subparsers.add_parser("up", help="start the daemon in the Ray cluster, or in one on this machine")
    up.add_argument("--config", metavar="FILE", help="settings, see deploy/sentinel.yaml")
    up.set_defaults(run=run_up)
    status = subparsers.add_parser("status", help="what is watched, and how it stands")
    status.add_argument("--run", dest="name", metavar="RUN", help="this run only")
    status.set_defaults(run=run_status)
    down = subparsers.add_parser("down", help="stop the daemon, or the watch over one run; training goes on")
    down.add_argument("--run", dest="name", metavar="RUN", help="end the watch over this run only")
    down.set_defaults(run=run_down)
    reload = subparsers.add_parser("reload", help="let the running daemon go on with new settings, as far as is safe")
    reload.add_argument("--config", metavar="FILE", help="settings (default: the daemon reads its own file again)")
    reload.set_defaults(run=run_reload)
    for parser in (up, status, down, reload):
        cluster.add_address_options(parser)
        output.add_json_flag(parser)
    top = subparsers.add_parser("top", help="a live view of `status` in a terminal")
    top.add_argument("--run", dest="name", metavar="RUN", help="this run only")
    top.set_defaults(run=run_top)
    cluster.add_address_options(top)
    attach = subparsers.add_parser("attach", help="watch a run by its log, with no change to the run")
    attach.add_argument("log", metavar="LOG", help="metric file of any format that `sentinel read` knows")
    attach.add_argument("--run", dest="name", metavar="RUN", required=True, help="name of the run")
    attach.add_argument("--baseline", metavar="BUNDLE", help="what it is compared with")
    attach.add_argument(
        "--msprobe-config",
        metavar="FILE",
        help="config.json of the run's own PrecisionDebugger: switched when a dump is wanted",
    )
    attach.add_argument(
        "--msprobe-stage",
        default="actor_update",
        metavar="STAGE",
        help="what that debugger dumps (default actor_update)",
    )
    attach.add_argument(
        "--msprobe-first-step",
        type=int,
        default=1,
        metavar="N",
        help="training step that msprobe's step 0 is (default 1)",
    )
    attach.add_argument("--follow", action="store_true", help="go on as the log grows, until interrupted")
    attach.add_argument("--config", metavar="FILE", help="settings, see deploy/sentinel.yaml")
    attach.add_argument("--local", action="store_true", help="watch in this process, also where a daemon runs")
    attach.set_defaults(run=run_attach)
    cluster.add_address_options(attach)
    output.add_json_flag(attach)


def run_up(args: argparse.Namespace) -> int:
    """Start the daemon where there is none and say where it is."""
    from sentinel.cli import bringing_up

    document = bringing_up.up(args)
    output.emit(args, document, lambda console: _show_up(console, document))
    return OK


def run_status(args: argparse.Namespace) -> int:
    """Say what is watched; 1 where an incident is open or no daemon answers."""
    from sentinel.sinks import terminal

    try:
        document = cluster.ask(args, "status", {"run": args.name})
    except (cluster.AbsentError, cluster.UnreachableError) as error:
        document = missing(error)
    output.emit(args, document, lambda console: terminal.show_status(console, document))
    return exit_code(document)


def run_down(args: argparse.Namespace) -> int:
    """Stop the daemon or the watch over one run; 1 where no daemon answers."""
    from sentinel.cli import bringing_up

    try:
        if args.name is not None:
            document = cluster.ask(args, "retire", {"run": args.name})
            output.emit(args, document, lambda console: console.print(f"{args.name} is no longer watched"))
            return OK
        document = bringing_up.down(args)
    except (cluster.AbsentError, cluster.UnreachableError) as error:
        document = missing(error)
        output.emit(args, document, lambda console: console.print(f"{document['daemon']}: {document['why']}"))
        return FOUND
    output.emit(args, document, lambda console: console.print("the daemon is stopped; its journal stays"))
    return OK


def run_reload(args: argparse.Namespace) -> int:
    """Hand new settings to the daemon; 1 where none answers."""
    try:
        text, path = None, None
        if args.config is not None:
            from sentinel.daemon.house import settings_text

            text, path = settings_text(args.config), str(Path(args.config).absolute())
        document = cluster.ask(args, "reload", {"text": text, "path": path})
    except (cluster.AbsentError, cluster.UnreachableError) as error:
        document = missing(error)
        output.emit(args, document, lambda console: console.print(f"{document['daemon']}: {document['why']}"))
        return FOUND
    output.emit(args, document, lambda console: _show_reload(console, document))
    return OK


def run_top(args: argparse.Namespace) -> int:
    """Show the live view until it is left."""
    if not sys.stdout.isatty():
        print("sentinel top: needs a terminal (scripts use `sentinel status --json`)", file=sys.stderr)
        return AT_FAULT
    from sentinel.sinks import terminal

    try:
        terminal.live(lambda: cluster.ask(args, "overview", {"run": args.name}))
    except KeyboardInterrupt:
        # A question may be under way on Ray's thread, and Ray's own farewell would wait for it.
        sys.stdout.flush()
        os._exit(OK)
    except (cluster.AbsentError, cluster.UnreachableError) as error:
        print(f"sentinel top: {error}", file=sys.stderr)
        return FOUND
    return OK


def run_attach(args: argparse.Namespace) -> int:
    """Watch a run by its log; 1 where it has an incident."""
    from sentinel.cli.attaching import attach
    from sentinel.sinks import terminal

    document = attach(args)
    output.emit(args, document, lambda console: terminal.show_incidents(console, document["incidents"]))
    return FOUND if document["incidents"] else OK


def _show_reload(console: Any, document: Mapping[str, Any]) -> None:
    console.print(f"in force now: {', '.join(document['applied']) or 'nothing that changed'}", markup=False)
    if document["after_restart"]:
        waiting = ", ".join(document["after_restart"])
        console.print(f"after `sentinel down` and `sentinel up` only: {waiting}", markup=False)


def missing(error: Exception) -> dict[str, Any]:
    """Return the status document where no daemon answers."""
    word = "absent" if isinstance(error, cluster.AbsentError) else "unreachable"
    return {"daemon": word, "endpoint": None, "runs": [], "why": str(error)}


def exit_code(document: Mapping[str, Any]) -> int:
    """Return the exit code of a status document."""
    wrong = document["daemon"] != "running" or any(row["open_incidents"] for row in document["runs"])
    return FOUND if wrong else OK


def _show_up(console: Any, document: Mapping[str, Any]) -> None:
    console.print(f"the daemon runs, pid {document['pid']} on {document['host']}, journal in {document['home']}")
    console.print(f"status page and metrics: {document['endpoint'] or 'none'}")
    for remark in document["remarks"]:
        console.print(f"note: {remark}")
