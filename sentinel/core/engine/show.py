# SPDX-License-Identifier: Apache-2.0
"""A watch as shells show it: the snapshot of now, and charts of the recent past."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sentinel.core.engine.state import WatchState
from sentinel.core.engine.steps import compared
from sentinel.core.frames import SeriesFrame, grown
from sentinel.records import Band, Chart, MetricState, RunSnapshot


def snapshot_of(state: WatchState) -> RunSnapshot:
    """The run as it is now."""
    incidents = tuple(tracked.incident for tracked in state.docket)
    return RunSnapshot(
        run=state.run,
        state=_condition(state),
        regime=state.regime,
        last_step=state.last_step,
        last_step_at_seconds=state.last_at_seconds,
        baseline=None if state.reference is None else state.reference.name,
        metrics=_metrics(state),
        incidents=incidents,
        captures=state.book.captures,
        warnings=tuple(f"{code}: {text}" for code, text in state.warned),
        steps_seen=state.steps_seen,
    )


def _condition(state: WatchState) -> str:
    open_kinds = {tracked.incident.kind for tracked in state.docket if tracked.incident.state == "open"}
    if state.ended:
        return "finished"
    if "silence" in open_kinds:
        return "silent"
    if open_kinds:
        return "incident"
    return "waiting" if state.last_step is None else "watching"


def _metrics(state: WatchState) -> tuple[MetricState, ...]:
    look = state.look
    if look is None:
        return ()
    frame = look.frame
    out = []
    for row in np.flatnonzero(frame.present):
        low, high, ratio = float(look.low[row]), float(look.high[row]), float(look.ratio[row])
        out.append(
            MetricState(
                metric=frame.index.keys[row],
                stage=frame.index.entries[row].stage,
                value=float(frame.values[row]),
                expected=None if low == -np.inf and high == np.inf else Band(low=low, high=high),
                score=None if np.isnan(ratio) else ratio,
            )
        )
    return tuple(out)


def charts_of(state: WatchState, metrics: Iterable[str]) -> tuple[Chart, ...]:
    """The recent past of some metrics beside what was expected of them; metrics that the run never had are left out."""
    index = state.index
    if index is None or not state.past:
        return ()
    rows = [index.rows[key] for key in dict.fromkeys(metrics) if key in index.rows]
    looks = [
        compared(
            state,
            SeriesFrame(
                step=past.step,
                index=index,
                values=grown(past.values, len(index), np.nan),
                present=grown(past.present, len(index), 0),
            ),
        )
        for past in state.past
    ]
    marks = [(finding.metric, finding.step) for tracked in state.docket for finding in tracked.incident.findings]
    return tuple(
        Chart(
            metric=index.keys[row],
            stage=index.entries[row].stage,
            steps=tuple(look.frame.step for look in looks),
            values=tuple(float(look.frame.values[row]) for look in looks),
            reference=tuple(float(look.expected[row]) for look in looks),
            low=tuple(float(look.low[row]) for look in looks),
            high=tuple(float(look.high[row]) for look in looks),
            marked=tuple(sorted({step for metric, step in marks if metric == index.keys[row]})),
        )
        for row in rows
    )
