"""kill -9 of the daemon's process at random moments, under load: nothing acknowledged is lost, nothing is there twice."""

import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.baselines import write_dump
from tests.support.watching import metrics, write_baseline

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

PROCESS = Path(__file__).parents[1] / "support" / "house_process.py"
ROOT = Path(__file__).parents[2]
STEPS = 120
KILLS = 12
FAULTY = (8, 40, 75)


class Daemon:
    """The process, started again whenever it is gone."""

    def __init__(self, file):
        self.file = file
        self.starts = 0
        self.answered = 0
        self.process = None
        self.start()

    def start(self):
        self.answered = 0
        self.process = subprocess.Popen(
            [sys.executable, str(PROCESS), str(self.file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.starts += 1  # last: the killer looks at it before it looks at the others
        self.process.stdout.readline()

    def ask(self, what, given):
        """Ask until an answer comes, as the trainer's side does."""
        while True:
            try:
                self.process.stdin.write(json.dumps([what, given]) + "\n")
                self.process.stdin.flush()
                answer = json.loads(self.process.stdout.readline())
            except (OSError, ValueError):
                self.close()
                self.start()
            else:
                self.answered += 1
                return answer

    def kill(self):
        self.process.kill()

    def close(self):
        for stream in (self.process.stdin, self.process.stdout):
            try:
                stream.close()
            except OSError:
                continue
        self.process.wait(30)


def receipt(order, root, step):
    """What the trainer's side says after a dump."""
    stage = order["stages"][0]
    write_dump(root, step, stage)
    given = {"first_step": step, "last_step": step, "stages": [stage], "ranks": [0], "outcome": "complete"}
    return {
        "t": "receipt",
        "capture": order["id"],
        "at": 1.0,
        "receipt": {**given, "paths": [f"{root}/step_{step}/{stage}"]},
    }


def course(folder, daemon):
    """One run with three faults whose orders are obeyed; return what the daemon knows at the end."""
    config = {"path": str(daemon.file), "text": daemon.file.read_text()}

    def send(*records):
        return daemon.ask("report", {"v": 1, "run": "r", "session": "s", "records": list(records)})

    send({"t": "start", "at": 1.0, "facts": {"trainer": "v1"}, "config": config})
    obeyed = set()
    for step in range(1, STEPS + 1):
        values = metrics(step, **({"actor__grad_norm": math.nan} if step in FAULTY else {}))
        orders = send({"t": "step", "step": step, "at": time.time(), "values": values})["orders"]
        for order in orders:
            if order["id"] not in obeyed:
                obeyed.add(order["id"])
                send(receipt(order, folder / "dumps", step + 1))
    daemon.ask("settle", {})
    incidents = [daemon.ask("incident", {"id": row["id"]}) for row in daemon.ask("incidents", {})["incidents"]]
    status = daemon.ask("status", {})["runs"][0]
    captures = daemon.ask("captures", {})["captures"]
    return {
        "steps": (status["last_step"], status["steps_seen"], status["state"]),
        "incidents": [
            (i["id"], i["kind"], i["opened_at_step"], i["closed_at_step"], len(i["findings"])) for i in incidents
        ],
        "triage": [i["triage"] and i["triage"]["verdict"] for i in incidents],
        "captures": [(c["id"], c["state"], c["receipt"]["outcome"]) for c in captures],
        "files": sorted(path.parent.name for path in (folder / "home" / "incidents").glob("*/report.html")),
    }


def place(folder):
    folder.mkdir()
    baseline = write_baseline(folder / "golden.jsonl")
    file = folder / "sentinel.yaml"
    capture = {"cool_down_steps": 1}
    file.write_text(json.dumps({"home": "home", "baseline": str(baseline), "engine": {"capture": capture}}))
    return file


def test_killed_at_random_moments_it_ends_as_if_it_had_not_been(tmp_path):
    """Steps, incidents, captures, triage and report files are the same as of a daemon that lived on."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    drawn = random.Random(seed)
    calm = Daemon(place(tmp_path / "calm"))
    expected = course(tmp_path / "calm", calm)
    calm.close()
    daemon = Daemon(place(tmp_path / "killed"))
    stop = threading.Event()

    def killer():
        # After so many answers of a life, some of them none at all: also while it takes up its journal.
        life, answers = 1, drawn.randint(0, 18)
        while life <= KILLS and not stop.wait(0.001):
            if daemon.starts >= life and daemon.answered >= answers:
                time.sleep(drawn.uniform(0.0, 0.01))
                daemon.kill()
                life, answers = daemon.starts + 1, drawn.randint(0, 18)

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        found = course(tmp_path / "killed", daemon)
    finally:
        stop.set()
        thread.join()
        daemon.close()

    assert found == expected
    assert [row[2] for row in expected["incidents"]] == list(FAULTY)
    assert daemon.starts > KILLS // 2
