# SPDX-License-Identifier: Apache-2.0
"""The daemon without Ray: watches any number of runs, answers their trainers, and does what the engine asks.

`report` judges synchronously, so that the verdict on a step is in the reply. What takes longer (triage, reports,
alerts) is a chore on another thread, whose result comes back as an event. One lock guards all watches; what is shown
is a finished value that is replaced as a whole, so that looking never waits.
"""

from __future__ import annotations

import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from sentinel.daemon import alignment, captured, deeds, protocol, rollout_following
from sentinel.daemon.clock import dated, steady_clock
from sentinel.daemon.diary import Diary
from sentinel.daemon.journaling import Keeper
from sentinel.daemon.processes import process_lives
from sentinel.daemon.replying import reply
from sentinel.daemon.run_watch import RunWatch
from sentinel.daemon.stopwatch import Stopwatch
from sentinel.records import CaptureReported, TrainerLeft, WorkerSaid
from sentinel.storage.run_folders import journalled_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sentinel.daemon.planning import Planner
    from sentinel.records import Effect, Event, RunSnapshot
    from sentinel.settings import Settings

_NAMES_TRIED = 50
TRY_AGAIN_SECONDS = 20.0
"""How often a journal that could not be opened is tried again; each try holds up the reports for some milliseconds."""


class Watchdog:
    """Watches runs.

    Args:
        settings: the daemon's own.
        planner: turns a run's settings into what watches it.
        clock: Unix time in seconds; by default one that never jumps.
        alive: says whether process `pid` of `host` lives; None where that cannot be told from here.
        only: take up this run's journal, not those of all runs.
        diary: the daemon's log.
    """

    def __init__(
        self,
        settings: Settings,
        planner: Planner,
        *,
        clock: Callable[[], float] | None = None,
        alive: Callable[[str, int], bool | None] | None = None,
        only: str | None = None,
        diary: Diary | None = None,
    ) -> None:
        self.settings = settings
        self.home = settings.home_folder
        self.clock = clock or steady_clock()
        self.started_at = self.clock()
        self.verdicts = Stopwatch()
        self._planner = planner
        self._alive = alive or process_lives
        self._lock = threading.RLock()
        self._watches: dict[str, RunWatch] = {}
        self._bound: dict[tuple[str, str], str] = {}
        """(name that the trainer uses, its session) -> name that the run is watched under."""
        self._shown: Mapping[str, RunSnapshot] = {}
        self.left_out: dict[str, str] = {}
        """Run -> why its journal was not taken up."""
        self.diary = diary or Diary()
        self._next_try = 0.0
        self.deeds = deeds.Deeds(self)
        self._restore(only)

    # ------------------------------------------------------------------ what the trainer calls

    def report(self, message: object) -> dict[str, Any]:
        """Judge what a trainer says and answer with its orders; see `protocol` for both forms."""
        began = time.perf_counter()
        told = protocol.parse(message)
        if not told.run:
            return {"v": protocol.VERSION, "step": None, "orders": [], "cancelled": [], "faults": list(told.faults)}
        now = self.clock()
        with self._lock:
            watch = self._watch_of(told.run, told.session, now)
            for record in dated(told.records, now):
                self._take_safely(watch, told.session, record, now)
            if told.faults:
                watch.remarks["message"] = told.faults[-1]
            answer = self._reply(watch, told)
            if watch.keeper.snapshot_due:
                self.deeds.save(watch.run)
        if any(isinstance(record, protocol.Stepped) for record in told.records):
            self.verdicts.add(time.perf_counter() - began)
        return answer

    def tick(self) -> None:
        """Tell every run that goes on what time it is; call it every few seconds."""
        now = self.clock()
        with self._lock:
            if now >= self._next_try:
                self._next_try = now + TRY_AGAIN_SECONDS
                self._try_journals_again()
            for watch in self._watches.values():
                if not watch.finished:
                    self._carry_out(watch, watch.pass_time(now))
                    self._follow(watch)
                    self._show(watch)
        self.diary.write_faults(tuple(self.deeds.faults))

    # ------------------------------------------------------------------ what others ask

    def runs(self) -> tuple[RunSnapshot, ...]:
        """Return every run as it stands now; never waits for a judgement."""
        return tuple(self._shown.values())

    def series(self, run: str, metrics: Iterable[str]) -> dict[str, list[tuple[int, float]]]:
        """Return (step, value) of the last steps of some metrics of a run."""
        with self._lock:
            state = self._watches[run].state
        # Out of the lock: the state is a value.
        rows = {name: state.index.rows[name] for name in metrics if state.index and name in state.index.rows}
        return {
            name: [
                (past.step, float(past.values[row]))
                for past in state.past
                if row < len(past.present) and past.present[row]
            ]
            for name, row in rows.items()
        }

    def tell(self, run: str, event: Event) -> tuple[Effect, ...]:
        """Tell a run's engine what came from elsewhere than its trainer (a person, a chore); return what came of it."""
        with self._lock:
            watch = self._watches[run]
            effects = watch.tell(event)
            self._carry_out(watch, effects)
            self._show(watch)
            return effects

    def with_watch(self, run: str, use: Callable[[RunWatch], Any]) -> Any:
        """Return what `use` makes of a run's watch, undisturbed; raises KeyError for an unknown run."""
        with self._lock:
            return use(self._watches[run])

    def retire(self, run: str) -> None:
        """End the watch over one run, as if its trainer had said goodbye; raises KeyError for an unknown run."""
        with self._lock:
            watch = self._watches[run]
            if not watch.finished:
                self._leave(watch, "", finished=False, at=self.clock())
            self._show(watch)

    def use(self, settings: Settings) -> None:
        """Go on with other settings: alerts at once, runs without settings of their own from their next start on."""
        with self._lock:
            self.settings = settings
            self._planner.renew(settings)
            self.deeds.announce_by(settings.alerts)

    def close(self) -> None:
        """Finish what is begun and put everything down."""
        self.deeds.close()
        with self._lock:
            for watch in self._watches.values():
                watch.save()
                watch.keeper.close()

    # ------------------------------------------------------------------ inside

    def _restore(self, only: str | None) -> None:
        """Take up the runs that the journals know, and ask again for what was not answered."""
        with self._lock:
            for run in journalled_runs(self.home):
                if only in (None, run):
                    self._restore_one(run)

    def _restore_one(self, run: str) -> None:
        keeper = Keeper(self.home, run)
        if not keeper.is_open:
            # Another daemon has it, in another cluster with the same home folder: it is that one's to show.
            self.left_out[run] = "; ".join(keeper.remarks.values())
            return
        watch = self._open(run, keeper)
        self.deeds.resume(watch)
        if watch.description.waits:
            self._align(watch)
        self._show(watch)

    def _try_journals_again(self) -> None:
        for run in tuple(self.left_out):
            self._restore_one(run)
        for watch in [watch for watch in self._watches.values() if not watch.keeper.is_open]:
            self._take_over(watch)

    def _take_over(self, watch: RunWatch) -> None:
        """Use a journal that could not be opened before: the disk has room again, or the other daemon has ended."""
        keeper = Keeper(self.home, watch.run)
        if keeper.is_open and not keeper.holds_entries:
            watch.keeper = keeper
            self.deeds.save(watch.run)
        elif keeper.is_open and not watch.incidents:
            holder, taken = watch.sessions.current, self._open(watch.run, keeper)
            if holder is not None:
                taken.sessions.greet(holder.id, {"host": holder.host, "pid": holder.pid}, self.clock())
            self.deeds.resume(taken)
        else:
            # With incidents on both sides neither may be forgotten: this one's stay in memory, as is said.
            keeper.close()
        self._show(self._watches[watch.run])

    def _open(self, run: str, keeper: Keeper) -> RunWatch:
        self.left_out.pop(run, None)
        watch = self._watches[run] = RunWatch(run, self._planner, keeper, self.clock())
        return watch

    def _watch_of(self, run: str, session: str, now: float) -> RunWatch:
        """Return the watch that a trainer process reports to, opening one where there is none."""
        names = [self._bound.get((run, session), run), *(f"{run}~{number}" for number in range(2, _NAMES_TRIED))]
        for name in names:
            watch = self._watches.get(name) or self._open(name, Keeper(self.home, name))
            if watch.sessions.free_for(session, now, self._alive):
                break
        if name != run:
            watch.remarks["name_taken"] = f"another run named {run} is going on; this one is watched as {name}"
        self._bound[(run, session)] = name
        watch.sessions.greet(session, {}, now)
        return watch

    def _take_safely(self, watch: RunWatch, session: str, record: protocol.Record, now: float) -> None:
        """Take one record; a bug that it meets is said, and must not make the trainer send it for ever."""
        try:
            self._take(watch, session, record, now)
        except Exception as error:
            watch.remarks["internal"] = f"a {type(record).__name__} record met a bug: {type(error).__name__}: {error}"
            self.diary.write("bug", level="error", run=watch.run, why=traceback.format_exc())

    def _take(self, watch: RunWatch, session: str, record: protocol.Record, now: float) -> None:
        effects: tuple[Effect, ...] = ()
        process = watch.sessions.greet(session, {}, now)
        if isinstance(record, protocol.Started):
            watch.greet(session, record, now)
            self.diary.write("joined", run=watch.run, session=session, baseline=watch.prepared.plan.baseline)
            effects = captured.tell_of_trainer(watch, record.at or now)
        elif isinstance(record, protocol.Stepped):
            effects = watch.step(process, record)
            self._follow(watch)
        elif isinstance(record, protocol.Receipted):
            effects = watch.tell(CaptureReported(record.capture, record.receipt, record.at), session)
            self.deeds.received(watch, record.capture)
        elif isinstance(record, protocol.Said):
            effects = watch.tell(WorkerSaid(record.code, record.text, record.at), session)
        elif isinstance(record, protocol.Described):
            watch.describe(alignment.DESCRIBED, {"facts": dict(record.facts), "at": record.at})
            self._align(watch)
            effects = captured.tell_of_trainer(watch, record.at or now)
        elif isinstance(record, protocol.Health):
            watch.trainer = dict(record.numbers)
        elif isinstance(record, protocol.Ended):
            self._leave(watch, session, finished=record.finished, at=record.at or now)
        self._carry_out(watch, effects)

    def _carry_out(self, watch: RunWatch, effects: tuple[Effect, ...]) -> None:
        self.deeds.carry_out(watch, effects)
        self.diary.write_effects(watch.run, effects)

    def _follow(self, watch: RunWatch) -> None:
        """Read what the run generated, beside the watch."""
        self.deeds.beside(("rollouts", watch.run), rollout_following.follow, self, watch.run)

    def _align(self, watch: RunWatch) -> None:
        """Compare what a run said of itself with its baseline, beside the watch."""
        self.deeds.beside(("align", watch.run), alignment.align, self, watch.run)

    def _leave(self, watch: RunWatch, session: str, *, finished: bool, at: float) -> None:
        if watch.sessions.current is not None:
            watch.sessions.end(watch.sessions.current)
        self.diary.write("left", run=watch.run, finished=finished)
        self._carry_out(watch, watch.tell(TrainerLeft(finished=finished, at_seconds=at), session))
        self._follow(watch)
        self.deeds.save(watch.run)

    def _reply(self, watch: RunWatch, told: protocol.Message) -> dict[str, Any]:
        snapshot = watch.snapshot()
        self._shown = {**self._shown, watch.run: snapshot}
        return reply(watch, snapshot, told)

    def _show(self, watch: RunWatch) -> None:
        self._shown = {**self._shown, watch.run: watch.snapshot()}
