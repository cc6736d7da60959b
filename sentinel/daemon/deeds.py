# SPDX-License-Identifier: Apache-2.0
"""What the daemon does about the engine's effects: triage, report files, alerts. Each is a chore on another thread.

An order needs no deed: it stands in every reply until its receipt came.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from sentinel.core.report import render
from sentinel.daemon import captured, dump_keeping, entries, msprobe_tables, report_files
from sentinel.daemon.chores import Chores
from sentinel.daemon.run_watch import RunWatch
from sentinel.records import AskTriage, IncidentChanged, TriageArrived
from sentinel.sinks.alerting import Alerts

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from sentinel.daemon.watchdog import Watchdog
    from sentinel.records import Effect, Incident, Triage
    from sentinel.sinks.alerting import AlertSettings

_FAULTS_KEPT = 20


class Deeds:
    """Carries out effects for one Watchdog, which holds its lock while `carry_out`, `resume` and `save` run."""

    def __init__(self, watchdog: Watchdog) -> None:
        self.faults: deque[str] = deque(maxlen=_FAULTS_KEPT)
        """What went wrong lately, for the status."""
        self.alerts_failed = 0
        self.endpoint: str | None = None
        """Address of the status page, for links in alerts."""
        self._watchdog = watchdog
        self._chores = Chores(self.faults.append)
        # Threads of their own: a webhook that hangs must hold up no triage and no snapshot.
        self._messages = Chores(self.faults.append)
        # Nobody waits for these: what msprobe makes of a pair is for people who want it.
        self._aside = Chores(self.faults.append)
        self._tables_of = msprobe_tables.TableMaker()
        self.announce_by(watchdog.settings.alerts)

    def carry_out(self, watch: RunWatch, effects: Iterable[Effect]) -> None:
        """Do what the engine asked for after an event of `watch`."""
        for effect in effects:
            if isinstance(effect, AskTriage):
                self._ask(watch, effect)
            elif isinstance(effect, IncidentChanged):
                # First the alert: people wait for it; the page shows the incident from memory meanwhile.
                self._announce(watch, effect.incident.id, effect.change)
                self._write(watch, effect.incident.id)

    def received(self, watch: RunWatch, capture: str) -> None:
        """A receipt came: keep what is known around the dump, and room for the next."""
        self._chores.do(("keep", capture), self._keep, watch.run, capture)

    def resume(self, watch: RunWatch) -> None:
        """After a restart: ask again for what was not answered before."""
        for ask in watch.asked.values():
            self._ask(watch, ask)
        for incident, change in tuple(watch.announcements.owed):
            self._announce(watch, incident, change)
        for known in watch.incidents.values():
            if not report_files.exist(self._watchdog.home, known):
                self._write(watch, known.id)

    def save(self, run: str) -> None:
        """Write a snapshot of a run soon."""
        self._chores.do(("save", run), self._watchdog.with_watch, run, lambda watch: watch.save())

    def announce_by(self, settings: AlertSettings) -> None:
        """Announce by other settings from now on."""
        self._alerts = Alerts(settings, endpoint=lambda: self.endpoint)

    def beside(self, key: Hashable, job: Callable[..., None], *args: Any) -> None:
        """Do something of the Watchdog's own beside the watch."""
        self._chores.do(key, job, *args)

    def wait(self, seconds: float) -> bool:
        """Wait until every chore is done; False after `seconds`."""
        end = time.monotonic() + seconds
        return self._chores.wait(seconds) and self._messages.wait(max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """Finish what is begun, but for what nobody waits for."""
        self._tables_of.stop()
        self._aside.close(1.0)
        self._chores.close()
        self._messages.close()

    # ------------------------------------------------------------------ each on a thread of its own

    def _ask(self, watch: RunWatch, ask: AskTriage) -> None:
        prepared = watch.prepared
        source = captured.Golden(
            prepared.plan.baseline, prepared.reference, self._watchdog.home / "golden", captured.healthy_of(watch)
        )
        self._chores.do(("triage", ask.capture), self._triage, watch.run, ask, source)

    def _triage(self, run: str, ask: AskTriage, golden: captured.Golden) -> None:
        triage = captured.triage(ask, golden)
        self._watchdog.tell(run, TriageArrived(ask.incident, ask.capture, triage, self._watchdog.clock()))
        if self._watchdog.settings.msprobe_tables and msprobe_tables.wanted(triage):
            self._aside.do(("tables", ask.incident), self._tables, run, ask.incident, triage)
        # By now the step's own metrics have come, too.
        self._chores.do(("keep", ask.capture), self._keep, run, ask.capture)

    def _tables(self, run: str, incident: str, triage: Triage) -> None:
        """Have msprobe's own table and graph made beside the report; then the report links them."""
        folder = report_files.folder(self._watchdog.home, incident) / msprobe_tables.FOLDER
        self.faults.extend(self._tables_of.make(triage, folder))
        self._watchdog.with_watch(run, functools.partial(self._write, incident=incident))

    def _keep(self, run: str, capture: str) -> None:
        material = self._watchdog.with_watch(run, lambda watch: dump_keeping.gather(watch, capture))
        if material is None:
            return
        dump_keeping.write(material)
        doomed, needed = self._watchdog.with_watch(
            run, lambda watch: dump_keeping.forgettable(watch, watch.prepared.plan.keep_dump_bytes)
        )
        gone = dump_keeping.forget(doomed, needed)
        if gone:
            said = f"{len(gone)} dumps were deleted to stay below trainer.keep_dump_bytes, the last {gone[-1]}"
            self._watchdog.with_watch(run, lambda watch: watch.remarks.update(dumps_deleted=said))

    def _write(self, watch: RunWatch, incident: str) -> None:
        self._chores.do(("report", incident), self._report, watch.run, incident)

    def _report(self, run: str, incident_id: str) -> None:
        def gather(watch: RunWatch) -> report_files.Material:
            incident = watch.incidents[incident_id]
            watch.keeper.append(entries.INCIDENT, entries.plain(incident), durable=True)
            return report_files.material(watch, incident)

        report_files.write(self._watchdog.home, self._watchdog.with_watch(run, gather))

    def _announce(self, watch: RunWatch, incident: str, change: str) -> None:
        if self._alerts.wants(watch.incidents[incident], change):
            self._messages.do(("alert", incident), self._alert, watch.run, incident)
        else:
            watch.announcements.forget(incident, change)

    def _alert(self, run: str, incident_id: str) -> None:
        """Announce what is owed of an incident, in the order in which it happened."""

        def owed(watch: RunWatch) -> tuple[list[str], Incident]:
            return watch.announcements.of(incident_id), watch.incidents[incident_id]

        changes, incident = self._watchdog.with_watch(run, owed)
        for change in changes:
            failures = self._alerts.send(incident, change, render.incident_to_plain(incident))
            self.faults.extend(failures)
            self.alerts_failed += len(failures)
            self._watchdog.with_watch(run, functools.partial(RunWatch.announced, incident=incident_id, change=change))
