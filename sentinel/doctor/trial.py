# SPDX-License-Identifier: Apache-2.0
"""A process of its own for what may break or hang: it writes one JSON document, or is ended after a time limit.

The answer goes through a file, because verl, msprobe and CANN print to both streams as they please.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sentinel

# A run that is named in the caller's environment must not be joined by a trial's import of verl.
_NOT_INHERITED = ("SENTINEL_RUN", "SENTINEL_RECORD", "SENTINEL_ORDERS", "SENTINEL_CONFIG", "SENTINEL_DISABLED")
_LAST_LINES = 3


def run_trial(name: str, seconds: float, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run trial `name` of `sentinel.doctor.trials` and return its answer.

    Args:
        name: of the trial.
        seconds: time limit.
        environment: variables on top of the caller's.

    Returns:
        What the trial found; `{"error": one line}` where it found nothing, with `"timeout": True` after the limit.
    """
    given = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
    # Absolute: the trial has a folder of its own, so that a file named torch.py here misleads nobody.
    places = [str(Path(sentinel.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    given["PYTHONPATH"] = os.pathsep.join(str(Path(place).absolute()) for place in places if place)
    given |= environment or {}
    with tempfile.TemporaryDirectory(prefix="sentinel_doctor_") as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", "sentinel.doctor.trials", name, str(answer)]
        ended, said = _run(command, seconds, given, folder)
        if ended is None:
            return {"error": f"no answer within {seconds:.0f} s", "timeout": True}
        try:
            found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {"error": f"the process ended with {_reason(ended)}: {_tail(said)}"}
    return found


def _run(command: list[str], seconds: float, environment: dict[str, str], folder: str) -> tuple[int | None, str]:
    """Return exit code (None: out of time) and output; nothing of the process group is left behind."""
    process = subprocess.Popen(  # noqa: S603
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return None, ""
    return process.returncode, output.decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=5)


def _reason(code: int) -> str:
    if code >= 0:
        return f"code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def _tail(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-_LAST_LINES:]) or "no output"
