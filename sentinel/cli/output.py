# SPDX-License-Identifier: Apache-2.0
"""What a verb prints: one JSON document with `--json`, a text for people without it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sentinel.sinks import json_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from rich.console import Console


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the flag that every verb has."""
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def emit(args: argparse.Namespace, document: Mapping[str, object], text: Callable[[Console], None]) -> None:
    """Print `document` as JSON if `--json` was given, else let `text` print to a console of standard output."""
    if getattr(args, "json", False):
        sys.stdout.write(json_text.to_text(document) + "\n")
        return
    text(console())


def console(*, stderr: bool = False) -> Console:
    """Return a console for standard output (or standard error): colours on a terminal, plain text elsewhere.

    Markup is off: metric names and model output may hold square brackets.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 160
    return Console(file=stream, markup=False, highlight=False, emoji=False, width=width, soft_wrap=not stream.isatty())


def note(message: str) -> None:
    """Say something to people on standard error: progress, a warning, what happens next."""
    print(message, file=sys.stderr, flush=True)
