# SPDX-License-Identifier: Apache-2.0
"""The watch over one run: its engine state, its journal, its history. Not for several threads; the Watchdog locks.

Everything the engine is told goes to the journal first, so that a daemon killed at any point goes on from there:
the state is the newest snapshot plus the events after it, folded again. What was asked for and not answered
(triage, alerts) is known after that, too, and is asked again.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from sentinel.core.engine import to_plain
from sentinel.daemon import entries
from sentinel.daemon.alignment import Description
from sentinel.daemon.announcing import Announcements
from sentinel.daemon.planning import Config
from sentinel.daemon.protocol import bounded
from sentinel.daemon.rollout_state import Following
from sentinel.daemon.salvage import salvage
from sentinel.daemon.sessions import Sessions
from sentinel.records import (
    AskTriage,
    CaptureReported,
    IncidentChanged,
    StepReported,
    Tick,
    TrainerLeft,
    TriageArrived,
    Warned,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sentinel.core.engine import WatchState
    from sentinel.daemon.journaling import Keeper, Kept
    from sentinel.daemon.planning import Plan, Planner, Prepared
    from sentinel.daemon.protocol import Started, Stepped
    from sentinel.daemon.sessions import Session
    from sentinel.records import Effect, Event, Incident, RunSnapshot

SNAPSHOT_VERSION = 1
ANNOUNCED = "announced"


class RunWatch:
    """One watched run, as its journal left it.

    Args:
        run: its name, the same everywhere.
        planner: turns the run's settings into what watches it.
        keeper: keeps the events.
        now: Unix time.
    """

    def __init__(self, run: str, planner: Planner, keeper: Keeper, now: float) -> None:
        self.run = run
        self.keeper = keeper
        self.sessions = Sessions()
        self.facts: Mapping[str, Any] = {}
        self.trainer: dict[str, float] = {}
        self.description = Description()
        self.remarks: dict[str, str] = {}
        """Code -> sentence: what the daemon itself has to say about this watch."""
        self.incidents: dict[str, Incident] = {}
        """Every incident of the run by id, also those that the engine has let go."""
        self.asked: dict[str, AskTriage] = {}
        """Triage that was asked for and has not come back, by capture."""
        self.announcements = Announcements()
        self.following = Following()
        """What was read of the run's rollouts."""
        self.finished = False
        self._planner = planner
        kept = keeper.take()
        self._prepared, self._signature = self._plan_first(kept)
        self.state: WatchState = self._initial()
        self._restore(kept)
        self.following.seen_before = self.state.last_step is not None
        self.sessions.spare(now)
        self._heard_at = now
        """When a step came last in this process's life: what was before is nobody's silence."""

    @property
    def prepared(self) -> Prepared:
        """What the run is watched with."""
        return self._prepared

    def tell(self, event: Event, session: str = "", mark: float = 0.0) -> tuple[Effect, ...]:
        """Keep an event, let the engine judge it, and return what is to be done."""
        kind, payload = entries.from_event(event, session)
        payload["mark"] = mark
        self.keeper.append(kind, payload, durable=isinstance(event, CaptureReported))
        return self._fold(event)

    def step(self, session: Session, step: Stepped) -> tuple[Effect, ...]:
        """Judge a step, unless it was told before."""
        if not self.sessions.is_news(session, step.step, step.mark):
            return ()
        known = self.state.index.rows if self.state.index is not None else {}
        values = bounded(step.values, known)
        if len(values) < len(step.values):
            self.remarks["too_many_metrics"] = f"the run has {len(known)} metrics; further ones are left out"
        self._heard_at = step.at
        if self.following.first is None:
            self.following.first = step.step
        event = StepReported(
            step=step.step,
            values=values,
            kind="val" if values and all(key.startswith("val") for key in values) else "train",
            attempt=self.sessions.attempt,
            at_seconds=step.at,
            unreadable=step.unreadable,
        )
        return self.tell(event, session.id, step.mark)

    def greet(self, session: str, started: Started, now: float) -> None:
        """A trainer process introduces itself: its settings are in force from now on."""
        config = Config(
            path=started.config_path,
            text=started.config_text,
            attached=started.facts.get("trainer") == "attached",
        )
        plan = self._planner.plan(self.run, config)
        payload = {
            "id": session,
            "at": now,
            "facts": dict(started.facts),
            "config": entries.plain(config),
            "signature": plan.signature,
            "reread": plan.baseline is not None and self.prepared.reference is None,
        }
        self.keeper.append(entries.SESSION, payload)
        self._reread(payload)
        self._welcome(session, started.facts, plan, now)

    def pass_time(self, now: float) -> tuple[Effect, ...]:
        """Tell the engine that time went by; kept only where something came of it."""
        event = Tick(at_seconds=(self.state.last_at_seconds or now) + now - self._heard_at)
        self.state, effects = self.prepared.engine.advance(self.state, event)
        if effects:
            kind, payload = entries.from_event(event)
            self.keeper.append(kind, payload)
        self._note(effects)
        return effects

    def describe(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Keep what the run said of itself, or how much of it is compared; see `alignment`."""
        self.keeper.append(kind, payload)
        self.description.take_up(kind, payload)

    def announced(self, incident: str, change: str) -> None:
        """An alert went out; it is not sent again after a restart."""
        if self.announcements.pay(incident, change):
            self.keeper.append(ANNOUNCED, {"incident": incident, "change": change})

    def _reread(self, payload: Mapping[str, Any]) -> None:
        """Let the baseline be read anew where it is not at hand: perhaps it can be read now."""
        if payload.get("reread"):
            self._signature = ""

    def _welcome(self, session: str, facts: Mapping[str, Any], plan: Plan, now: float) -> None:
        self.sessions.greet(session, facts, now).ended = False
        self.facts = facts
        self.following = Following(began=now)
        self.finished = False
        if plan.signature == self._signature:
            return
        self._prepared, self._signature = self._planner.prepare(plan), plan.signature
        self.remarks = dict(self._prepared.remarks)
        # What the baseline teaches was learned with the plan.
        self.state = self._prepared.engine.carried_over(self.state, self._prepared.blank)

    def _initial(self) -> WatchState:
        prepared = self._prepared
        self.remarks = dict(prepared.remarks)
        return dataclasses.replace(prepared.blank, run=self.run)

    def _fold(self, event: Event) -> tuple[Effect, ...]:
        if isinstance(event, StepReported):
            self.finished = False
        elif isinstance(event, TrainerLeft):
            self.finished = True
        elif isinstance(event, TriageArrived):
            self.asked.pop(event.capture, None)
        self.state, effects = self.prepared.engine.advance(self.state, event)
        self._note(effects)
        return effects

    def _note(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, IncidentChanged):
                self.incidents[effect.incident.id] = effect.incident
                self.announcements.note(effect)
            elif isinstance(effect, AskTriage):
                self.asked[effect.capture] = effect
            elif isinstance(effect, Warned):
                self.remarks.setdefault(effect.code, effect.text)

    # ------------------------------------------------------------------ what is shown

    def snapshot(self) -> RunSnapshot:
        """Return the run as it stands now."""
        shown = self.prepared.engine.snapshot(self.state)
        remarks = {**self.remarks, **self.keeper.remarks}
        said = tuple(f"{code}: {text}" for code, text in remarks.items())
        return dataclasses.replace(
            shown,
            baseline=self.prepared.plan.baseline if self.prepared.reference is not None or self.finished else None,
            trainer=dict(self.trainer),
            warnings=said + tuple(w for w in shown.warnings if w.partition(":")[0] not in remarks),
            incidents=tuple({**self.incidents, **{i.id: i for i in shown.incidents}}.values()),
        )

    # ------------------------------------------------------------------ restart

    def save(self) -> None:
        """Write a snapshot, so that a restart is quick."""
        self.keeper.write_snapshot(
            {
                "v": SNAPSHOT_VERSION,
                "state": to_plain(self.state),
                "sessions": self.sessions.to_plain(),
                "config": entries.plain(self.prepared.plan.config),
                "signature": self._signature,
                "facts": dict(self.facts),
                "trainer": self.trainer,
                "remarks": self.remarks,
                "incidents": [entries.plain(incident) for incident in self.incidents.values()],
                "asked": [entries.plain(ask) for ask in self.asked.values()],
                "announcements": self.announcements.to_plain(),
                "description": entries.plain(self.description),
                "finished": self.finished,
            }
        )

    def _plan_first(self, kept: Sequence[Kept]) -> tuple[Prepared, str]:
        """Return what the run was watched with when the journal's snapshot was written."""
        stored = kept[0].payload if kept and kept[0].kind == "snapshot" else {}
        config = entries.config(stored.get("config"))
        plan = self._planner.plan(self.run, config or Config())
        # Before a trainer introduced itself, and after the run is over, there is nothing to judge: a daemon with a
        # hundred finished runs must be back as quickly as any other.
        over = bool(stored.get("finished")) and len(kept) == 1
        read = config is not None and not over
        return self._planner.prepare(plan, read=read), str(stored.get("signature", ""))

    def _restore(self, kept: Iterable[Kept]) -> None:
        """Become what the journal says; nothing is done again here."""
        for entry in kept:
            self._take_up(entry)

    def _take_up(self, entry: Kept) -> None:
        try:
            if entry.kind == "snapshot":
                self._revive(entry.payload)
            elif entry.kind == entries.SESSION:
                self._rewelcome(entry.payload)
            elif entry.kind == ANNOUNCED:
                self.announcements.pay(str(entry.payload["incident"]), str(entry.payload["change"]))
            elif not self.description.take_up(entry.kind, entry.payload):
                self._refold(entry.kind, entry.payload)
        except Exception as error:  # noqa: BLE001  # one entry must not keep the daemon from coming back
            self.remarks["journal_unread"] = f"entry {entry.seq} is left out: {type(error).__name__}: {error}"

    def _revive(self, plain: Mapping[str, Any]) -> None:
        self.facts, self.trainer = plain["facts"], dict(plain["trainer"])
        self.remarks.update(plain["remarks"])
        found = (entries.incident(document) for document in plain["incidents"])
        self.incidents = {incident.id: incident for incident in found if incident is not None}
        self.finished = plain["finished"]
        self.announcements = Announcements.from_plain(plain["announcements"])
        self.sessions = Sessions.from_plain(plain["sessions"])
        self.description = Description(**plain.get("description", {}))
        self.asked = {ask.capture: ask for ask in map(entries.ask, plain["asked"]) if ask is not None}
        try:
            self.state = self.prepared.engine.revived(plain["state"], self.prepared.blank)
        except (KeyError, TypeError, ValueError) as error:
            # Of another version: judging begins anew, what was decided stays.
            self.remarks["state_unread"] = f"judging began anew: {type(error).__name__}: {error}"
            self.state = salvage(self.state, self.incidents.values(), plain["state"])

    def _rewelcome(self, payload: Mapping[str, Any]) -> None:
        plan = self._planner.plan(self.run, entries.config(payload.get("config")) or Config())
        # The baseline's file may have changed since; what counted then is in the entry.
        plan = dataclasses.replace(plan, signature=str(payload.get("signature", "")))
        self._reread(payload)
        self._welcome(str(payload["id"]), payload.get("facts") or {}, plan, float(payload["at"]))

    def _refold(self, kind: str, payload: Mapping[str, Any]) -> None:
        event = entries.to_event(kind, payload)
        if event is None:
            return
        name = str(payload.get("session", ""))
        if isinstance(event, StepReported) and name:
            session = self.sessions.greet(name, {}, event.at_seconds)
            self.sessions.is_news(session, event.step, float(payload.get("mark", event.at_seconds)))
        elif isinstance(event, TrainerLeft) and name:
            self.sessions.end(self.sessions.greet(name, {}, event.at_seconds))
        self._fold(event)
