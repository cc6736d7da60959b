# SPDX-License-Identifier: Apache-2.0
"""The short form of `make chaos`: everything around a real verl run goes wrong, and it trains the same bits."""

import random

import pytest

pytest.importorskip("verl", reason="a real verl run needs verl")
pytest.importorskip("msprobe", reason="captures are msprobe's")

from bench.chaos_training import WAIT_SECONDS, place

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
STEPS = 16
A_BUSY_MACHINE = 0.25
"""Seconds that a thread of a machine with more processes than cores may wait to be run again."""


def test_training_ends_with_the_bits_of_the_unwatched_run_and_no_step_waits_longer_than_the_bound(tmp_path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    with place(tmp_path, STEPS, 250.0) as at:
        expected = at.plain()
        result = at.disturbed(seed, expected)

    print(result)
    assert len(expected) == STEPS
    assert not result["failure"]
    assert result["differing"] == []
    assert result["injections"] >= 5
    assert result["garbage"] > 0
    assert result["waits"] >= STEPS - 3
    assert result["worst_wait"] < WAIT_SECONDS + A_BUSY_MACHINE
