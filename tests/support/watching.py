# SPDX-License-Identifier: Apache-2.0
"""A small watched world: a baseline on disk, metrics of healthy and faulty steps, and trainers that report them."""

import json
import random
from pathlib import Path

from sentinel.core.report.render import receipt_to_plain
from sentinel.daemon.metric_catalogue import load_catalogue
from sentinel.daemon.planning import Planner
from sentinel.daemon.watchdog import Watchdog
from sentinel.records import CaptureReceipt
from sentinel.settings import parse
from tests.support.baselines import receipt_record, write_dump

CATALOGUE = load_catalogue()
LAST_STEP = 30
GOLDEN_STEPS = range(7, 13)


def metrics(step, **changed):
    """The metrics of a healthy step, the same for every run of the recipe; `__` in a name stands for `/`."""
    drawn = random.Random(step)
    values = {
        "training/global_step": float(step),
        "actor/grad_norm": 1 + 0.1 * drawn.random(),
        "actor/pg_loss": 0.01 * drawn.random(),
        "actor/entropy": 0.5 + 0.01 * drawn.random(),
        "actor/kl_loss": 0.001 * drawn.random(),
        "actor/ppo_kl": 0.0001 * drawn.random(),
        "critic/score/mean": 0.3 + 0.01 * drawn.random(),
        "response_length/mean": 200 + 5 * drawn.random(),
        "prompt_length/mean": 100.0,
        "training/rollout_probs_diff_mean": 0.001 + 0.0001 * drawn.random(),
    }
    return values | {name.replace("__", "/"): value for name, value in changed.items()}


def write_baseline(path: Path) -> Path:
    """A recording of a healthy run, with golden dumps of actor_update at GOLDEN_STEPS."""
    records = [{"t": "start", "at": 1.0, "facts": {"experiment": "golden"}, "config": None}]
    for step in range(1, LAST_STEP + 1):
        records.append({"t": "step", "step": step, "at": float(step), "values": metrics(step), "unreadable": []})
        if step in GOLDEN_STEPS:
            write_dump(Path(f"{path}.dumps"), step, "actor_update")
            records.append(receipt_record(step, "actor_update"))
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


class Clock:
    """Time that goes by when it is told to."""

    def __init__(self, now=1_000_000.0):
        self.now = now

    def __call__(self):
        return self.now


class World:
    """A folder with a baseline, and daemons that live in it one after the other."""

    def __init__(self, folder: Path, **settings):
        self.folder = folder
        self.clock = Clock()
        self.alive = {}
        self.baseline = write_baseline(folder / "golden.jsonl")
        self.config_path = str(folder / "sentinel.yaml")
        self.config = json.dumps({"home": "home", "baseline": str(self.baseline), "msprobe_tables": False, **settings})
        self.watchdog = None

    def start(self) -> Watchdog:
        """A daemon takes up what its predecessor left."""
        settings = parse(self.config, self.config_path)
        self.watchdog = Watchdog(
            settings, Planner(settings, CATALOGUE), clock=self.clock, alive=lambda host, pid: self.alive.get(pid)
        )
        return self.watchdog

    def kill(self):
        """The daemon dies at once: nothing is written, its locks are gone."""
        for chores in (self.watchdog.deeds._chores, self.watchdog.deeds._messages):
            chores._wanted.clear()
            chores._pool.shutdown(wait=True, cancel_futures=True)
        for watch in self.watchdog._watches.values():
            watch.keeper.close()
        self.watchdog = None

    def stop(self):
        """The daemon ends as it should."""
        if self.watchdog is not None:
            self.watchdog.close()
        self.watchdog = None

    def settle(self):
        """Wait until triage, reports and alerts are done."""
        assert self.watchdog.deeds.wait(10.0)

    def trainer(self, run="r", session="session-1", **facts):
        """A trainer that has introduced itself."""
        made = Trainer(self, run, session, {"trainer": "v1", "host": "node", "pid": 1, **facts})
        made.introduce()
        return made


class Trainer:
    """The trainer's side, as far as the daemon can tell."""

    def __init__(self, world, run, session, facts):
        self.world, self.run, self.session, self.facts = world, run, session, facts
        self.reply = {}
        self.config = {"path": world.config_path, "text": world.config}

    def send(self, *records):
        self.reply = self.world.watchdog.report(
            {"v": 1, "run": self.run, "session": self.session, "records": list(records)}
        )
        return self.reply

    def introduce(self):
        return self.send({"t": "start", "at": self.world.clock(), "facts": self.facts, "config": self.config})

    def step_record(self, step, **changed):
        return {"t": "step", "step": step, "at": 1000.0 * len(self.session) + step, "values": metrics(step, **changed)}

    def step(self, step, **changed):
        self.world.clock.now += 10
        return self.send(self.step_record(step, **changed))

    def steps(self, first, last):
        for step in range(first, last + 1):
            self.step(step)
        return self.reply

    def obey(self, norm=1.0):
        """Dump what the last reply orders, and send the receipts."""
        for order in self.reply["orders"]:
            root = Path(self.reply["settings"]["dump_root"])
            paths = []
            for stage in order["stages"]:
                write_dump(root, order["first_step"], stage, norm=norm)
                paths.append(str(root / f"step_{order['first_step']}" / stage))
            receipt = CaptureReceipt(
                first_step=order["first_step"],
                last_step=order["first_step"],
                stages=tuple(order["stages"]),
                ranks=(0,),
                paths=tuple(paths),
                bytes=1000,
                seconds=0.1,
                outcome="complete",
            )
            self.send({"t": "receipt", "capture": order["id"], "receipt": receipt_to_plain(receipt), "at": 1.0})

    def end(self, *, finished=True):
        return self.send({"t": "end", "at": self.world.clock(), "finished": finished})


def shown(world, run="r"):
    """A run as it stands."""
    return next(snapshot for snapshot in world.watchdog.runs() if snapshot.run == run)


def codes(world, run="r"):
    """Codes of what is said about a run."""
    return {warning.partition(":")[0] for warning in shown(world, run).warnings}


def told(snapshot):
    """What must be the same, however often the daemon died."""
    return (
        snapshot.last_step,
        snapshot.steps_seen,
        snapshot.state,
        [(i.id, i.kind, i.state, i.opened_at_step, i.closed_at_step) for i in snapshot.incidents],
        [(i.triage.verdict if i.triage else None, len(i.findings)) for i in snapshot.incidents],
        [(c.id, c.state, c.receipt.outcome if c.receipt else None) for c in snapshot.captures],
    )
