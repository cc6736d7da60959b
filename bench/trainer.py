# SPDX-License-Identifier: Apache-2.0
"""What one step of 100 metrics costs the trainer's thread and its process, beside what people log with today.

All loggers take turns on the same steps of one process, so that whatever else the machine does hits them alike.
"""

from __future__ import annotations

import logging
import os
import random
import resource
import statistics
import tempfile
import time
import types
from pathlib import Path

METRICS = 100
STEPS = 400
WARM_UP = 30
PAUSE_SECONDS = 0.004


def run() -> list[dict]:
    """Return one row a number."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as folder:
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        try:
            loggers = [Sentinel(folder), PlainActor(), *peers(folder)]
            rows = timed(loggers) + cpu_rows(loggers[0])
        finally:
            ray.shutdown()
    return rows


def metrics(step: int) -> dict[str, float]:
    numbers = random.Random(step)
    return {f"group_{i % 7}/metric_{i}": numbers.random() for i in range(METRICS)}


def timed(loggers: list) -> list[dict]:
    costs: dict[str, list[float]] = {logger.name: [] for logger in loggers}
    for step in range(STEPS + WARM_UP):
        data = metrics(step)
        for logger in loggers:
            began = time.perf_counter()
            logger.log(data, step)
            spent = time.perf_counter() - began - logger.waited()
            if step >= WARM_UP:
                costs[logger.name].append(spent * 1e6)
            time.sleep(PAUSE_SECONDS)
    for logger in loggers:
        logger.close()
    rows = []
    own = quantiles(costs["Sentinel"])
    for name, values in costs.items():
        p50, p99 = quantiles(values)
        limits = (10, 50) if name == "Sentinel" else (None, None)
        for label, value, limit, base in (("p50", p50, limits[0], own[0]), ("p99", p99, limits[1], own[1])):
            ratio = "" if name == "Sentinel" else f"{value / base:.0f} times Sentinel's"
            rows.append(
                {
                    "name": f"{name}: {label} of a step of {METRICS} metrics on the trainer's thread",
                    "value": value,
                    "unit": "us",
                    "limit": limit,
                    "peer": ratio,
                }
            )
    return rows


def quantiles(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return statistics.median(ordered), ordered[int(len(ordered) * 0.99)]


def cpu_rows(_: object) -> list[dict]:
    """Process CPU a step, the background thread included: Sentinel alone, at twenty steps a second.

    Beside it what Ray alone takes for one call of one byte, with its answer and without: no report through an actor
    costs less.
    """
    with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as folder:
        logger = Sentinel(folder)
        for step in range(WARM_UP):
            logger.log(metrics(step), step)
            time.sleep(0.02)
        prepared = [metrics(step) for step in range(200)]
        idle = cpu_of(lambda _: time.sleep(0.05), 100)
        busy = cpu_of(lambda step: log_and_pause(logger, prepared[step], WARM_UP + step), 100)
        logger.close()
    answered, thrown = ray_floor()
    rows = {
        "process CPU of a step, background thread included": (busy, 1.0),
        "of that: one actor call of one byte, with its answer": (answered, None),
        "of that: one actor call of one byte, its answer left": (thrown, None),
    }
    return [
        {"name": name, "value": (spent - idle) * 1e3, "unit": "ms", "limit": limit}
        for name, (spent, limit) in rows.items()
    ]


def ray_floor() -> tuple[float, float]:
    """CPU seconds of this process for the smallest actor call, with and without waiting for its answer."""
    import ray

    class Sink:
        async def take(self, data):
            return data

    actor = ray.remote(Sink).options(num_cpus=0).remote()
    ray.get(actor.take.remote(b"x"))

    def answered(_) -> None:
        ray.get(actor.take.remote(b"x"))
        time.sleep(0.05)

    def thrown(_) -> None:
        actor.take.remote(b"x")
        time.sleep(0.05)

    return cpu_of(answered, 100), cpu_of(thrown, 100)


def log_and_pause(logger, data, step: int) -> None:
    logger.log(data, step)
    time.sleep(0.05)


def cpu_of(action, steps: int) -> float:
    """CPU seconds of this process a step."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    for step in range(steps):
        action(step)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / steps


class Sentinel:
    """The real trainer side in front of a real daemon actor: report and boundary of every step."""

    name = "Sentinel"

    def __init__(self, folder: str) -> None:
        from sentinel.trainer.link import DaemonLink
        from sentinel.trainer.session import Outlets, Session

        config = f"home: {folder}/home\nhttp: {{port: 0}}\n"
        link = DaemonLink("bench", os.urandom(4).hex(), config)
        self.session = Session("bench", Outlets(daemon=link), f"{folder}/dumps")
        self.session.started({"trainer": "bench"}, None)
        self.trainer = types.SimpleNamespace()
        self.session.step_logged(0, {"a": 1.0})
        deadline = time.monotonic() + 60
        while not self.session._daemon.prompt and time.monotonic() < deadline:
            time.sleep(0.1)
        if not self.session._daemon.prompt:
            raise RuntimeError(f"no daemon: {self.session._daemon.last_error}")
        self._waited = 0.0

    def log(self, data, step) -> None:
        self._waited = self.session._daemon.wait_seconds
        self.session.step_logged(step + 1, data)
        self.session.boundary(self.trainer, step + 2)

    def waited(self) -> float:
        """The bounded wait of this step, which is counted apart."""
        return self.session._daemon.wait_seconds - self._waited

    def close(self) -> None:
        self.session.close()


class Peer:
    def waited(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


class PlainActor(Peer):
    name = "plain actor.remote(dict)"

    def __init__(self) -> None:
        import ray

        class Sink:
            def take(self, data, step):
                pass

        self.actor = ray.remote(Sink).options(num_cpus=0).remote()

    def log(self, data, step) -> None:
        self.actor.take.remote(data, step)


class TensorBoard(Peer):
    name = "TensorBoard add_scalar"

    def __init__(self, folder: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder)

    def log(self, data, step) -> None:
        for key, value in data.items():
            self.writer.add_scalar(key, value, step)


class Wandb(Peer):
    name = "W&B offline"

    def __init__(self, folder: str) -> None:
        import wandb

        Path(folder).mkdir(exist_ok=True)
        self.run = wandb.init(mode="offline", dir=folder, project="bench", settings=wandb.Settings(silent=True))

    def log(self, data, step) -> None:
        self.run.log(data, step=step)

    def close(self) -> None:
        self.run.finish()


class SwanLab(Peer):
    name = "SwanLab offline"

    def __init__(self, folder: str) -> None:
        import swanlab

        self.lab = swanlab
        swanlab.init(project="bench", mode="offline", logdir=folder)

    def log(self, data, step) -> None:
        self.lab.log(data, step=step)

    def close(self) -> None:
        self.lab.finish()


def peers(folder: str) -> list:
    made = []
    for peer, place in ((TensorBoard, "tb"), (Wandb, "wandb"), (SwanLab, "swanlab")):
        try:
            made.append(peer(f"{folder}/{place}"))
        except Exception as error:
            print(f"peer {peer.name} cannot run here: {type(error).__name__}: {error}")
    return made
