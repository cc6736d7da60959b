# SPDX-License-Identifier: Apache-2.0
"""The daemon without Ray: a judgement, a scrape, a page, an alert, a restart, and what it costs while it waits."""

from __future__ import annotations

import contextlib
import http.server
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.trainer import quantiles
from bench.verdict import step
from sentinel.daemon.house import House
from sentinel.storage.retention import Retention

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS, METRICS, STEPS = 20, 100, 60
IDLE_SECONDS = 60.0


def run() -> list[dict]:
    """Return one row a number."""
    with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as folder:
        rows = many_runs(Path(folder) / "many") + alert(Path(folder) / "alert") + restart(Path(folder) / "restart")
    return rows + idle()


class Watched:
    """A daemon and runs that report to it."""

    def __init__(self, home: Path, runs: int, **settings) -> None:
        home.mkdir()
        baseline = home / "baseline.jsonl"
        lines = [json.dumps({"step": n, "data": metrics(n)}) for n in range(1, STEPS + 1)]
        baseline.write_text("\n".join(lines) + "\n")
        self.file = home / "sentinel.yaml"
        self.text = json.dumps({"home": str(home), "baseline": str(baseline), "http": {"port": 0}, **settings})
        self.house = House(self.text, str(self.file))
        self.names = [f"run-{number}" for number in range(runs)]
        config = {"path": str(self.file), "text": self.text}
        for name in self.names:
            self.send(name, {"t": "start", "at": time.time(), "facts": {"trainer": "v1"}, "config": config})

    def send(self, name: str, record: dict) -> None:
        """One message of one run."""
        self.house.watchdog.report({"v": 1, "run": name, "session": name, "records": [record]})


def metrics(number: int) -> dict[str, float]:
    """A hundred metrics of a healthy step."""
    known = step(number, 0)
    return known | {f"extra/metric_{i}": math.sin(number + i) for i in range(METRICS - len(known))}


def record(number: int, **changed: float) -> dict:
    """A step's record."""
    return {"t": "step", "step": number, "at": time.time(), "values": metrics(number) | changed}


def milliseconds(call, times: int) -> list[float]:
    """How long `call` took, each time."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        spent.append((time.perf_counter() - began) * 1e3)
    return spent


def many_runs(home: Path) -> list[dict]:
    """Judgements of 20 runs in turn, then a scrape and a page of them all."""
    watched = Watched(home, RUNS)
    spent = []
    for number in range(1, STEPS + 1):
        for name in watched.names:
            told = record(number)
            began = time.perf_counter()
            watched.send(name, told)
            spent.append((time.perf_counter() - began) * 1e3)
    endpoint = watched.house.endpoint

    def fetch(path: str) -> int:
        with urllib.request.urlopen(endpoint + path, timeout=30) as answer:
            return len(answer.read())

    judged, scraped, shown = quantiles(spent), quantiles(milliseconds(lambda: fetch("/metrics"), 30)), None
    shown = quantiles(milliseconds(lambda: fetch("/"), 30))
    size = fetch("/metrics") / 1e3
    watched.house.close()
    return [
        {"name": f"judgement of a step of {METRICS} metrics, {RUNS} runs in turn: p50", "value": judged[0], "unit": "ms", "limit": None},
        {"name": f"judgement of a step of {METRICS} metrics, {RUNS} runs in turn: p99", "value": judged[1], "unit": "ms", "limit": 20.0},
        {"name": f"scrape of {RUNS} runs of {METRICS} metrics ({size:.0f} kB): p50", "value": scraped[0], "unit": "ms", "limit": 50.0},
        {"name": f"status page of {RUNS} runs: p50", "value": shown[0], "unit": "ms", "limit": 300.0},
    ]  # fmt: skip


def alert(home: Path) -> list[dict]:
    """From the report of a NaN to its arrival at a webhook."""
    arrived = threading.Event()

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            arrived.set()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    watched = Watched(home, 10, alerts={"webhook": f"http://127.0.0.1:{server.server_address[1]}/"})
    spent = []
    for name in watched.names:
        for number in range(1, 8):
            watched.send(name, record(number))
        arrived.clear()
        began = time.perf_counter()
        watched.send(name, record(8, **{"actor/grad_norm": math.nan}))
        if arrived.wait(10):
            spent.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.2)
    watched.house.close()
    server.shutdown()
    server.server_close()
    value = max(spent) if len(spent) == len(watched.names) else None
    return [{"name": "report of a NaN to the webhook: longest of 10", "value": value, "unit": "ms", "limit": 200.0}]


def restart(home: Path) -> list[dict]:
    """A successor takes up 20 runs that are as far from their last snapshots as runs can be."""
    watched = Watched(home, RUNS)
    # The introduction is an entry, too; one more step, and the snapshot would be due.
    steps = Retention().snapshot_entries - 2
    for number in range(1, steps + 1):
        for name in watched.names:
            watched.send(name, record(number))
    watched.house.watchdog.deeds.wait(10)
    for watch in watched.house.watchdog._watches.values():
        watch.keeper.close()
    began, spent = time.perf_counter(), time.process_time()
    successor = House(watched.text, str(watched.file))
    seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    assert {run.last_step for run in successor.watchdog.runs()} == {steps}
    successor.close()
    watched.house.close()
    what = f"restart with {RUNS} runs, {steps} steps each to fold again"
    return [
        {"name": what, "value": seconds, "unit": "s", "limit": 5.0},
        {"name": f"{what}: CPU", "value": cpu, "unit": "s", "limit": None},
    ]


def idle() -> list[dict]:
    """Memory and time of a daemon that waits: in a process of its own, as Ray's actor, and an empty actor, all in the same minute."""
    code = "import time, tempfile; from sentinel.daemon.house import House; house = House(f'home: {tempfile.mkdtemp()}\\nhttp: {{port: 0}}'); print(1, flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        with actors() as (daemon, empty):
            (alone, share), (memory, in_ray), (bare, bare_share) = waited(process.pid, daemon, empty)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    return [
        {"name": "idle daemon without Ray: memory", "value": alone, "unit": "MB", "limit": None},
        {"name": "idle daemon without Ray: share of a core", "value": share, "unit": "%", "limit": 1.0},
        {"name": "idle daemon in Ray: memory", "value": memory, "unit": "MB", "limit": 150.0},
        {"name": "empty Ray actor: memory", "value": bare, "unit": "MB", "limit": None},
        {"name": "idle daemon in Ray: share of a core", "value": in_ray, "unit": "%", "limit": 1.0},
        {"name": "empty Ray actor: share of a core", "value": bare_share, "unit": "%", "limit": None},
        {"name": "idle daemon in Ray: Sentinel's own share", "value": in_ray - bare_share, "unit": "%", "limit": None},
    ]


@contextlib.contextmanager
def actors() -> Iterator[tuple[int, int]]:
    """Process ids of the daemon as Ray's actor, and of an empty one that has loaded what Ray loads with a first answer."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    from sentinel.daemon import ray_actor

    class Empty:  # here, so that it travels by value: its module would bring everything that the daemon has
        def pid(self) -> int:
            return os.getpid()

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as home:
            daemon = ray_actor.connect_or_start(f"home: {home}\nhttp: {{port: 0}}\n", by_hand=True)
            empty = ray.remote(num_cpus=0)(Empty).remote()
            ray.get(empty.pid.remote())  # what is loaded with the first answer counts
            yield ray.get(daemon.query.remote("status"))["pid"], ray.get(empty.pid.remote())
            ray.get(daemon.shut_down.remote())
            ray.kill(daemon, no_restart=True)
    finally:
        ray.shutdown()


def waited(*pids: int) -> list[tuple[float, float]]:
    """MB of memory (resident) and percent of a core of some processes over one minute, after 10 s of rest."""
    time.sleep(10)
    before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
    time.sleep(IDLE_SECONDS)
    seconds = time.monotonic() - began
    return [
        (psutil.Process(pid).memory_info().rss / 1e6, (cpu_seconds(pid) - spent) / seconds * 100)
        for pid, spent in zip(pids, before, strict=True)
    ]


def cpu_seconds(pid: int) -> float:
    """What the threads of a process have run so far; the scheduler counts it in nanoseconds, `times` in hundredths."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
