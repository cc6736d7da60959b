# SPDX-License-Identifier: Apache-2.0
"""Allowances: no kind of row is allowed less than rounding alone, so rows within that need no further look."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.triage.tolerance import FACTORS, HALVES, RowKind, Tolerance

ROLES = ("output", "input", "gradient", "backward output", "backward input", "backward gradient")
SMALL = st.floats(0, 1)
ROWS = st.builds(
    RowKind,
    st.tuples(st.sampled_from(ROLES), st.just("mlp"), st.sampled_from(["float32", "bfloat16", "float16"])),
    st.lists(st.integers(1, 512), max_size=3).map(tuple),
)

TOLERANCES = st.tuples(st.floats(1, 50), st.none() | SMALL, SMALL)
"""Factor that clean pairs taught, how far weights moved, what every operation adds."""


@given(ROWS, st.tuples(SMALL, SMALL, SMALL), st.tuples(SMALL, SMALL, SMALL), TOLERANCES)
def test_no_kind_of_row_is_allowed_less_than_the_strictest_one(row, floor, reached, given_as):
    wide, moved, background = given_as
    tolerance = Tolerance({row.group: wide}, moved=moved, background=background)
    least = FACTORS["half" if row.group[2] in HALVES else "single"]

    for allowed, factor, rounding in zip(tolerance.allowance(row, floor, reached), least, floor, strict=True):
        assert allowed >= factor * rounding * (1 - 1e-12)


def test_what_came_in_deviating_is_allowed_to_go_out():
    row = RowKind(("output", "mlp", "float32"), (4, 64))
    floor = (1e-7, 1e-7, 1e-7)

    alone = Tolerance().allowance(row, floor, (0.0, 0.0, 0.0))
    reached = Tolerance().allowance(row, floor, (1e-3, 1e-3, 0.0))

    assert all(more > 100 * less for less, more in zip(alone, reached, strict=True))


@pytest.mark.parametrize(
    "wider", [Tolerance(moved=1e-3), Tolerance(background=1e-3), Tolerance({("output", "mlp", "float32"): 3.0})]
)
def test_moved_weights_another_arithmetic_and_clean_pairs_widen_it(wider):
    row, floor = RowKind(("output", "mlp", "float32"), (4, 64)), (1e-6, 1e-6, 1e-6)

    for plain, wide in zip(
        Tolerance().allowance(row, floor, (0.0, 0.0, 0.0)), wider.allowance(row, floor, (0.0, 0.0, 0.0)), strict=True
    ):
        assert wide > plain
