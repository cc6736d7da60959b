# SPDX-License-Identifier: Apache-2.0
"""What the HTTP endpoint shows of a running daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentinel.sinks import prometheus, status_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sentinel.daemon.house import House
    from sentinel.records import RunSnapshot

FINISHED_SECONDS = 3600.0
"""How long a run that is over is still exported."""


class DaemonView:
    """The `View` of one daemon."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._collector = prometheus.SnapshotCollector(self._exported, self._numbers)

    def ready(self) -> str | None:
        """Return what keeps runs from being watched and kept."""
        return self._house.remarks.get("home")

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics page."""
        return prometheus.exposition(self._collector, accept)

    def api(self, path: str, query: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return the document at /api/v1/<path>."""
        answers = self._house.answers
        if path == "runs":
            return answers.answer("status", {})
        if path == "incidents":
            return answers.answer("incidents", {name: query[name] for name in ("run", "state") if name in query})
        group, _, name = path.partition("/")
        if group == "incidents":
            found = answers.answer("incident", {"id": name})
            return None if "error" in found else found
        return None

    def page(self, language: str) -> str:
        """Return the status page."""
        document = self._house.answers.answer("overview", {})
        return status_page.render(document, language)

    def report(self, incident: str) -> str | None:
        """Return an incident's report."""
        found = self._house.answers.answer("report", {"id": incident, "form": "html"})
        text: str | None = found.get("text")
        return text

    def _exported(self) -> Sequence[RunSnapshot]:
        now = self._house.watchdog.clock()
        return [
            run
            for run in self._house.watchdog.runs()
            if run.state != "finished" or now - (run.last_step_at_seconds or 0.0) < FINISHED_SECONDS
        ]

    def _numbers(self) -> prometheus.DaemonNumbers:
        watchdog = self._house.watchdog
        return prometheus.DaemonNumbers(
            started_at=watchdog.started_at,
            restarts=self._house.restarts,
            alerts_failed=watchdog.deeds.alerts_failed,
            verdict_buckets=watchdog.verdicts.buckets(),
            verdict_seconds=watchdog.verdicts.seconds,
            journal_unwritable=frozenset(
                run.run
                for run in watchdog.runs()
                if any(w.startswith(("journal_unwritten", "journal_closed")) for w in run.warnings)
            ),
            warnings=tuple(self._house.remarks),
        )
