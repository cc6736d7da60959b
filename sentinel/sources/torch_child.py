# SPDX-License-Identifier: Apache-2.0
"""Work on dumped tensors in a process of its own: torch is optional, and a tensor file may be hostile or huge.

The child loads with `weights_only`, so nothing is unpickled freely, and its death costs a note.
"""

from __future__ import annotations

import json
import subprocess
import sys

TIME_LIMIT_SECONDS = 120.0


def ask_child(script: str, question: object, *, limit_seconds: float = TIME_LIMIT_SECONDS) -> tuple[list[object], str]:
    """Give `question` as JSON to a Python script; return the JSON values that it printed, one a line, and what went wrong.

    A line that is no JSON is None; what was printed before the child died or its time was up counts.
    """
    command = [sys.executable, "-c", script]
    try:
        done = subprocess.run(  # noqa: S603  # our own script, by this interpreter
            command, input=json.dumps(question), capture_output=True, text=True, timeout=limit_seconds, check=False
        )
        printed = done.stdout
        why = "" if done.returncode == 0 else f"the process that loads them ended: {_last(done.stderr)}"
    except subprocess.TimeoutExpired as late:
        printed = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        why = f"not all of them within {limit_seconds:g} s"
    return [_value(line) for line in printed.splitlines()], why


def _value(line: str) -> object:
    try:
        value: object = json.loads(line)
    except ValueError:
        return None
    return value


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "without a word"
