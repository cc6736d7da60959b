# SPDX-License-Identifier: Apache-2.0
"""The verb `doctor`: what is installed and works here, and what to do about what does not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sentinel.cli import FOUND, OK, cluster, output
from sentinel.errors import DaemonError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rich.console import Console

    from sentinel.doctor.check import Check

_STYLES = {"pass": "green", "fail": "bold red", "warn": "yellow", "unknown": "cyan"}


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser("doctor", help="what is installed and works here, and what to do about the rest")
    parser.add_argument("--npu", action="store_true", help="also try on the device what could not be tried without one")
    parser.add_argument("--config", metavar="FILE", help="settings (default: SENTINEL_CONFIG, else the defaults)")
    parser.add_argument("--address", help="Ray cluster as HOST:PORT (default: RAY_ADDRESS, else that of this machine)")
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="SECONDS", help="limit of one trial (default 120)"
    )
    output.add_json_flag(parser)
    parser.set_defaults(run=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    """Look at everything; 1 where a check fails."""
    from sentinel import doctor
    from sentinel.cli.progress import Progress
    from sentinel.settings import Settings, load

    path = args.config or _readable(os.environ.get("SENTINEL_CONFIG", ""))
    settings = load(path) if path else Settings()
    try:
        address = cluster.find_address(args.address)
    except DaemonError as error:
        if args.address:
            raise
        output.note(f"doctor: {error}")
        address = None
    with Progress() as progress:
        progress.says("trying torch, verl and msprobe, each in a process of its own")
        checks = doctor.examine(
            settings,
            npu=args.npu,
            address=address,
            named=bool(args.address or os.environ.get("RAY_ADDRESS")),
            trial_seconds=args.timeout,
        )
    output.emit(args, {"checks": [check.to_plain() for check in checks]}, lambda console: show(checks, console))
    return FOUND if any(check.status == "fail" for check in checks) else OK


def _readable(path: str) -> str:
    return path if path and os.access(path, os.R_OK) else ""


def show(checks: Sequence[Check], console: Console) -> None:
    """Print the checks for people: a line each, and what to do below it."""
    for check in checks:
        console.print(f"{check.status:8}", style=_STYLES[check.status], end="")
        console.print(f"{check.title}: {check.found}")
        if check.fix and check.status != "pass":
            console.print(f"        -> {check.fix}", style="dim")
    counts = {status: sum(check.status == status for check in checks) for status in _STYLES}
    console.print(", ".join(f"{count} {status}" for status, count in counts.items() if count))
