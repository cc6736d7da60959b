# SPDX-License-Identifier: Apache-2.0
"""Every value of every run survives the table, and absent stays absent."""

import io
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.errors import BaselineError
from sentinel.records import Reading
from sentinel.storage.metrics_table import MAX_CELLS, metric_keys, open_table, readings_of, to_parquet
from tests.support.baselines import same_readings
from tests.support.properties import unhurried

keys = st.one_of(
    st.text(max_size=8), st.sampled_from(["run", "step", "kind", "attempt", "metric_0", "actor/loss", "a.b"])
)
readings = st.builds(
    Reading,
    step=st.integers(-(2**63), 2**63 - 1),
    metrics=st.dictionaries(keys, st.floats(), max_size=5),
    kind=st.sampled_from(["train", "val"]),
    attempt=st.integers(1, 9),
)


@unhurried
@given(st.lists(st.lists(readings, max_size=6), max_size=4))
def test_any_runs_come_back(runs):
    names = metric_keys(runs)

    back = readings_of(open_table(to_parquet(runs, names), names, len(runs), "b"), names, len(runs))

    assert len(back) == len(runs)
    assert all(same_readings(a, b) for a, b in zip(runs, back, strict=True))


def test_the_table_stands_for_itself():
    runs = [[Reading(step=4, metrics={"actor/loss": math.nan, "step": 0.5}), Reading(step=5, metrics={"step": 1.5})]]

    table = pq.read_table(io.BytesIO(to_parquet(runs, metric_keys(runs))))

    assert table.column_names == ["run", "step", "kind", "attempt", "actor/loss", "metric_1"]
    assert table.column("actor/loss").null_count == 1
    assert table.column("metric_1").to_pylist() == [0.5, 1.5]


def table_of(**columns):
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


FIXED = {
    "run": pa.array([0], pa.int32()),
    "step": pa.array([1], pa.int64()),
    "kind": pa.array(["train"]),
    "attempt": pa.array([1], pa.int32()),
}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cannot be read"),
        (b"PAR1 nonsense PAR1", "cannot be read"),
        (table_of(**FIXED), "0 metrics, its manifest 1"),
        (table_of(**FIXED | {"run": pa.array([7], pa.int32()), "m": [1.0]}), "other runs"),
        (table_of(**FIXED | {"run": pa.array([-1], pa.int32()), "m": [1.0]}), "other runs"),
        (table_of(**FIXED | {"step": pa.array([None], pa.int64()), "m": [1.0]}), "not step"),
        (table_of(**FIXED | {"step": ["1"], "m": [1.0]}), "not step"),
        (table_of(**FIXED, m=["text"]), "no float64"),
        (table_of(**FIXED | {"kind": pa.array([b"\xff"]).view(pa.string())}, m=[1.0]), "cannot be read"),
    ],
)
def test_a_table_that_is_no_such_table_is_refused(content, why):
    with pytest.raises(BaselineError, match=why):
        open_table(content, ["m"], 1, "b")


def test_a_table_that_would_unpack_to_gigabytes_is_refused_before_it_does():
    runs = [[Reading(step=step, metrics={"m": 0.0}) for step in range(1000)]]
    content = to_parquet(runs, ["m"])

    with pytest.raises(BaselineError, match="1000 rows of 5 columns; refused"):
        open_table(content, ["m"], 1, "b", max_cells=4999)
    assert open_table(content, ["m"], 1, "b", max_cells=5000).num_rows == 1000
    assert MAX_CELLS * 8 < 2 << 30
