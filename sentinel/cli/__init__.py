# SPDX-License-Identifier: Apache-2.0
"""The command line: verbs, forms and exit codes of the command-line contract.

Each group of verbs is a module `sentinel.cli.<name>` with `register(subparsers)`, which adds its parsers and sets
`run`, a callable of the parsed arguments that returns the exit code. Group modules import what is heavy inside that
callable, so that `sentinel --help` starts at once.

Exit codes: 0 nothing wrong, 1 the verb worked and found something wrong, 2 the input or the command is at fault
(one line on standard error), 130 interrupted from the keyboard.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from typing import NoReturn

from sentinel.errors import SentinelError

GROUPS = (
    "reading",
    "replaying",
    "baselines",
    "daemon",
    "incidents",
    "triage",
    "demo",
    "evaluation",
    "preflight",
    "rollout",
    "stub",
    "doctor",
)
"""Modules of this package that hold verbs, in the order of `sentinel --help`."""

OK = 0
FOUND = 1
AT_FAULT = 2
INTERRUPTED = 130


class OneLineParser(argparse.ArgumentParser):
    """A parser whose complaint is one line: what is wrong, in which verb, where to read on."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command in one line and exit with 2."""
        line = " ".join(message.split())
        self.exit(AT_FAULT, f"{self.prog}: {line} (see `{self.prog} --help`)\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of every verb."""
    from sentinel import __version__

    parser = OneLineParser(
        prog="sentinel",
        description="Watches a VeRL run against its baseline: says at which step and in which stage it went wrong.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sentinel {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an internal error comes from")
    subparsers = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name in GROUPS:
        importlib.import_module(f"{__name__}.{name}").register(subparsers)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code; everything that goes wrong becomes one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Metric names and model output may hold what the terminal's encoding does not.
            stream.reconfigure(errors="backslashreplace")
    try:
        args = build_parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else AT_FAULT
    try:
        code = int(args.run(args))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough (`sentinel ... | head`): no fault of anybody.
        silence_stdout()
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except (SentinelError, OSError) as error:
        return complain(str(error), getattr(error, "exit_code", AT_FAULT))
    except Exception as error:
        if args.traceback:
            raise
        return complain(
            f"internal error: {type(error).__name__}: {error} "
            "(a bug of Sentinel; `sentinel --traceback VERB ...` shows where)"
        )
    return code


def complain(message: str, code: int = AT_FAULT) -> int:
    """Print `message` as one line on standard error and return the exit code."""
    with contextlib.suppress(OSError):
        print(f"sentinel: {' '.join(message.split())}", file=sys.stderr)
    return code


def silence_stdout() -> None:
    """Send what is still to be printed nowhere, so that the interpreter's last flush does not fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
