# SPDX-License-Identifier: Apache-2.0
"""Departures from a replayed run that are none: an entropy that the other backend computes otherwise."""

import json
from pathlib import Path

import pytest

from sentinel.core.detect.departure import ENTROPY, LOG_PROBS
from sentinel.daemon.references import load_reference
from sentinel.records import Reading
from tests.support.runs import an_engine, changed, incidents, scaled, watched

ROOT = Path(__file__).parents[3]
BUNDLE = ROOT / "examples" / "h200" / "tiny-grpo-bf16.sentinel"


@pytest.fixture(scope="module")
def cpu():
    """A healthy bf16 run on a CPU that replays the H200's rollouts: every entropy is 3 to 6 % higher, log-probs agree."""
    path = ROOT / "bench" / "hardware" / "data" / "cpu-replay-bf16.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return tuple(Reading(step=line["step"], metrics=line["data"]) for line in lines)


def judged(run):
    return incidents(watched(an_engine(), run, load_reference(BUNDLE))[0])


def test_an_entropy_that_is_off_at_equal_weights_while_log_probs_agree_is_computed_otherwise(cpu):
    state, _ = watched(an_engine(), cpu, load_reference(BUNDLE))

    assert incidents(state) == []
    assert [code for code, _ in state.warned].count("entropy_computed_otherwise") == 1


def test_one_that_leaves_later_is_a_departure(cpu):
    """Put right for the first steps, so that its offset begins where weights have moved."""
    late = changed(cpu, at=1, until=3, change=scaled(ENTROPY, 0.97))

    assert [incident.findings[0].metric for incident in judged(late)][:1] == [ENTROPY]


def test_one_that_the_log_probs_bear_out_is_a_departure(cpu):
    worse = changed(cpu, at=12, change=scaled(ENTROPY, 1.2, LOG_PROBS, 1.2))

    assert {finding.metric for incident in judged(worse) for finding in incident.findings} >= {ENTROPY, LOG_PROBS}
