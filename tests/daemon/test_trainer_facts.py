# SPDX-License-Identifier: Apache-2.0
"""What a trainer says of itself decides about captures; what it does not say stays unknown."""

import pytest

from sentinel.daemon.captured import described


def test_ranks_come_from_the_launcher_and_the_size_from_the_largest_worker():
    told = described({"ranks": 4}, {"workers": [{"parameters": 10}, {"parameters": 5e8}, "?"]}, recorder=True)

    assert (told.ranks, told.parameters, told.recorder) == (4, 5e8, True)


@pytest.mark.parametrize("facts", [{}, {"ranks": "many"}, {"ranks": -1}, {"ranks": None}])
@pytest.mark.parametrize("more", [{}, {"workers": None}, {"workers": [{}]}, {"workers": [{"parameters": "big"}]}])
def test_what_cannot_be_read_is_not_known(facts, more):
    told = described(facts, more, recorder=False)

    assert (told.ranks, told.parameters) == (0, 0.0)
