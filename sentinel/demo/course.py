# SPDX-License-Identifier: Apache-2.0
"""The course of a demo: model, reference run and twin, baseline bundle, watched runs, and what Sentinel said of each.

Everything lies below one folder. Sentinel is attached as a user would attach it: a run named in SENTINEL_RUN, settings
in SENTINEL_CONFIG, its own command line and its HTTP endpoint; nothing of it is imported here but its errors.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from sentinel.demo import verbs
from sentinel.demo.assets import Assets, AssetSettings, load
from sentinel.demo.cluster import Cluster, clean_environment, private_cluster
from sentinel.demo.kit.faults import STAGES
from sentinel.demo.kit.rollout_faults import VARIABLE as ROLLOUT_FAULT
from sentinel.demo.places import DemoError, Places
from sentinel.demo.runs import Run, RunSettings, installed, launch
from sentinel.demo.scenarios import STEPS, Outcome, Scenario, failed, judge
from sentinel.errors import SentinelError

SETTLE_SECONDS = 40.0
"""How long an incident's evidence is waited for after its run has ended."""


class Audience(Protocol):
    """Who is told what happens."""

    def phase(self, name: str, doing: str, done: int, of: int) -> None:
        """Say that run or part `name` is doing something; `done` of `of` steps are behind it."""

    def command(self, words: Sequence[str]) -> None:
        """Say that a command of Sentinel is called."""

    def ended(self, name: str, seconds: float, remark: str) -> None:
        """Say that a part is over."""

    def outcome(self, outcome: Outcome) -> None:
        """Say what came of a scenario."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """A demo that came to its end."""

    outcomes: tuple[Outcome, ...]
    places: Places
    endpoint: str | None
    seconds: float

    @property
    def ok(self) -> bool:
        """Found equals planted everywhere, and healthy runs were silent."""
        return bool(self.outcomes) and all(outcome.ok for outcome in self.outcomes)


def check_installed() -> None:
    """Refuse a machine that cannot run verl.

    Raises:
        DemoError: what is missing, in one line.
    """
    problem = installed()
    if problem:
        raise DemoError(f"no verl run is possible here: {problem}")


def prepare_assets(places: Places, audience: Audience) -> Assets:
    """Make model and prompts in a process of their own, so that torch's memory is given back."""
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "sentinel.demo.assets", str(places.assets)],
        env=clean_environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in process.stdout:
                words = line.split()
                if len(words) == 4 and words[0] == "step":
                    audience.phase("model", f"learning to answer (loss {words[3]})", int(words[1]), int(words[2]))
            said = process.stderr.read().strip().splitlines()
        except BaseException:
            # Without this an interrupt would wait for the end of the lessons.
            process.kill()
            raise
    if process.returncode != 0:
        raise DemoError(f"the model could not be made: {(said or ['no message'])[-1]}")
    assets = load(places.assets, AssetSettings())
    if assets is None:
        raise DemoError(f"the model could not be made in {places.assets}")
    audience.ended("model", time.monotonic() - began, f"loss {assets.loss:.2f} nats a token")
    return assets


@dataclass(kw_only=True)
class Stage:
    """A cluster, the assets, and somebody who watches."""

    places: Places
    assets: Assets
    cluster: Cluster
    audience: Audience
    endpoint: str | None = None

    def run(self, settings: RunSettings) -> Run:
        """Run verl and say how it goes."""

        def progress(doing: str, done: int) -> None:
            self.audience.phase(settings.name, doing, done, settings.steps)

        return launch(settings, self.places.runs / settings.name, self.assets, self.cluster, progress=progress)

    def record(self) -> None:
        """The reference run and its twin, and the bundle of both."""
        places = self.places
        places.recordings.mkdir(parents=True, exist_ok=True)
        orders = places.recordings / "orders.json"
        orders.write_text(json.dumps({"orders": golden_orders()}), encoding="utf-8")
        reference = RunSettings(
            name="reference",
            steps=STEPS,
            rollouts=places.rollouts,
            # No SENTINEL_RUN: a run that is only recorded needs no daemon.
            environment={
                "SENTINEL_RECORD": str(places.recordings / "reference.jsonl"),
                "SENTINEL_ORDERS": str(orders),
            },
        )
        # Another attention kernel and another split: how far two healthy runs part. verl's own metric file is enough.
        twin = replace(
            reference,
            name="twin",
            attention="sdpa",
            micro_batches=2,
            environment={},
        )
        for settings, remark in ((reference, "rollouts, metrics and golden dumps"), (twin, "the floor of a replay")):
            run = self.run(settings)
            self.audience.ended(settings.name, run.seconds, remark)
        self._bundle(run)

    def start_daemon(self) -> None:
        """The daemon, before any watched run: it gets no run's environment."""
        words = ("up", "--config", str(self.places.settings))
        self.audience.command(words)
        self.endpoint = verbs.ask(words, self.cluster.environment(), fine=(0,))["endpoint"]
        if self.endpoint is None:
            raise DemoError("Sentinel's daemon serves no endpoint here; see `sentinel status`")

    def _bundle(self, twin: Run) -> None:
        places = self.places
        self._verb(
            "baseline", "record", str(places.recordings / "reference.jsonl"),
            "--twin", str(twin.metrics_file), "--rollouts", str(places.rollouts),
            "--model", str(self.assets.model), "--name", "reference", "-o", str(places.bundle),
        )  # fmt: skip
        places.settings.write_text(
            f"# Settings of the demo's watched runs.\nhome: {places.home}\nbaseline: {places.bundle}\n",
            encoding="utf-8",
        )

    def watch(self, scenario: Scenario) -> Outcome:
        """One watched run, and what Sentinel said of it."""
        began = time.monotonic()
        rollout_fault = scenario.mishap.rollout_fault if scenario.mishap else ""
        settings = RunSettings(
            name=scenario.name,
            steps=STEPS,
            rollouts=None if rollout_fault else self.places.rollouts,
            attention=scenario.attention,
            fault=scenario.fault,
            environment={
                "SENTINEL_RUN": scenario.name,
                "SENTINEL_CONFIG": str(self._free_settings() if rollout_fault else self.places.settings),
                **({ROLLOUT_FAULT: rollout_fault} if rollout_fault else {}),
            },
            overrides=scenario.mishap.overrides if scenario.mishap else (),
        )
        self.run(settings)
        self.audience.phase(scenario.name, "asking Sentinel", STEPS, STEPS)
        incidents = self._incidents(scenario.name)
        outcome = judge(scenario, incidents)
        report = self._report(outcome)
        return replace(outcome, report=report, seconds=time.monotonic() - began)

    def _free_settings(self) -> Path:
        """The settings of a run that writes its own rollouts."""
        path = self.places.settings.with_name("sentinel-free.yaml")
        path.write_text(f"{self.places.settings.read_text(encoding='utf-8')}regime: free\n", encoding="utf-8")
        return path

    def _incidents(self, run: str) -> list[Mapping[str, Any]]:
        """The incidents of a run, once their evidence is in or has been waited for long enough."""
        until = time.monotonic() + SETTLE_SECONDS
        while True:
            rows = self._get(f"incidents?run={run}")["incidents"]
            found = [self._get(f"incidents/{row['id']}") for row in rows if row["run"] == run]
            if all(map(settled, found)) or time.monotonic() > until:
                return found
            time.sleep(0.5)

    def _get(self, path: str) -> Any:
        url = f"{self.endpoint}/api/v1/{path}".replace("//api", "/api")
        with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - the daemon's own address
            return json.load(answer)

    def _report(self, outcome: Outcome) -> str | None:
        if not outcome.incidents:
            return None
        path = self.places.root / f"report-{outcome.scenario.name}.html"
        self._verb("incidents", "report", str(outcome.incidents[0]["id"]), "-o", str(path))
        return str(path)

    def _verb(self, *words: str) -> None:
        self.audience.command(words)
        verbs.call(words, self.cluster.environment())


def golden_orders() -> list[dict[str, Any]]:
    """The orders for the reference run: every stage that can be dumped, at every step.

    One order a step, so that each has its own receipt; step 1 is under way before a first order can be obeyed.
    """
    return [
        {
            "id": f"golden-{step}", "first_step": step, "last_step": step, "stages": list(STAGES),
            "level": "L0", "ranks": "all", "why": "golden dump of the reference run",
        }
        for step in range(2, STEPS + 1)
    ]  # fmt: skip


def settled(incident: Mapping[str, Any]) -> bool:
    """Whether nothing more will come to light about an incident."""
    if incident.get("triage") or incident.get("kind") == "mismatch":
        # Where inputs or settings differ, nothing is captured.
        return True
    receipt = incident.get("receipt")
    if receipt:
        return receipt.get("outcome") not in ("complete", "partial")
    return False


def play(
    places: Places,
    scenarios: Sequence[Scenario],
    audience: Audience,
    hold: Callable[[Finished], None] | None = None,
) -> Finished:
    """Give the whole demo; `hold` is called at the end, while cluster and daemon are still up.

    Raises:
        SentinelError: the machine does not allow it, or a verl run failed.
    """
    began = time.monotonic()
    assets = prepare_assets(places, audience)
    outcomes = []
    with private_cluster() as cluster:
        stage = Stage(places=places, assets=assets, cluster=cluster, audience=audience)
        stage.record()
        stage.start_daemon()
        for scenario in scenarios:
            try:
                outcome = stage.watch(scenario)
            except SentinelError as error:
                outcome = failed(scenario, error)
            audience.outcome(outcome)
            outcomes.append(outcome)
        finished = Finished(
            outcomes=tuple(outcomes), places=places, endpoint=stage.endpoint, seconds=time.monotonic() - began
        )
        if hold is not None:
            hold(finished)
        verbs.call(["down"], cluster.environment(), fine=(0, 1))
    return finished
