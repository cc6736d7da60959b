# SPDX-License-Identifier: Apache-2.0
"""A journal line says what it holds, or nothing."""

import math

from hypothesis import given
from hypothesis import strategies as st

from sentinel.storage import entry_lines
from tests.support.properties import unhurried

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@unhurried
@given(seq=st.integers(1, 10**12), kind=st.text(), payload=st.dictionaries(st.text(), values, max_size=5))
def test_any_payload_and_kind_come_back(seq, kind, payload):
    line = entry_lines.encode(seq, kind, payload)

    assert line.count(b"\n") == 1
    assert entry_lines.decode(line) == entry_lines.Entry(seq, kind, payload)


@unhurried
@given(st.binary())
def test_no_bytes_raise(content):
    entry_lines.decode(content)
    entry_lines.header_version(content)


def test_nan_stays_nan():
    entry = entry_lines.decode(entry_lines.encode(1, "step", {"x": math.nan}))

    assert math.isnan(entry.payload["x"])
