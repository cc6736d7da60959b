# SPDX-License-Identifier: Apache-2.0
"""The daemon's answers to people and programs, in the forms of the command-line contract."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

from sentinel import __version__
from sentinel.core.report import render
from sentinel.daemon import golden_plan, report_files
from sentinel.daemon.planning import ATTACHED
from sentinel.errors import DaemonError, SettingsError
from sentinel.records import DUMPABLE_STAGES, LEVELS, CaptureCancelled, CaptureOrder, CaptureRequested, OrderCapture

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sentinel.daemon.house import House
    from sentinel.records import Capture, Incident, RunSnapshot

STEPS_AT_ONCE = 20
"""Steps of one order by hand; a dump costs time and disk in each."""
GOING_ON = ("ordered", "recording")
SERIES_SHOWN = 12


class Answers:
    """Answers for one daemon; from any thread."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._watchdog = house.watchdog
        self._verbs: dict[str, Callable[..., dict[str, Any]]] = {
            "status": self._status,
            "overview": self._overview,
            "incidents": self._incidents,
            "incident": self._incident,
            "report": self._report,
            "captures": self._captures,
            "request": self._request,
            "cancel": self._cancel,
            "plan": self._plan,
            "retire": self._retire,
            "reload": self._house.reload,
        }

    def answer(self, what: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer, or `{"error": sentence}` where the question is at fault."""
        verb = self._verbs.get(what)
        if verb is None:
            return {"error": f"this daemon (version {__version__}) does not know the question {what!r}"}
        try:
            return verb(**args)
        except (DaemonError, SettingsError, TypeError) as error:
            return {"error": str(error)}

    # ------------------------------------------------------------------ looking

    def _status(self, run: str | None = None) -> dict[str, Any]:
        now = self._watchdog.clock()
        shown = [snapshot for snapshot in self._watchdog.runs() if run in (None, snapshot.run)]
        if run is not None and not shown:
            raise DaemonError(f"no run {run!r} is watched (known: {self._known()})")
        return {
            "daemon": "running",
            "endpoint": self._house.endpoint,
            "runs": [run_row(snapshot, now) for snapshot in shown],
            "version": __version__,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "home": str(self._watchdog.home),
            "started_at": self._watchdog.started_at,
            "restarts": self._house.restarts,
            "remarks": [
                *(f"{code}: {text}" for code, text in self._house.remarks.items()),
                *(f"left_out: run {run}: {why}" for run, why in self._watchdog.left_out.items()),
            ],
            "faults": list(self._watchdog.deeds.faults),
        }

    def _overview(self, run: str | None = None) -> dict[str, Any]:
        """Return the status with the metrics that matter most of each run, and their last steps."""
        document = self._status(run)
        snapshots = {snapshot.run: snapshot for snapshot in self._watchdog.runs()}
        for row in document["runs"]:
            snapshot = snapshots[row["run"]]
            ranked = sorted(snapshot.metrics, key=lambda m: (m.score is None, -(m.score or 0.0), m.metric))[
                :SERIES_SHOWN
            ]
            names = [metric.metric for metric in ranked]
            series = self._watchdog.series(snapshot.run, names)
            row["metrics"] = [{**render.metric_to_plain(m), "series": series.get(m.metric, [])} for m in ranked]
            row["incidents"] = [render.incident_to_row(incident) for incident in snapshot.incidents]
        return document

    def _incidents(self, run: str | None = None, state: str | None = None) -> dict[str, Any]:
        found = [i for i in self._all_incidents() if run in (None, i.run) and state in (None, i.state)]
        return {"incidents": [render.incident_to_row(incident) for incident in found]}

    def _incident(self, id: str) -> dict[str, Any]:  # noqa: A002  # the contract's name
        return render.incident_to_plain(self._find_incident(id))

    def _report(self, id: str, form: str = "html") -> dict[str, Any]:  # noqa: A002  # the contract's name
        incident = self._find_incident(id)
        written = report_files.stored(self._watchdog.home, incident, form)
        if written is not None:
            return {"text": written}
        material = self._watchdog.with_watch(incident.run, lambda watch: report_files.material(watch, incident))
        material = report_files.completed(self._watchdog.home, material)
        return {"text": report_files.html(material) if form == "html" else report_files.markdown(material)}

    def _captures(self, run: str | None = None) -> dict[str, Any]:
        found = [c for s in self._watchdog.runs() if run in (None, s.run) for c in s.captures]
        return {"captures": [render.capture_to_plain(capture) for capture in found]}

    def _plan(self, id: str) -> dict[str, Any]:  # noqa: A002  # the contract's name
        incident = self._find_incident(id)
        return golden_plan.plan(incident, self._watchdog.with_watch(incident.run, lambda watch: watch.facts))

    # ------------------------------------------------------------------ acting

    def _request(
        self,
        run: str,
        stages: list[str],
        steps: int = 1,
        level: str = "L0",
        ranks: list[int] | None = None,
    ) -> dict[str, Any]:
        snapshot = self._find_run(run)
        if snapshot.state == "finished":
            raise DaemonError(f"run {run!r} has finished: nothing can be dumped")
        if self._watchdog.with_watch(run, lambda watch: watch.prepared.plan.config.attached):
            raise DaemonError(f"run {run!r}: {ATTACHED}")
        # A run says which of its stages can be dumped: one without a critic has no `compute_values`.
        possible = self._watchdog.with_watch(run, lambda watch: watch.facts.get("stages")) or DUMPABLE_STAGES
        wrong = [stage for stage in stages if stage not in possible]
        if wrong or not stages:
            raise DaemonError(f"{', '.join(wrong) or 'no stage'} cannot be dumped (possible: {', '.join(possible)})")
        if level not in LEVELS:
            raise DaemonError(f"level {level!r} is unknown (known: {', '.join(LEVELS)})")
        if not 1 <= steps <= STEPS_AT_ONCE:
            raise DaemonError(f"{steps} steps cannot be ordered at once (1 to {STEPS_AT_ONCE})")
        first = (snapshot.last_step or 0) + 1
        order = CaptureOrder(
            id="",  # the engine numbers it
            run=run,
            incident=None,
            first_step=first,
            last_step=first + steps - 1,
            stages=tuple(stages),
            level=level,
            ranks=None if ranks is None else tuple(ranks),
            why="ordered by hand",
        )
        made = self._watchdog.tell(run, CaptureRequested(order, self._watchdog.clock()))
        ordered = next(effect.order for effect in made if isinstance(effect, OrderCapture))
        return render.capture_to_plain(self._find_capture(ordered.id))

    def _cancel(self, id: str) -> dict[str, Any]:  # noqa: A002  # the contract's name
        capture = self._find_capture(id)
        if capture.state not in GOING_ON:
            raise DaemonError(f"capture {id!r} is {capture.state}: there is nothing to cancel")
        self._watchdog.tell(capture.run, CaptureCancelled(id, self._watchdog.clock()))
        return render.capture_to_plain(self._find_capture(id))

    def _retire(self, run: str) -> dict[str, Any]:
        self._find_run(run)
        self._watchdog.retire(run)
        return {"run": run, "state": self._find_run(run).state}

    # ------------------------------------------------------------------ finding

    def _all_incidents(self) -> list[Incident]:
        return [incident for snapshot in self._watchdog.runs() for incident in snapshot.incidents]

    def _find_incident(self, wanted: str) -> Incident:
        for incident in self._all_incidents():
            if incident.id == wanted:
                return incident
        raise DaemonError(f"no incident {wanted!r} (see `sentinel incidents list`)")

    def _find_capture(self, wanted: str) -> Capture:
        for snapshot in self._watchdog.runs():
            for capture in snapshot.captures:
                if capture.id == wanted:
                    return capture
        raise DaemonError(f"no capture {wanted!r} (see `sentinel captures list`)")

    def _find_run(self, run: str) -> RunSnapshot:
        for snapshot in self._watchdog.runs():
            if snapshot.run == run:
                return snapshot
        raise DaemonError(f"no run {run!r} is watched (known: {self._known()})")

    def _known(self) -> str:
        return ", ".join(snapshot.run for snapshot in self._watchdog.runs()) or "none"


def run_row(snapshot: RunSnapshot, now: float) -> dict[str, Any]:
    """Return one run of `sentinel status`."""
    at = snapshot.last_step_at_seconds
    return {
        "run": snapshot.run,
        "state": snapshot.state,
        "last_step": snapshot.last_step,
        "seconds_since_step": None if not at else max(0.0, round(now - at, 3)),
        "baseline": snapshot.baseline,
        "open_incidents": sum(incident.state == "open" for incident in snapshot.incidents),
        "captures": [render.capture_to_plain(capture) for capture in snapshot.captures],
        "regime": snapshot.regime,
        "steps_seen": snapshot.steps_seen,
        "warnings": list(snapshot.warnings),
        "trainer": dict(snapshot.trainer),
    }
