# SPDX-License-Identifier: Apache-2.0
"""Alignment of two sequences of operations."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.triage import alignment
from sentinel.core.triage.alignment import common_subsequence

words = st.text(alphabet="abc", max_size=25)


def longest(one, other):
    """The length of the longest common subsequence, by the textbook's table."""
    row = [0] * (len(other) + 1)
    for x in one:
        last = 0
        for place, y in enumerate(other):
            kept = row[place + 1]
            row[place + 1] = last + 1 if x == y else max(row[place], row[place + 1])
            last = kept
    return row[-1]


@given(words, words)
def test_pairs_rise_on_both_sides_join_equals_and_are_the_most(one, other):
    pairs = common_subsequence(one, other)

    assert all(one[x] == other[y] for x, y in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
    assert len(pairs) == longest(one, other)


def test_two_programs_that_share_only_their_ends_keep_those(monkeypatch):
    monkeypatch.setattr(alignment, "MOST_EDITS", 3)

    assert common_subsequence("ab" + "x" * 50 + "c", "ab" + "y" * 50 + "c") == [(0, 0), (1, 1), (52, 52)]


def test_an_insertion_among_many_equal_items_costs_little():
    one = "ab" * 20_000
    other = one[:777] + "z" + one[777:]

    assert len(common_subsequence(one, other)) == len(one)
