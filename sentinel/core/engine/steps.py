# SPDX-License-Identifier: Apache-2.0
"""One reported step, from its place in the run's order to what the baseline says of it.

Orders of steps: the next one (gaps are fine); a fragment (new keys for a step already seen); a late step (fills a gap); a repeat
(the same numbers again, ignored); a restart (an earlier step with other numbers, or a new attempt: the run was resumed or rewound).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from sentinel.core.compare import Look, blank, free_look, replayed_look, without
from sentinel.core.engine.state import WatchState, warned
from sentinel.core.frames import Bools, Floats, SeriesFrame, SeriesIndex
from sentinel.core.window import PastStep
from sentinel.records import StepReported

FEW = 0.5
"""Share of the baseline's metrics below which a run is another recipe."""
PROMPTS = "prompt_length/mean"
PROMPT_MARGIN = 0.25
TOKENS = "perf/total_num_tokens"
BATCH_MARGIN = 0.02
LISTED = 8
NUMERIC_AFTER_SCORE = frozenset(
    {"reward", "advantage", "pg", "loss", "actor_grad", "critic_loss", "critic_grad", "explained", "variance", "vpred"}
)


@dataclass(frozen=True)
class Arrival:
    """How a report stands in the run's order."""

    how: str
    """next, fragment, late, repeat, restart, empty."""
    values: Mapping[str, float]
    unreadable: tuple[str, ...]


def arrival(state: WatchState, event: StepReported) -> Arrival:
    """Where the report belongs, and its values as plain floats."""
    values, unreadable = numbers(event)
    if not values:
        return Arrival("empty", values, unreadable)
    if state.last_step is None or event.step > state.last_step:
        return Arrival("fragment" if event.kind == "val" else "next", values, unreadable)
    if event.attempt > state.attempt:
        return Arrival("restart", values, unreadable)
    seen = next((past for past in reversed(state.past) if past.step == event.step), None)
    if seen is None:
        oldest = state.past[0].step if state.past else event.step
        return Arrival("late" if event.step > oldest else "restart", values, unreadable)
    return Arrival(_against_seen(state, seen, values), values, unreadable)


def numbers(event: StepReported) -> tuple[Mapping[str, float], tuple[str, ...]]:
    """The values that are numbers, and the keys of those that are not."""
    values = event.values
    if set(map(type, values.values())) <= {float}:
        return values, event.unreadable
    clean = {str(key): _number(value) for key, value in values.items()}
    bad = (key for key, value in clean.items() if value is None)
    return {key: value for key, value in clean.items() if value is not None}, tuple(
        dict.fromkeys((*event.unreadable, *bad))
    )


def _number(value: object) -> float | None:
    """The value as a float; None where it is no number. A missing number (null in verl's metrics) is not finite."""
    if value is None:
        return math.nan
    try:
        return float(cast("float", value))
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def _against_seen(state: WatchState, seen: PastStep, values: Mapping[str, float]) -> str:
    rows = {} if state.index is None else state.index.rows
    old = {
        key: seen.values[rows[key]]
        for key in values
        if key in rows and rows[key] < len(seen.present) and seen.present[rows[key]]
    }
    if not old:
        return "fragment"
    same = sum(value == values[key] or (math.isnan(value) and math.isnan(values[key])) for key, value in old.items())
    if same == len(old):
        return "repeat" if len(old) == len(values) else "fragment"
    return "restart"


def compared(state: WatchState, frame: SeriesFrame) -> Look:
    """The frame beside what the run's regime expects of it."""
    baseline, regime = state.baseline, state.regime
    if baseline is not None:
        replays_now = not baseline.rollout_steps or frame.step in baseline.rollout_steps
        if regime == "replayed" and state.pairing is not None and replays_now:
            return _evidence_only(replayed_look(frame, state.past, baseline, state.pairing))
        if regime == "free" and state.bands is not None:
            return free_look(frame, state.past, baseline, state.bands, state.lag)
    return blank(frame, state.past, regime, baseline)


def _evidence_only(look: Look) -> Look:
    """Under replay: where inputs differ, what is computed from them proves nothing."""
    if not look.different.any():
        return look
    groups = {look.frame.index.entries[row].group for row in np.flatnonzero(look.different)}
    if groups & {"prompt", "length"}:
        return without(look, ~look.frame.index.exact)
    return without(look, _rows_of(look, NUMERIC_AFTER_SCORE))


def _rows_of(look: Look, groups: frozenset[str]) -> Bools:
    entries = look.frame.index.entries
    return np.fromiter((entry.group in groups for entry in entries), dtype=np.bool_, count=len(entries))


def compatibility(state: WatchState, frame: SeriesFrame) -> tuple[WatchState, list[tuple[str, str]]]:
    """Whether the first full step fits the baseline at all; what is missing is said once."""
    baseline = state.baseline
    if baseline is None or state.comparable is not None:
        return state, []
    known = len(baseline.index)
    wanted = baseline.index.evidence & (baseline.present >= 0.9) & ~baseline.index.varies
    here = frame.present[:known]
    said: list[tuple[str, str]] = []
    missing = [baseline.index.keys[row] for row in np.flatnonzero(wanted & ~here)]
    if missing:
        said.append(
            (
                "missing_metrics",
                f"the baseline has {len(missing)} metrics that this run does not report: {_some(missing)}",
            )
        )
    reasons = _reasons(state, frame, int((wanted & here).sum()), int(wanted.sum()))
    if reasons:
        said.append(
            ("not_comparable", f"this run cannot be compared with baseline {baseline.name}: {'; '.join(reasons)}")
        )
    state = replace(state, comparable=not reasons)
    for code, text in said:
        state, _ = warned(state, code, text)
    return state, said


def _reasons(state: WatchState, frame: SeriesFrame, common: int, wanted: int) -> list[str]:
    reasons = []
    if common == 0 or common < FEW * wanted:
        reasons.append(f"only {common} of the baseline's {wanted} metrics are reported")
    baseline = state.baseline
    if baseline is None:
        return reasons
    cells = baseline.seeds.reshape(-1, len(baseline.index))
    prompts, usual = _prompts(frame.values, baseline.index), _prompts(cells, baseline.index)
    if _outside(prompts, usual, PROMPT_MARGIN):
        reasons.append(f"prompts have {prompts[0]:.4g} tokens on average where the baseline's have {_range(usual)}")
    rows, usual = _responses(frame.values, baseline.index), _responses(cells, baseline.index)
    if _outside(rows, usual, BATCH_MARGIN):
        reasons.append(f"a step has {rows[0]:.4g} responses where the baseline's have {_range(usual)}")
    return reasons


def _prompts(values: Floats, index: SeriesIndex) -> Floats:
    """Mean prompt length of each line of values; empty where it is not reported."""
    row = index.rows.get(PROMPTS)
    return np.zeros(0) if row is None else np.atleast_1d(values[..., row])


def _responses(values: Floats, index: SeriesIndex) -> Floats:
    """Responses of a step: all tokens over the mean tokens of a sample."""
    rows = [index.rows.get(key) for key in (TOKENS, PROMPTS, "response_length/mean")]
    if None in rows:
        return np.zeros(0)
    total, prompt, response = (np.atleast_1d(values[..., row]) for row in rows)
    return np.asarray(total / (prompt + response), dtype=np.float64)


def _outside(values: Floats, usual: Floats, margin: float) -> bool:
    """Whether a value is far from everything that the baseline has."""
    usual = usual[np.isfinite(usual)]
    if not usual.size or not values.size or not np.isfinite(values[0]):
        return False
    return not (1 - margin) * usual.min() <= float(values[0]) <= (1 + margin) * usual.max()


def _range(usual: Floats) -> str:
    usual = usual[np.isfinite(usual)]
    low, high = f"{usual.min():.4g}", f"{usual.max():.4g}"
    return low if low == high else f"{low} to {high}"


def _some(names: list[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")
