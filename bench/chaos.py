# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the daemon at random moments, under load: what it knows in the end must be what a daemon that lived on knows.

Several runs report in turn, each with faults whose dumps are ordered, taken, compared, reported. Of 200 kills in one
count most hit a process without Ray, which is started again at once, the others Ray's actor, which Ray itself starts
again. Some hit it while it starts and takes up its journal.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.verdict import step as healthy

if TYPE_CHECKING:
    from collections.abc import Callable

KILLS, KILLS_IN_RAY = 150, 50
RUNS = 4
BETWEEN = 12
"""Answers of one life of the daemon at most, before it is killed."""
FAULT_EVERY = 37
LEAST_STEPS = FAULT_EVERY + 10
TOLD_EVERY = 10
"""Kills between two lines of progress."""
OPEN = ("ordered", "recording")
PROCESS = Path(__file__).parent / "house_process.py"
ROOT = Path(__file__).parents[1]


def run() -> list[dict]:
    """Return one row a number; everything on one line of JSON before."""
    parts = {}
    with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as folder:
        root = Path(folder)
        for name, kills, kind in (("without Ray", KILLS, Process), ("Ray's restart included", KILLS_IN_RAY, Actor)):
            with kind.place(root):
                parts[name] = compared(root / f"at-{kills}", kind, kills, seed=7, tell=told(name, kills))
    away = {name: spread(found["away"]) for name, found in parts.items()}
    sums = {
        name: sum(len(found[name]) for found in parts.values()) for name in ("expected", "lost", "twice", "differing")
    }
    total = {"kills": sum(found["kills"] for found in parts.values()), **sums, "away_seconds": away}
    print(json.dumps({**total, "load": os.getloadavg()[0]}), flush=True)
    what = f"{total['kills']} times kill -9 with {RUNS} runs reporting"
    return [
        *(
            {
                "name": f"{what}: {name} of {total['expected']} things known",
                "value": total[name],
                "unit": "",
                "limit": 0,
            }
            for name in ("lost", "twice", "differing")
        ),
        *(
            {
                "name": f"until it answers again, {name}: {part} of {len(parts[name]['away'])}",
                "value": value,
                "unit": "s",
                "limit": 5.0 if part == "longest" else None,
            }
            for name, values in away.items()
            for part, value in values.items()
        ),
    ]


def told(name: str, kills: int) -> Callable[[int], None]:
    """Return what prints how far it is."""
    began = time.monotonic()

    def tell(done: int) -> None:
        if done % TOLD_EVERY == 0:
            print(f"... {name}: {done} of {kills} kills, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    return tell


def spread(seconds: list[float]) -> dict[str, float]:
    """Median, 95th percentile and longest of some times."""
    ordered = sorted(seconds)
    found = {"median": statistics.median(ordered), "p95": ordered[int(len(ordered) * 0.95)], "longest": ordered[-1]}
    return {name: round(value, 2) for name, value in found.items()}


def compared(
    folder: Path,
    kind: type[Process],
    kills: int,
    *,
    seed: int,
    runs: int = RUNS,
    tell: Callable[[int], None] = lambda _: None,
) -> dict:
    """Return how often a daemon was killed, how long it was away each time, and what it knows wrongly then.

    It is killed until there were so many kills; a daemon without Ray that nobody kills then lives through the same steps.
    """
    daemon = kind(place(folder / "killed"))
    with killing(daemon, kills, random.Random(seed), tell):
        steps, found = course(daemon, folder / "killed", runs, lambda _: daemon.kills < kills)
    daemon.close()
    calm = Process(place(folder / "calm"))
    _, expected = course(calm, folder / "calm", runs, lambda done: done < steps)
    calm.close()
    return {
        "kills": daemon.kills,
        "away": daemon.away,
        "lost": [name for name in expected if name not in found],
        "twice": [name for name in found if name not in expected],
        "differing": [name for name in expected if name in found and expected[name] != found[name]],
        "expected": expected,
        "found": found,
    }


class Process:
    """The daemon as a process of its own, started again whenever it is gone."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.kills = self.starts = 0
        self.answered = 0
        """Answers of this life."""
        self.away: list[float] = []
        self._gone_at: float | None = None
        self._start()

    @staticmethod
    def place(_root: Path) -> contextlib.AbstractContextManager[None]:
        """What it needs around it: nothing."""
        return contextlib.nullcontext()

    def ask(self, what: str, given: dict) -> object:
        """Ask until an answer comes, as the trainer's side does."""
        while True:
            try:
                answer = self._ask(what, given)
            except (OSError, ValueError):
                self._revive()
            else:
                if self._gone_at is not None:
                    self.away.append(time.monotonic() - self._gone_at)
                    self._gone_at = None
                self.answered += 1
                return answer

    def kill(self) -> None:
        """kill -9."""
        self.answered = 0
        self._gone_at = time.monotonic()
        self.kills += 1
        self._process.kill()

    def close(self) -> None:
        """End it."""
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()
        self._process.wait(30)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROCESS), str(self.file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.starts += 1
        self._process.stdout.readline()

    def _ask(self, what: str, given: dict) -> object:
        self._process.stdin.write(json.dumps([what, given]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def _revive(self) -> None:
        self.close()
        self._start()


class Actor(Process):
    """The daemon as Ray's actor; Ray starts it again."""

    @staticmethod
    @contextlib.contextmanager
    def place(_root: Path):
        """A cluster of one node, whose many words about every death go nowhere."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        try:
            with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
                yield
        finally:
            ray.shutdown()

    def kill(self) -> None:
        """kill -9 of the worker process that the actor lives in, also while it starts there."""
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.pid != self._last and process.cmdline()[:1] and "WatchdogActor" in process.cmdline()[0]:
                    self._last = process.pid
                    self.answered = 0
                    self._gone_at = time.monotonic()
                    self.kills += 1
                    process.kill()
                    self.starts += 1  # Ray's business
                    return

    def close(self) -> None:
        """End it for good."""
        import ray

        ray.kill(self._actor, no_restart=True)
        time.sleep(1.0)

    def _start(self) -> None:
        from sentinel.daemon import ray_actor

        self._last = 0
        self._actor = ray_actor.connect_or_start(self.file.read_text(), str(self.file), by_hand=True)
        import ray

        self.starts += 1
        # As long as a busy machine takes to start a worker.
        ray.get(self._actor.query.remote("status"), timeout=120)

    def _ask(self, what: str, given: dict) -> object:
        import ray

        try:
            if what == "report":
                return ray.get(self._actor.report.remote(given), timeout=10)
            if what == "settle":
                return ray.get(self._actor.__ray_call__.remote(lambda self: self._house.watchdog.deeds.wait(30)))
            return ray.get(self._actor.query.remote(what, given), timeout=10)
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
            raise OSError(str(error)) from error

    def _revive(self) -> None:
        time.sleep(0.05)


@contextlib.contextmanager
def killing(daemon: Process, kills: int, drawn: random.Random, tell: Callable[[int], None]):
    """Kill a daemon after so many answers of each life, some of them none at all."""
    stop = threading.Event()

    def work() -> None:
        life, answers = 0, drawn.randint(0, BETWEEN)
        while daemon.kills < kills and not stop.wait(0.001):
            if daemon.starts > life and daemon.answered >= answers:
                # With no answer at all it dies while it starts and takes up its journal.
                stop.wait(drawn.uniform(0.0, 0.01 if answers else 0.8))
                born, before = daemon.starts, daemon.kills
                daemon.kill()
                if daemon.kills == before:
                    continue  # there was no process yet
                life = born
                tell(daemon.kills)
                answers = drawn.randint(0, BETWEEN)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def place(folder: Path) -> Path:
    """A home with a baseline; return the settings file."""
    folder.mkdir(parents=True)
    baseline = folder / "golden.jsonl"
    baseline.write_text("".join(json.dumps({"step": n, "data": healthy(n, 0)}) + "\n" for n in range(1, 2001)))
    file = folder / "sentinel.yaml"
    capture = {"cool_down_steps": 1, "most_steps": 10_000}
    file.write_text(
        json.dumps(
            {"home": "home", "baseline": str(baseline), "http": {"port": 0}, "engine": {"capture": capture}}
        ).replace('"home": "home"', f'"home": "{folder}/home"')
    )
    return file


def course(daemon: Process, folder: Path, runs: int, more: Callable[[int], bool]) -> tuple[int, dict[str, object]]:
    """Several runs in turn, with faults whose orders are obeyed.

    Args:
        daemon: whom they report to.
        folder: for dumps.
        runs: how many.
        more: told how many steps each run has reported; whether there is another.

    Returns:
        Steps of each run, and what the daemon knows at the end, by name.
    """
    config = {"path": str(daemon.file), "text": daemon.file.read_text()}
    names = [f"run-{number}" for number in range(runs)]
    obeyed: set[str] = set()

    def send(run: str, *records: dict) -> dict:
        return daemon.ask("report", {"v": 1, "run": run, "session": run, "records": list(records)})

    for name in names:
        send(name, {"t": "start", "at": time.time(), "facts": {"trainer": "v1"}, "config": config})
    number = 0
    while number < LEAST_STEPS or more(number):
        number += 1
        for place_, name in enumerate(names):
            bad = {"actor/grad_norm": math.nan} if (number + 9 * place_) % FAULT_EVERY == 8 else {}
            told_ = {"t": "step", "step": number, "at": time.time(), "values": healthy(number, 0) | bad}
            for order in send(name, told_)["orders"]:
                if order["id"] not in obeyed:
                    obeyed.add(order["id"])
                    send(name, receipt(order, folder / "dumps" / name, number + 1))
    daemon.ask("settle", {})
    return number, known(daemon, folder)


def known(daemon: Process, folder: Path) -> dict[str, object]:
    """Everything that a daemon was told and decided, by name."""
    found: dict[str, object] = {}
    for row in daemon.ask("status", {})["runs"]:
        found[row["run"]] = (row["last_step"], row["steps_seen"], row["state"])
    for row in daemon.ask("incidents", {})["incidents"]:
        incident = daemon.ask("incident", {"id": row["id"]})
        triage = incident["triage"] and incident["triage"]["verdict"]
        told = [incident[name] for name in ("kind", "opened_at_step", "closed_at_step")]
        found[f"incident {row['id']}"] = (*told, len(incident["findings"]), triage)
    seen: set[str] = set()
    for row in daemon.ask("captures", {})["captures"]:
        if row["id"] in seen:
            found[f"capture {row['id']} twice"] = True
        seen.add(row["id"])
        first = row["id"].endswith("/c1")
        # How deep an incident is asked about, and whether a deeper order is overtaken by an answer, hangs on when triage
        # answers, killed or not. Of those it must hold that none is left open.
        if first or row["state"] in OPEN:
            found[f"capture {row['id']}"] = (row["state"], row["receipt"] and row["receipt"]["outcome"])
    for path in (folder / "home" / "incidents").glob("*/report.html"):
        found[f"report {path.parent.name}"] = True
    return found


def receipt(order: dict, root: Path, step: int) -> dict:
    """What the trainer's side says after a dump; the dump holds a NaN, as the step did."""
    stage = order["stages"][0]
    folder = root / f"step_{step}" / stage
    (folder / "step0" / "rank0").mkdir(parents=True, exist_ok=True)
    value = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "requires_grad": False}
    value |= dict.fromkeys(("Max", "Min", "Mean", "Norm"), math.nan)
    module = {"input_args": [{**value, **dict.fromkeys(("Max", "Min", "Mean", "Norm"), 1.0)}], "input_kwargs": {}}
    dump = {
        "task": "statistics",
        "level": "L0",
        "framework": "pytorch",
        "dump_data_dir": None,
        "data": {"Module.layer.Linear.forward.0": {**module, "output": [value]}},
    }
    (folder / "step0" / "rank0" / "dump.json").write_text(json.dumps(dump))
    given = {"first_step": step, "last_step": step, "stages": [stage], "ranks": [0], "outcome": "complete"}
    return {"t": "receipt", "capture": order["id"], "at": 1.0, "receipt": {**given, "paths": [str(folder)]}}
