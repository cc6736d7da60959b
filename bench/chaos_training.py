# SPDX-License-Identifier: Apache-2.0
"""Real verl runs with everything around them going wrong: training must end with the losses of the unwatched run, bit for bit.

`python -m bench.chaos_training` is the long form (`make chaos`), tests/chaos the short one. V0 replays recorded rollouts and is
reproducible bit by bit, so one differing bit is Sentinel's. Inside the run's processes `chaos_plugin` spoils replies and breaks
msprobe; from outside the daemon is killed, stopped and restarted, Ray's head frozen, the disk filled, the baseline overwritten,
and garbage sent to the daemon.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from sentinel.demo.assets import Assets, AssetSettings, load
from sentinel.demo.cluster import Cluster, private_cluster
from sentinel.demo.runs import Run, RunSettings, launch
from sentinel.storage.bundle import open_bundle

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "h200"
BUNDLE = "tiny-grpo-fp32.sentinel"
PLUGINS = "sentinel.demo.kit.plugin,bench.chaos_plugin,sentinel.trainer.plugin"
NOT_TRAINING = ("timing", "perf/", "actor/perf", "critic/perf")
WAIT_SECONDS = 0.05
"""The stated bound of one step: sentinel.yaml's `trainer.wait_seconds`."""
DISK_BYTES = 6 << 20
FROZEN_SECONDS = 0.5
EVERY = 3
"""Steps from one thing done from outside to the next: a killed daemon is away for some, and replies can be spoilt only while it answers."""


@dataclass(kw_only=True)
class Chaos:
    """What is done to one run from outside, a random thing at each step."""

    cluster: Cluster
    folder: Path
    home: Path
    baseline: Path
    rng: random.Random
    done: Counter
    last: int = 0
    rounds: int = 0
    senders: list[subprocess.Popen] | None = None

    def at(self, phase: str, step: int) -> None:
        """Called whenever the run has done another step."""
        if phase != "training" or step < max(3, self.last + EVERY):
            return
        self.last = step
        actions = (
            self.kill, self.stop, self.stop_long, self.kill_twice, self.freeze_head, self.fill_disk, self.spoil_baseline,
            self.knock,
        )  # fmt: skip
        self.rounds += 1
        action = actions[self.rounds % len(actions)] if self.rounds <= len(actions) else self.rng.choice(actions)
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            action()

    # ------------------------------------------------------------------ what is done

    def kill(self) -> None:
        self._daemon().kill()
        self.done["daemon killed"] += 1

    def kill_twice(self) -> None:
        """Again as soon as Ray has started it again."""
        self.kill()

        def again() -> None:
            with contextlib.suppress(psutil.Error):
                self._daemon().kill()
                self.done["daemon killed while it starts"] += 1

        threading.Timer(1.5, again).start()

    def stop(self, seconds: float = 0.3) -> None:
        self._freeze(self._daemon(), seconds)
        self.done[f"daemon stopped for {seconds:g} s"] += 1

    def stop_long(self) -> None:
        self.stop(4.0)

    def freeze_head(self) -> None:
        """The process that every lookup of an actor goes to."""
        (head,) = self._processes("gcs_server")
        self._freeze(head, FROZEN_SECONDS)
        self.done[f"Ray's head frozen for {FROZEN_SECONDS:g} s"] += 1

    def fill_disk(self) -> None:
        """Fill the daemon's home, and give the room back two seconds later."""
        filler = self.home / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(b"\0" * 65536)
        threading.Timer(2.0, lambda: filler.unlink(missing_ok=True)).start()
        self.done["disk full"] += 1

    def spoil_baseline(self) -> None:
        """Overwrite a stretch of the bundle."""
        with self.baseline.open("r+b") as file:
            file.seek(self.rng.randrange(self.baseline.stat().st_size))
            file.write(self.rng.randbytes(5000))
        self.done["baseline corrupted"] += 1

    def knock(self) -> None:
        """Bytes that are no request, at every port on which the daemon listens."""
        for connection in self._daemon().net_connections():
            if connection.status == psutil.CONN_LISTEN:
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", connection.laddr.port), 1) as to,
                ):
                    to.sendall(
                        self.rng.choice(
                            (b"\0" * 3000, b"GET " + b"a" * 70000, b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n")
                        )
                    )
        self.done["garbage at the daemon's ports"] += 1

    # ------------------------------------------------------------------ by what

    def _processes(self, name: str) -> list[psutil.Process]:
        """Processes of this cluster, never of another one on the machine."""
        found = []
        for process in psutil.Process(self.cluster.holder.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any(name in part for part in process.cmdline()[:1]):
                    found.append(process)
        return found

    def _daemon(self) -> psutil.Process:
        found = self._processes("ray::WatchdogActor")
        if not found:
            raise psutil.NoSuchProcess(0)
        return found[0]

    def _freeze(self, process: psutil.Process, seconds: float) -> None:
        process.send_signal(signal.SIGSTOP)

        def go_on() -> None:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)

        threading.Timer(seconds, go_on).start()


@contextlib.contextmanager
def small_disk(folder: Path):
    """A file system of a few megabytes, where this process may mount one; a plain folder where not."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = shutil.which("mount") and not subprocess.run(command, capture_output=True, check=False).returncode
    try:
        yield bool(mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def send_garbage(address: str, folder: str) -> None:
    """Call the daemon of a cluster with what no trainer sends, until standard input ends; `sender` of a run."""
    import ray

    ray.init(address=address, namespace="sentinel", logging_level="ERROR", log_to_driver=False)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    rng, sent = random.Random(1), 0
    while True:
        record = {
            "t": "step",
            "step": rng.choice([-1, 10**12, "5", None, 4]),
            "at": 0,
            "values": {"a": "nan"},
            "unreadable": [],
        }
        messages = (
            None, 5, [], {}, {"v": 99}, {"v": 1, "run": "chaos", "session": "forged", "records": [record]},
            {"v": 1, "run": "chaos", "session": "forged", "records": [record] * 200},
            {"v": 1, "run": "../../x", "session": 3, "records": "no"}, {"v": 1, "run": "y" * 5000, "session": "s", "records": [{}]},
        )  # fmt: skip
        try:
            ray.get(ray.get_actor("watchdog").report.remote(rng.choice(messages)), timeout=5)
            sent += 1
        except ray.exceptions.RayTaskError:
            sent += 1
        except Exception:
            time.sleep(0.4)  # nobody there to be sent anything
        (Path(folder) / "garbage.count").write_text(str(sent), encoding="utf-8")
        time.sleep(0.4)


def training(run: Run) -> dict[int, dict[str, float | None]]:
    """Step -> what training computed, exactly as verl logged it."""
    return {
        step: {key: value for key, value in metrics.items() if not key.startswith(NOT_TRAINING)}
        for step, metrics in run.metrics().items()
    }


@dataclass(kw_only=True)
class Place:
    """One cluster, and the unwatched run that the others must equal."""

    root: Path
    cluster: Cluster
    assets: Assets
    steps: int
    seconds: float

    @property
    def rollouts(self) -> Path:
        folder = self.root / "rollouts"
        if not folder.exists():
            open_bundle(EXAMPLES / BUNDLE).extract_rollouts(folder)
        return next(folder.rglob("GBS*")).parent.parent

    def plain(self) -> dict[int, dict[str, float | None]]:
        """What the unwatched run trains."""
        settings = RunSettings(name="plain", steps=self.steps, rollouts=self.rollouts)
        return training(launch(settings, self.root / "plain", self.assets, self.cluster, deadline_seconds=self.seconds))

    def disturbed(self, seed: int, expected: dict[int, dict[str, float | None]]) -> dict:
        """A watched run with chaos, and how it ended."""
        folder = self.root / f"run-{seed}"
        with small_disk(folder / "disk") as mounted:
            return self._disturbed(seed, folder, expected, mounted=mounted)

    def _disturbed(self, seed: int, folder: Path, expected, *, mounted: bool) -> dict:
        disk, noted = folder / "disk", folder / "noted"
        noted.mkdir()
        baseline = folder / BUNDLE
        shutil.copy(EXAMPLES / BUNDLE, baseline)
        config = folder / "sentinel.yaml"
        config.write_text(
            json.dumps(
                {
                    "home": str(disk / "home"), "baseline": str(baseline), "http": {"port": 0},
                    # So small that the disk runs full inside msprobe as well, not only before a dump.
                    "trainer": {"min_free_bytes": 1, "wait_seconds": WAIT_SECONDS},
                }
            ),
            encoding="utf-8",
        )  # fmt: skip
        settings = RunSettings(
            name=f"chaos-{seed}", steps=self.steps, rollouts=self.rollouts,
            environment={
                "VERL_USE_EXTERNAL_MODULES": PLUGINS, "CHAOS_FOLDER": str(noted), "SENTINEL_RUN": f"chaos-{seed}",
                "SENTINEL_CONFIG": str(config), "PYTHONPATH": str(ROOT),
            },
        )  # fmt: skip
        chaos = Chaos(
            cluster=self.cluster, folder=folder, home=disk, baseline=baseline, rng=random.Random(seed), done=Counter()
        )
        sender = subprocess.Popen(
            [sys.executable, "-m", "bench.chaos_training", "--send-to", self.cluster.address, "--work", str(noted)],
            env=self.cluster.environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
        )  # fmt: skip
        failure, run = "", None
        try:
            run = launch(
                settings, folder / "run", self.assets, self.cluster, progress=chaos.at, deadline_seconds=self.seconds
            )
        except Exception as error:
            failure = str(error)
        finally:
            sender.kill()
            sender.communicate()  # closes its pipe as well
        return self._result(chaos, noted, run, failure, expected, mounted=mounted)

    def _result(self, chaos: Chaos, noted: Path, run: Run | None, failure: str, expected, *, mounted: bool) -> dict:
        inside = Counter(
            json.loads(line)["kind"]
            for path in noted.glob("injected-*.jsonl")
            for line in path.read_text().splitlines()
        )
        count = noted / "garbage.count"
        garbage = int(count.read_text() or 0) if count.exists() else 0
        injected = dict(sorted((inside + chaos.done).items()))
        times = json.loads((noted / "times.json").read_text()) if (noted / "times.json").exists() else []
        got = training(run) if run else {}
        differing = sorted(
            f"{step} {key}" for step, values in expected.items() for key, value in values.items()
            if got.get(step, {}).get(key, "absent") != value
        )  # fmt: skip
        waits = [seconds for name, seconds in times if name == "wait"]
        return {
            "seed": chaos.rng and run and run.name, "failure": failure, "steps": len(got), "injected": injected,
            "injections": sum(injected.values()), "garbage": garbage, "differing": differing[:20], "differences": len(differing),
            "worst_wait": max(waits, default=None), "waits": len(waits), "small_disk": mounted,
            "over_bound": sum(seconds > WAIT_SECONDS for seconds in waits),
            "worst_call": {name: max(s for n, s in times if n == name) for name in {n for n, _ in times}},
        }  # fmt: skip


@contextlib.contextmanager
def place(root: Path, steps: int, seconds: float):
    """Everything that chaos runs need."""
    assets = load(EXAMPLES / "assets", AssetSettings())
    assert assets is not None
    with private_cluster({"PYTHONPATH": str(ROOT)}) as cluster:
        yield Place(root=root, cluster=cluster, assets=assets, steps=steps, seconds=seconds)


def main(says: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos_training", description=__doc__)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=900.0, help="limit of one run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="add the results to this file")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--send-to", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.send_to:
        send_garbage(args.send_to, str(args.work))
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="sentinel-chaos-") as folder,
        place(Path(folder), args.steps, args.seconds) as at,
    ):
        expected = at.plain()
        says(f"unwatched: {len(expected)} steps")
        for seed in range(args.seed, args.seed + args.runs):
            result = at.disturbed(seed, expected)
            results.append(result)
            says(json.dumps(result))
    if args.json:
        old = json.loads(args.json.read_text()) if args.json.exists() else []
        args.json.write_text(json.dumps([*old, *results], indent=1) + "\n", encoding="utf-8")
    injections = sum(r["injections"] for r in results)
    failures = sum(bool(r["failure"]) for r in results)
    differing = sum(r["differences"] for r in results)
    worst = max((r["worst_wait"] or 0 for r in results), default=0)
    says(
        f"{injections} injections, {failures} training failures, {differing} differing values, worst wait {worst * 1e3:.0f} ms"
    )
    return 1 if failures or differing else 0


if __name__ == "__main__":
    sys.exit(main())
