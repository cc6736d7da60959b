# SPDX-License-Identifier: Apache-2.0
"""Runs as one Parquet table, and back: columns run, step, kind, attempt, then one float64 column a metric.

Null is an absent metric, NaN is NaN. The table stands for itself: pandas, DuckDB or a spreadsheet tool can open it. A
column has its metric's name, except where that is impossible (it collides with the first four, or is no UTF-8); the
order of the columns is what counts, and the manifest lists the keys in that order.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentinel.errors import BaselineError
from sentinel.records import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FIXED = {"run": pa.int32(), "step": pa.int64(), "kind": pa.string(), "attempt": pa.int32()}
# 5 seeds of 100,000 steps with 100 metrics are 5e7 cells, and as Python floats some 5 GB.
MAX_CELLS = 200_000_000
_ROWS_A_GROUP = 65_536


def metric_keys(runs: Sequence[Sequence[Reading]]) -> tuple[str, ...]:
    """Return every metric key of the runs, sorted."""
    return tuple(sorted({key for run in runs for reading in run for key in reading.metrics}))


def _column_names(keys: Sequence[str]) -> list[str]:
    taken = set(FIXED)
    names = []
    for position, key in enumerate(keys):
        usable = key != "" and "\0" not in key and _is_utf8(key)
        name = key if usable and key not in taken else f"metric_{position}"
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return names


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_parquet(runs: Sequence[Sequence[Reading]], keys: Sequence[str]) -> bytes:
    """Return the table of the runs' readings, in the order given."""
    rows = [(number, reading) for number, run in enumerate(runs) for reading in run]
    column_of = {key: position for position, key in enumerate(keys)}
    values = np.zeros((len(keys), len(rows)))
    absent = np.ones((len(keys), len(rows)), dtype=bool)
    for row, (_, reading) in enumerate(rows):
        at = [column_of[key] for key in reading.metrics]
        values[at, row] = list(reading.metrics.values())
        absent[at, row] = False
    names = _column_names(keys)
    told = [(number, reading.step, reading.kind, reading.attempt) for number, reading in rows]
    fixed = [pa.array([row[i] for row in told], kind) for i, kind in enumerate(FIXED.values())]
    columns = [pa.array(values[i], pa.float64(), mask=absent[i]) for i in range(len(keys))]
    table = pa.table(fixed + columns, names=[*FIXED, *names])
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        row_group_size=_ROWS_A_GROUP,
        compression="zstd",
        compression_level=9,
        use_dictionary=["kind"],
        # The exponents of a metric hardly change from step to step, its low bits always do: bytes apart pack better.
        use_byte_stream_split=names,
        write_statistics=False,
        store_schema=False,
    )
    return sink.getvalue()


def open_table(content: bytes, keys: Sequence[str], runs: int, path: object, *, max_cells: int = MAX_CELLS) -> pa.Table:
    """Return the table that `to_parquet` made, decoded and checked.

    Args:
        content: its bytes.
        keys: the metric keys in the order of the columns.
        runs: how many runs it is said to hold.
        path: the bundle, for messages.
        max_cells: rows times columns of the largest table that is read.

    Raises:
        BaselineError: it is no such table.
    """
    try:
        opened = pq.ParquetFile(io.BytesIO(content))
        rows, width = opened.metadata.num_rows, opened.metadata.num_columns
        if width != len(FIXED) + len(keys):
            raise BaselineError(path, f"its metric table has {width - len(FIXED)} metrics, its manifest {len(keys)}")
        if rows * width > max_cells:
            raise BaselineError(path, f"its metric table has {rows} rows of {width} columns; refused")
        table = opened.read()
        _check(table, runs)
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        why = " ".join(str(error).split())[:200]
        raise BaselineError(path, f"its metric table cannot be read: {why}") from error
    return table


def _check(table: pa.Table, runs: int) -> None:
    table.validate(full=True)
    for position, (name, kind) in enumerate(FIXED.items()):
        column = table.column(position)
        if table.column_names[position] != name or column.type != kind or column.null_count:
            raise ValueError(f"column {position} is not {name}")
    for position in range(len(FIXED), table.num_columns):
        if table.column(position).type != pa.float64():
            raise ValueError(f"column {position} holds no float64")
    numbers = table.column(0).to_pylist()
    if numbers and not 0 <= min(numbers) <= max(numbers) < runs:
        raise ValueError(f"it holds other runs than the {runs} of the manifest")


def readings_of(table: pa.Table, keys: Sequence[str], runs: int) -> list[tuple[Reading, ...]]:
    """Return the readings of each run of an opened table."""
    values = np.empty((len(keys), table.num_rows))
    present = np.ones((len(keys), table.num_rows), dtype=bool)
    for position in range(len(keys)):
        column = table.column(len(FIXED) + position)
        values[position] = column.to_numpy(zero_copy_only=False)
        if column.null_count:
            present[position] = column.is_valid().to_numpy(zero_copy_only=False)
    found: list[list[Reading]] = [[] for _ in range(runs)]
    fixed = (table.column(position).to_pylist() for position in range(len(FIXED)))
    for run, step, kind, attempt, metrics in zip(*fixed, _rows_as_dicts(values.T, present.T, keys), strict=True):
        found[run].append(Reading(step=step, metrics=metrics, kind=kind, attempt=attempt))
    return [tuple(run) for run in found]


def _rows_as_dicts(
    values: NDArray[np.float64], present: NDArray[np.bool_], keys: Sequence[str]
) -> list[dict[str, float]]:
    """Return one dict a row, without the absent keys; rows with the same set of keys are turned over together."""
    patterns: dict[bytes, list[int]] = {}
    for row, packed in enumerate(np.packbits(present, axis=1)):
        patterns.setdefault(packed.tobytes(), []).append(row)
    found: list[dict[str, float]] = [{} for _ in range(len(values))]
    for rows in patterns.values():
        at = np.flatnonzero(present[rows[0]]).tolist()
        names = [keys[position] for position in at]
        for row, line in zip(rows, values[rows][:, at].tolist(), strict=True):
            found[row] = dict(zip(names, line, strict=True))
    return found
