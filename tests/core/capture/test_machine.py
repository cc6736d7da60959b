# SPDX-License-Identifier: Apache-2.0
"""The life of a capture: its table, and everything that the table forbids."""

import itertools

import pytest

from sentinel.core.capture.machine import ENDED, EVENT_OF_OUTCOME, EVENTS, STATES, TRANSITIONS, after
from sentinel.errors import IllegalTransition


@pytest.mark.parametrize(("pair", "state"), TRANSITIONS.items())
def test_every_line_of_the_table_is_followed(pair, state):
    assert after(*pair) == state


@pytest.mark.parametrize(("state", "event"), sorted(set(itertools.product(STATES, EVENTS)) - set(TRANSITIONS)))
def test_every_pair_that_is_not_in_the_table_is_refused(state, event):
    with pytest.raises(IllegalTransition) as caught:
        after(state, event)

    assert (caught.value.state, caught.value.event) == (state, event)


def test_what_has_ended_stays_ended():
    assert {state for state, _ in TRANSITIONS} == set(STATES) - ENDED


def test_every_outcome_is_an_event():
    assert set(EVENT_OF_OUTCOME.values()) <= set(EVENTS)
