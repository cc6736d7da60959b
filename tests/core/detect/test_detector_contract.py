# SPDX-License-Identifier: Apache-2.0
"""What every detector promises."""

import json
import math

import numpy as np
import pytest

from sentinel.core.detect import DETECTORS
from sentinel.core.engine import EngineSettings, from_plain, to_plain
from sentinel.core.report.incidents import RANK
from sentinel.records import STAGES, UNKNOWN_STAGE
from tests.support.runs import (
    a_grpo_run,
    a_reference,
    an_engine,
    changed,
    incidents,
    repeated,
    replaced,
    scaled,
    watched,
)

RUN = a_grpo_run(steps=30)
REFERENCES = {
    "replayed": a_reference(RUN, twins=(repeated(RUN, seed=3),)),
    "free": a_reference(*[a_grpo_run(steps=30, seed=seed) for seed in (2, 3, 4)]),
    "alone": None,
}
FAULTS = {
    "nonfinite": ("alone", replaced(actor__grad_norm=math.nan)),
    "mismatch": ("replayed", scaled("critic/score/mean", 2)),
    "departure": ("replayed", scaled("actor/entropy", 2)),
    "spike": ("free", scaled("actor/entropy", 5)),
    "drift": ("free", scaled("actor/entropy", 1.12)),
    "e_detector": ("free", scaled("actor/entropy", 1.12)),
    "limit": ("alone", replaced(training__rollout_probs_diff_mean=0.9)),
    "silence": ("alone", lambda metrics: {key: value for key, value in metrics.items() if key != "actor/entropy"}),
    "collapse": ("alone", replaced(actor__grad_norm=0.0)),
}


def only(name):
    return an_engine(detectors=(name,))


def test_the_released_names_are_the_tested_ones():
    assert set(DETECTORS) == set(FAULTS) == set(EngineSettings().detectors)


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("reference", REFERENCES)
def test_a_calm_run_has_no_findings(name, reference):
    run = repeated(RUN, seed=9) if reference == "replayed" else a_grpo_run(steps=30, seed=9)

    state, _ = watched(only(name), run, REFERENCES[reference])

    assert incidents(state) == []


@pytest.mark.parametrize("name", DETECTORS)
def test_it_finds_what_it_is_for_and_says_it_with_numbers(name):
    regime, change = FAULTS[name]

    state, _ = watched(
        only(name),
        changed(RUN if regime == "replayed" else a_grpo_run(steps=30, seed=9), at=12, change=change),
        REFERENCES[regime],
    )

    found = incidents(state)[0].findings
    assert found[0].step >= 12
    for finding in found:
        assert finding.detector == name
        assert finding.metric in finding.because
        assert f"step {finding.step}" in finding.because or f"up to step {finding.step}" in finding.because
        assert finding.kind in RANK
        assert finding.stage in {*STAGES, UNKNOWN_STAGE}


@pytest.mark.parametrize("name", DETECTORS)
def test_the_same_steps_give_the_same_findings(name):
    regime, change = FAULTS[name]
    bad = changed(RUN, at=12, change=change)

    first, _ = watched(only(name), bad, REFERENCES[regime])
    second, _ = watched(only(name), bad, REFERENCES[regime])

    assert repr(incidents(first)) == repr(incidents(second))


@pytest.mark.parametrize("name", DETECTORS)
def test_its_memory_survives_being_stored(name):
    regime, change = FAULTS[name]
    engine, reference = only(name), REFERENCES[regime]
    bad = changed(RUN, at=12, change=change)
    state, _ = watched(engine, bad[:11], reference)

    stored = from_plain(json.loads(json.dumps(to_plain(state))), reference)

    for kept in stored.memory.values():
        for value in getattr(kept, "__dict__", {}).values():
            assert not isinstance(value, np.ndarray) or not value.flags.writeable
    assert json.dumps(to_plain(stored)) == json.dumps(to_plain(state))


@pytest.mark.parametrize("name", DETECTORS)
def test_metrics_of_time_are_never_evidence(name):
    noisy = changed(RUN, at=12, change=scaled("timing_s/gen", math.inf))

    state, _ = watched(only(name), noisy, REFERENCES["alone"])

    assert incidents(state) == []
