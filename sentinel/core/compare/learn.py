# SPDX-License-Identifier: Apache-2.0
"""Reference runs as arrays: runs x steps x series, on the steps that any of them has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sentinel.core.catalogue import Catalogue
from sentinel.core.frames import Bools, Floats, Integers, SeriesIndex, frozen, index_of
from sentinel.records import Reading, Reference, ReferenceRun

Run = dict[int, dict[str, float]]


EQUAL = 1e-6
"""Relative difference up to which two numbers count as equal: a sum in another order (verl V1 replays: 1e-7)."""
ENGINE = ("rollout_corr/rollout_log_ppl", "rollout_corr/rollout_ppl")
"""The rollout engine's own perplexity of what it sampled."""
WITH_PROMPTS = "global_seqlen/"
"""Lengths that count the prompts, too: other prompts under the recorded responses are a fault, not a free run."""
SEEN, SHOWN = 1.5, 3.0
"""Under replay agreement with recorded log-probs falls as weights part, and twins are only some of the ways."""
SAMPLE = 200
"""Cells looked at for chance agreement."""


@dataclass(frozen=True)
class Telling:
    """Series that are equal under replay and differ otherwise."""

    rows: Integers
    bans: float
    """log10 of the odds for a replay when all of them are equal at a step."""


@dataclass(frozen=True)
class Baseline:
    """All reference runs on one grid. Row i of the grid's series is row i of a watch's index, which begins with these keys."""

    name: str
    index: SeriesIndex
    steps: tuple[int, ...]
    line: Mapping[int, int]
    """Step -> place on the step axis."""
    seeds: Floats
    """(seeds, steps, series); NaN where absent or NaN."""
    twins: Floats
    """(twins, steps, series)."""
    present: Floats
    """(series,): share of the seeds' own steps that have the metric."""
    furthest: Floats
    """(series,): how far from perfect agreement healthy runs may stand: `SEEN` times the most of any seed, `SHOWN` times that of any twin."""
    not_finite: Bools
    """(steps, series): some seed or twin is NaN or infinite there."""
    lengths: Telling
    scores: Telling
    engine_rows: Integers
    """Rows of `ENGINE`."""
    recorded: bool
    """Replays take the rollout engine's log-probs from the recording: its twins have them in all steps, although training parted."""
    resolution: float
    """Half the smallest difference the coarsest reference file can show; 0 where not limited."""
    rollout_steps: frozenset[int]
    """Steps whose rollouts are recorded; empty: unknown."""

    @property
    def last_step(self) -> int:
        """Last step of any reference run."""
        return self.steps[-1]


def learn(reference: Reference, catalogue: Catalogue) -> Baseline | None:
    """Put the reference runs on one grid; None when no run has a step."""
    seeds = [_flat(run) for run in reference.runs if not run.twin]
    twins = [_flat(run) for run in reference.runs if run.twin]
    if not any(seeds):
        # Twins alone are still clean runs of the recipe.
        seeds, twins = twins, []
    seeds = [run for run in seeds if run]
    if not seeds:
        return None
    keys = tuple(dict.fromkeys(key for run in (*seeds, *twins) for values in run.values() for key in values))
    index = index_of(keys, catalogue)
    steps = tuple(sorted({step for run in (*seeds, *twins) for step in run}))
    line = {step: place for place, step in enumerate(steps)}
    cells = np.array([_grid(run, index, line) for run in seeds])
    resolutions = [run.resolution / 2 for run in reference.runs if run.resolution]
    engine = np.array([index.rows[key] for key in ENGINE if key in index.rows], dtype=np.int64)
    grids = np.array([_grid(run, index, line) for run in twins]).reshape(len(twins), len(steps), len(keys))
    return Baseline(
        name=reference.name,
        index=index,
        steps=steps,
        line=line,
        seeds=frozen(cells),
        twins=frozen(grids),
        present=frozen(_shares(seeds, index)),
        furthest=frozen(np.maximum(SEEN * _furthest(cells, index), SHOWN * _furthest(grids, index))),
        not_finite=frozen(_not_finite((*seeds, *twins), index, line)),
        lengths=_telling(index, cells, "length"),
        scores=_telling(index, cells, "score"),
        engine_rows=engine,
        recorded=_recorded(grids, cells, index, engine),
        resolution=max(resolutions, default=0.0),
        rollout_steps=frozenset(reference.rollout_steps),
    )


def _furthest(runs: Floats, index: SeriesIndex) -> Floats:
    """Largest distance from perfect agreement in any of the runs, shape (series,); 0 without runs."""
    return np.asarray(
        np.nan_to_num(np.abs(runs - index.perfect), nan=0.0).max(axis=(0, 1), initial=0.0), dtype=np.float64
    )


def _recorded(twins: Floats, seeds: Floats, index: SeriesIndex, engine: Integers) -> bool:
    """Whether every twin has a seed's engine rows in all steps, more than one, although training parted in some twin.

    Twins on one kind of kernel may be equal in everything, which says nothing of where the log-probs come from.
    `twins` and `seeds` have the shape (runs, steps, series).
    """
    apart = np.abs(twins[:, None] - seeds[None])
    equal = np.isnan(apart) | (apart <= EQUAL * np.maximum(np.abs(seeds[None]), EQUAL))
    told = np.isfinite(apart[..., engine]).any(axis=3).sum(axis=2) > 1
    same = told & equal[..., engine].all(axis=(2, 3))
    trained = np.setdiff1d(np.flatnonzero(index.paired), engine)
    return bool(len(twins) and same.any(axis=1).all() and (same & ~equal[..., trained].all(axis=(2, 3))).any())


def _telling(index: SeriesIndex, cells: Floats, group: str) -> Telling:
    """Series of an evidence group, and how rarely two different cells of the baseline agree in all of its means."""
    rows = np.array(
        [
            row
            for row, (key, entry) in enumerate(zip(index.keys, index.entries, strict=True))
            if entry.group == group and entry.metric_class == "exact" and not key.startswith(WITH_PROMPTS)
        ],
        dtype=np.int64,
    )
    means = [row for row in rows if "max" not in index.keys[row] and "min" not in index.keys[row]]
    if not means:
        return Telling(rows=rows, bans=0.0)
    seen = cells[:, :, means].reshape(-1, len(means))
    seen = seen[np.isfinite(seen).all(axis=1)][:SAMPLE]
    if len(seen) < 2:
        return Telling(rows=rows, bans=0.0)
    near = np.abs(seen[:, None] - seen[None, :]) <= EQUAL * np.maximum(np.abs(seen[None, :]), EQUAL)
    pairs = len(seen) * (len(seen) - 1)
    agree = float(near.all(axis=2).sum() - len(seen))
    # Several seeds are several chances.
    return Telling(rows=rows, bans=max(0.0, -float(np.log10((agree + 1.0) / (pairs + 2.0) * len(cells)))))


def _flat(run: ReferenceRun) -> dict[int, dict[str, float]]:
    """One value a step: a later attempt replaces an earlier one from its first step on."""
    flat: dict[int, dict[str, float]] = {}
    attempt = None
    for reading in run.readings:
        if attempt is not None and reading.attempt != attempt:
            flat = {step: values for step, values in flat.items() if step < reading.step}
        attempt = reading.attempt
        flat.setdefault(reading.step, {}).update(_numbers(reading))
    return flat


def _numbers(reading: Reading) -> dict[str, float]:
    return {key: float(value) for key, value in reading.metrics.items() if isinstance(value, (int, float))}


def _grid(run: Mapping[int, Mapping[str, float]], index: SeriesIndex, line: Mapping[int, int]) -> Floats:
    out = np.full((len(line), len(index)), np.nan)
    for step, values in run.items():
        for key, value in values.items():
            out[line[step], index.rows[key]] = value
    out[~np.isfinite(out)] = np.nan
    return out


def _shares(seeds: Sequence[Run], index: SeriesIndex) -> Floats:
    counts = np.zeros(len(index))
    total = 0
    for run in seeds:
        # Steps that hold validation only say nothing about what a training step holds.
        full = max((len(values) for values in run.values()), default=0)
        for values in run.values():
            if 2 * len(values) < full:
                continue
            total += 1
            for key in values:
                counts[index.rows[key]] += 1
    return counts / max(total, 1)


def _not_finite(runs: Sequence[Run], index: SeriesIndex, line: Mapping[int, int]) -> Bools:
    out = np.zeros((len(line), len(index)), dtype=np.bool_)
    for run in runs:
        for step, values in run.items():
            for key, value in values.items():
                if not math.isfinite(value):
                    out[line[step], index.rows[key]] = True
    return out
