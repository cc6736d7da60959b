# SPDX-License-Identifier: Apache-2.0
"""A step's metrics as arrays over series: row i belongs to key i of the index.

Absent is not zero and not NaN: `present` tells the three apart. Rows are only ever added, so that what was learned of a row stays true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.core.catalogue import BANDED, FREE_WINDOWS, PAIRED, REPLAY_WINDOWS, Catalogue, Entry

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, read-only: the next state holds a new one."""
    array.flags.writeable = False
    return array


def grown(array: NDArray[Any], rows: int, fill: float) -> NDArray[Any]:
    """The array with rows added at the end; the same array when there is nothing to add."""
    missing = rows - array.shape[0]
    if missing <= 0:
        return array
    tail = np.full((missing, *array.shape[1:]), fill, dtype=array.dtype)
    return np.concatenate([array, tail])


@dataclass(frozen=True)
class SeriesIndex:
    """Which key stands in which row, and what the catalogue says of each, as columns."""

    keys: tuple[str, ...]
    rows: Mapping[str, int]
    entries: tuple[Entry, ...]
    evidence: Bools
    """Rules apply to the row at all."""
    exact: Bools
    paired: Bools
    banded: Bools
    relative: Bools
    """Deviations are measured in shares of the baseline's value, and bands in logarithms."""
    log: Bools
    """Deviations are ratios where all values are positive."""
    replay: Floats
    """(windows, series): limits of a replay's median deviations."""
    free: Floats
    noise: Floats
    """(2, series): clean replays' noise without twins, at the first steps and about step 65; NaN: not measured."""
    control: Bools
    bursty: Bools
    heavy: Bools
    varies: Bools
    up: Bools
    """A high value is bad."""
    down: Bools
    """A low value is bad."""
    rel: Floats
    abs: Floats
    floor: Floats
    natural: Floats
    ok: Floats
    """NaN where there is no limit."""
    bad: Floats
    perfect: Floats
    """What a self-consistent metric has when its two sides agree: 1 where low is bad, else 0."""
    first: Floats
    absurd: Floats
    groups: tuple[str, ...]
    """Evidence groups in order of first appearance; the first is the empty one."""
    group: Integers
    """Place of the row's group in `groups`."""

    def __len__(self) -> int:
        return len(self.keys)


def index_of(keys: tuple[str, ...], catalogue: Catalogue) -> SeriesIndex:
    """Columns for these keys, in this order."""
    entries = tuple(catalogue.entry(key) for key in keys)
    groups = tuple(dict.fromkeys(("", *(entry.group for entry in entries))))
    places = {group: place for place, group in enumerate(groups)}

    def flags(test: Any) -> Bools:
        return frozen(np.fromiter((test(entry) for entry in entries), dtype=np.bool_, count=len(entries)))

    def numbers(read: Any) -> Floats:
        return frozen(np.fromiter((read(entry) for entry in entries), dtype=np.float64, count=len(entries)))

    def columns(read: Any, lines: int) -> Floats:
        return frozen(
            np.array([read(entry) for entry in entries], dtype=np.float64).reshape(len(entries), lines).T.copy()
        )

    return SeriesIndex(
        keys=keys,
        rows={key: row for row, key in enumerate(keys)},
        entries=entries,
        evidence=flags(lambda entry: entry.evidence),
        exact=flags(lambda entry: entry.metric_class == "exact"),
        paired=flags(lambda entry: entry.metric_class in PAIRED),
        banded=flags(lambda entry: entry.metric_class in BANDED),
        relative=flags(lambda entry: entry.metric_class in {"close", "scale"}),
        log=flags(lambda entry: entry.log or entry.metric_class in {"close", "scale"}),
        replay=columns(lambda entry: entry.replay_limits, len(REPLAY_WINDOWS)),
        free=columns(lambda entry: entry.free_limits, len(FREE_WINDOWS)),
        noise=columns(lambda entry: entry.noise or (np.nan, np.nan), 2),
        control=flags(lambda entry: entry.metric_class == "control"),
        bursty=flags(lambda entry: entry.bursty or entry.metric_class == "scale"),
        heavy=flags(lambda entry: entry.heavy),
        varies=flags(lambda entry: entry.varies),
        up=flags(lambda entry: entry.direction in {"both", "up"}),
        down=flags(lambda entry: entry.direction in {"both", "down"}),
        rel=numbers(lambda entry: entry.rel),
        abs=numbers(lambda entry: entry.abs),
        floor=numbers(lambda entry: entry.floor),
        natural=numbers(lambda entry: entry.natural),
        ok=numbers(lambda entry: np.nan if entry.ok is None else entry.ok),
        bad=numbers(lambda entry: np.nan if entry.bad is None else entry.bad),
        perfect=numbers(lambda entry: 1.0 if entry.direction == "down" else 0.0),
        first=numbers(lambda entry: np.nan if entry.first is None else entry.first),
        absurd=numbers(lambda entry: entry.absurd),
        groups=groups,
        group=frozen(np.fromiter((places[entry.group] for entry in entries), dtype=np.int64, count=len(entries))),
    )


@dataclass(frozen=True)
class SeriesFrame:
    """One step of a run."""

    step: int
    index: SeriesIndex
    values: Floats
    """NaN where a value is NaN and where it is absent."""
    present: Bools

    @property
    def finite(self) -> Bools:
        """Rows that hold a number to compute with."""
        return np.isfinite(self.values)


def framed(step: int, values: Mapping[str, float], index: SeriesIndex, catalogue: Catalogue) -> SeriesFrame:
    """The step as arrays; keys that are new get rows of their own at the end."""
    rows = index.rows
    if not rows.keys() >= values.keys():
        new = tuple(key for key in values if key not in rows)
        index = index_of(index.keys + new, catalogue)
        rows = index.rows
    column = np.full(len(index), np.nan)
    present = np.zeros(len(index), dtype=np.bool_)
    if values:
        where = np.fromiter(map(rows.__getitem__, values), dtype=np.int64, count=len(values))
        column[where] = np.fromiter(values.values(), dtype=np.float64, count=len(values))
        present[where] = True
    return SeriesFrame(step=step, index=index, values=frozen(column), present=frozen(present))
