# SPDX-License-Identifier: Apache-2.0
"""msprobe's own comparison table and hierarchical graph of a pair of dumps, made beside the report for people who want them.

Each in a process of its own at low priority and with a time limit; Sentinel's verdict never waits for them or rests on them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from sentinel.errors import UnreadableDump
from sentinel.records import Triage
from sentinel.sources.msprobe_dump import Place, find_dumps

LIMIT_SECONDS = 180.0
FOLDER = "msprobe"
"""Below the folder of an incident."""
KINDS = {"compare": "*.csv", "graph_visualize": "*.vis.db"}
MSPROBE = (sys.executable, "-W", "ignore", "-m", "msprobe.msprobe")


def wanted(triage: Triage) -> bool:
    """Whether there is a pair to compare and msprobe to do it."""
    there = bool(triage.target and triage.golden) and triage.verdict in {"diverged", "same", "not_comparable"}
    return there and importlib.util.find_spec("msprobe") is not None


class TableMaker:
    """Runs msprobe's commands; `stop` ends those that run and lets none begin.

    Args:
        command: msprobe as it is called here.
        limit_seconds: for each table.
    """

    def __init__(self, command: Sequence[str] = MSPROBE, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._command = tuple(command)
        self._limit = limit_seconds
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def make(self, triage: Triage, folder: Path) -> tuple[str, ...]:
        """Write the table and the graph below `folder`; return what could not be made, one sentence each."""
        try:
            target, golden = _sides(triage)
        except UnreadableDump as error:
            return (f"msprobe compare was not run: {error}",)
        failures = []
        for verb, pattern in KINDS.items():
            into = folder / verb
            into.mkdir(parents=True, exist_ok=True)
            why = self._run([*self._command, verb, "-tp", target, "-gp", golden, "-o", str(into)])
            if not any(into.glob(pattern)):
                failures.append(f"msprobe {verb} left nothing: {why or 'it said no reason'}")
        return tuple(failures)

    def stop(self) -> None:
        """End what runs; nothing begins any more."""
        with self._lock:
            self._stopped = True
            for child in self._children:
                _kill(child)

    def _run(self, command: list[str]) -> str:
        """Run a command; return why it may have failed, empty where it did not."""
        nice = shutil.which("nice")
        with self._lock:
            if self._stopped:
                return "the daemon ends"
            try:
                child = subprocess.Popen(  # noqa: S603  # msprobe's own command, by this interpreter
                    [*([nice, "-n", "15"] if nice else []), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "MSPROBE_LOG_LEVEL": "4"},
                    start_new_session=True,
                )
            except OSError as error:
                return str(error)
            self._children.add(child)
        with child:
            try:
                printed, _ = child.communicate(timeout=self._limit)
            except subprocess.TimeoutExpired:
                _kill(child)
                child.communicate()
                return f"not done within {self._limit:g} s"
            finally:
                with self._lock:
                    self._children.discard(child)
        lines = [line for line in printed.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][-200:] if child.returncode and lines else ""


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End a child and, as it has a session of its own, whatever it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def made(folder: Path) -> tuple[str, ...]:
    """The files of an incident's folder that msprobe made, as paths below it; the newest of each kind."""
    found = []
    for verb, pattern in KINDS.items():
        files = sorted((folder / FOLDER / verb).glob(pattern), key=lambda file: (file.stat().st_mtime, file.name))
        found += [str(file.relative_to(folder)) for file in files[-1:]]
    return tuple(found)


def _sides(triage: Triage) -> tuple[str, str]:
    """The folders to compare: all ranks where both sides have the same ones, else those of the first."""
    mine, theirs = (_of_step(find_dumps(path), triage) for path in (triage.target, triage.golden))
    if [place.rank for place in mine] == [place.rank for place in theirs] and mine[0].rank is not None:
        return str(mine[0].file.parent.parent), str(theirs[0].file.parent.parent)
    return str(mine[0].file.parent), str(theirs[0].file.parent)


def _of_step(places: list[Place], triage: Triage) -> list[Place]:
    stage = triage.first.stage if triage.first is not None else places[0].stage
    kept = [place for place in places if place.step in {triage.step, None} and place.stage == stage]
    kept = kept or places
    return [place for place in kept if place.file.parent.parent == kept[0].file.parent.parent]
