# SPDX-License-Identifier: Apache-2.0
"""The short form of `bench chaos`: kill -9 at random moments, under load; nothing acknowledged is lost, nothing is there twice."""

import random

import pytest

from bench.chaos import Process, compared

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
KILLS = 12


def test_killed_at_random_moments_it_ends_as_if_it_had_not_been(tmp_path):
    """Steps, incidents, captures, triage and report files are the same as of a daemon that lived on."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    done = compared(tmp_path, Process, KILLS, seed=seed, runs=2)

    assert done["found"] == done["expected"]
    assert (done["lost"], done["twice"], done["differing"]) == ([], [], [])
    assert done["kills"] == KILLS
    assert len(done["away"]) >= KILLS // 2
    incidents = [told for name, told in done["expected"].items() if name.startswith("incident ")]
    assert len(incidents) >= 2
    assert {told[0] for told in incidents} == {"non_finite"}
    assert {told[-1] for told in incidents} == {"non_finite"}  # every dump was looked at
    assert sum(name.startswith("report ") for name in done["expected"]) == len(incidents)
