# SPDX-License-Identifier: Apache-2.0
"""One run of stock `verl.trainer.main_ppo` on this machine's CPU: its settings, its process, what it wrote.

For the demo, and for every test or benchmark that needs a real verl run::

    with private_cluster() as cluster:
        run = launch(RunSettings(name="a", steps=4), folder, assets, cluster)
        run.metrics()[3]["actor/grad_norm"]

Without a cluster the run starts a private one of its own, as a plain verl command line would.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from sentinel.demo.assets import Assets
from sentinel.demo.cluster import Cluster, clean_environment
from sentinel.demo.overrides import METRICS_FILE, ROLLOUT_DATA, RunSettings, overrides, run_environment
from sentinel.errors import SentinelError

POLL_SECONDS = 0.25

__all__ = ["Run", "RunError", "RunSettings", "installed", "launch"]


class RunError(SentinelError):
    """A verl run ended with an error, or did not end in time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A finished run and its files."""

    name: str
    folder: Path
    seconds: float

    @property
    def log(self) -> Path:
        """Everything that the run printed."""
        return self.folder / "verl.log"

    @property
    def metrics_file(self) -> Path:
        """What verl's file logger wrote."""
        return self.folder / METRICS_FILE

    @property
    def rollout_data(self) -> Path:
        """The folder of verl's rollout data, one file a step."""
        return self.folder / ROLLOUT_DATA

    def metrics(self) -> dict[int, dict[str, float | None]]:
        """Step -> metrics; None where verl's file logger wrote a value that is not finite."""
        lines = self.metrics_file.read_text(encoding="utf-8").splitlines()
        return {record["step"]: record["data"] for record in map(json.loads, lines)}


Progress = Callable[[str, int], None]
"""Called with a phase in words and the number of steps done, whenever one of them changed."""


def launch(
    settings: RunSettings,
    folder: Path,
    assets: Assets,
    cluster: Cluster | None = None,
    *,
    progress: Progress | None = None,
    deadline_seconds: float = 300.0,
) -> Run:
    """Run verl to its end in `folder`.

    Raises:
        RunError: verl ended with an error or ran longer than the deadline; the message quotes its last error line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    run = Run(name=settings.name, folder=folder, seconds=0.0)
    environment = (cluster.environment() if cluster else clean_environment(settings.device)) | run_environment(
        settings, folder
    )
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides(settings, folder, assets, cluster)]
    (folder / "command.txt").write_text("\n".join(command) + "\n", encoding="utf-8")
    with run.log.open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder
        )
        try:
            _follow(process, run, began + deadline_seconds, progress)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        raise RunError(
            f"the verl run {settings.name!r} ended with code {process.returncode}: {_reason(run.log)}; see {run.log}"
        )
    return Run(name=settings.name, folder=folder, seconds=time.monotonic() - began)


def installed() -> str | None:
    """Why no verl run can be started here; None if one can."""
    for module in ("verl", "torch", "transformers", "msprobe", "ray", "wrapt"):
        if util.find_spec(module) is None:
            return f"{module} is not installed here: pip install 'verl-sentinel[probe,verl]' (torch first)"
    return None


def _follow(process: subprocess.Popen[bytes], run: Run, until: float, progress: Progress | None) -> None:
    """Wait for the end of the run, and say what it is doing."""
    said: tuple[str, int] | None = None
    while True:
        ended = process.poll() is not None
        now = _state(run, ended=ended)
        if progress is not None and now != said:
            progress(*now)
            said = now
        if ended:
            return
        if time.monotonic() > until:
            raise RunError(
                f"the verl run {run.name!r} was still going after its deadline, at step {now[1]}; see {run.log}"
            )
        time.sleep(POLL_SECONDS)


def _state(run: Run, *, ended: bool) -> tuple[str, int]:
    """Phase and steps done, from the files that the run writes."""
    steps = run.metrics_file.read_bytes().count(b"\n") if run.metrics_file.exists() else 0
    if ended:
        return "finished", steps
    if steps:
        return "training", steps
    text = run.log.read_bytes() if run.log.exists() else b""
    if b"Training Progress" in text:
        return "first step", 0
    if b"TaskRunner" in text:
        return "loading the model", 0
    return "starting verl", 0


def _reason(log: Path) -> str:
    """The last line of the log that names an error, without Ray's prefix."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    named = [line.strip() for line in lines if "Error" in line and "Traceback" not in line and "WARN" not in line]
    return (named or lines or ["no output"])[-1][-300:]
