# SPDX-License-Identifier: Apache-2.0
"""When a capture is best made: what it would cost now, where a golden dump waits, and when the run should dump itself."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sentinel.core.capture.policy import Moment, affordable, ranks_of
from sentinel.core.engine.state import EngineSettings, WatchState
from sentinel.records import CaptureOrder

TOKENS = "perf/total_num_tokens"
HEALTHY = "healthy"
"""Behind the run's name: the capture of the run's own healthy dump."""
GOLDEN_AHEAD = 20
"""Steps that a second capture waits for one that has a golden dump; further off the incident is another one."""


def moment(state: WatchState, first_step: int) -> Moment:
    """When a capture that begins at `first_step` would be."""
    row = state.index.rows.get(TOKENS) if state.index is not None else None
    past = state.past[-1] if state.past else None
    known = row is not None and past is not None and row < len(past.present) and bool(past.present[row])
    return Moment(
        step=first_step,
        now=state.last_at_seconds or 0.0,
        trained_seconds=state.steps_seen * state.step_seconds,
        tokens=float(past.values[row]) if known and past is not None else 0.0,
    )


def next_golden(state: WatchState, stages: Collection[str], first: int) -> int | None:
    """The next step, from `first` on, at which the reference dumped one of these stages; None where none is near."""
    dumps = state.reference.dumps if state.reference is not None else ()
    ahead = [dump.step for dump in dumps if dump.stage in stages and first <= dump.step <= first + GOLDEN_AHEAD]
    return min(ahead, default=None)


def reference_order(state: WatchState, step: int, settings: EngineSettings) -> CaptureOrder | None:
    """The order of a run's own healthy dump: of every stage, at one step, as cheap as it gets."""
    book, capture = state.book, settings.capture
    golden = state.reference is not None and bool(state.reference.dumps)
    asked = any(one.id == f"{state.run}:{HEALTHY}" for one in book.captures)
    due = capture.healthy_step > 0 and step + 1 >= capture.healthy_step
    if golden or asked or not due or not capture.enabled or not book.stages:
        return None
    order = CaptureOrder(
        id="",
        run=state.run,
        incident=None,
        first_step=step + 1,
        last_step=step + 1,
        stages=book.stages,
        level="L0",
        ranks=ranks_of(book.ranks, capture),
        why="the run's own healthy dump: no golden dump is there to compare with at an incident",
    )
    given = affordable(order, moment(state, step + 1), book, capture)
    return None if isinstance(given, str) else replace(given, id=f"{state.run}:{HEALTHY}")
