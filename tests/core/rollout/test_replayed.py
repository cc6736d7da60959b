# SPDX-License-Identifier: Apache-2.0
"""Whether a replay happened: four witnesses, one of which may be wrong for once."""

import pytest

from sentinel.core.rollout.replayed import StepEvidence, prove, request_of, settled


@pytest.mark.parametrize(
    ("known", "verdict", "sure"),
    [
        ({}, "unknown", True),
        ({"loaded": True}, "replayed", True),
        ({"loaded": False}, "not_replayed", True),
        ({"gen_seconds": 0.02, "recorded_gen_seconds": 30.0}, "replayed", True),
        ({"gen_seconds": 29.0, "recorded_gen_seconds": 30.0}, "not_replayed", False),
        ({"gen_seconds": 9.0, "recorded_gen_seconds": 30.0}, "unknown", True),
        ({"gen_seconds": 0.1, "step_seconds": 20.0}, "replayed", True),
        ({"gen_seconds": 9.0, "step_seconds": 20.0}, "not_replayed", False),
        ({"gen_seconds": float("nan"), "step_seconds": 20.0}, "unknown", True),
        ({"lengths_equal": True}, "unknown", True),
        ({"text_equal": True}, "replayed", True),
        ({"gen_seconds": 0.02, "recorded_gen_seconds": 30.0, "text_equal": False}, "not_replayed", True),
        ({"gen_seconds": 0.02, "recorded_gen_seconds": 30.0, "lengths_equal": False}, "not_replayed", True),
    ],
)
def test_the_witnesses(known, verdict, sure):
    proof = prove(StepEvidence(step=1, **known))
    assert (proof.verdict, proof.sure) == (verdict, sure)
    assert proof.because


def test_the_time_alone_is_believed_after_three_steps_in_a_row():
    def proofs(*slow):
        return {n: prove(StepEvidence(step=n, gen_seconds=s, recorded_gen_seconds=10.0)) for n, s in enumerate(slow, 1)}

    assert settled(proofs(9.0, 0.1, 9.0, 9.0, 0.1)) == ()
    assert [proof.step for proof in settled(proofs(0.1, 9.0, 9.0, 9.0))] == [2, 3, 4]
    sure = {1: prove(StepEvidence(step=1, loaded=False))}
    assert [proof.step for proof in settled(sure)] == [1]


def test_what_the_configuration_asks_for_is_read_with_the_trainer_in_mind():
    skip = {"rollout": {"enable": True, "steps": [1, 2], "dump_dir": "/d"}, "rollout_tq": {"enable": False}}
    asked = request_of({"skip": skip}, "v0")
    assert (asked.section, asked.steps, asked.void) == ("rollout", (1, 2), None)
    assert "obeys skip.rollout_tq only" in request_of({"skip": skip}, "v1").void
    assert "steps is empty" in request_of({"skip": {"rollout": {"enable": True, "steps": []}}}, "v0").void
    assert request_of({"skip": {"rollout": {"enable": False}}}, "v0") is None
    assert request_of({}, "v0") is None
    assert request_of({"skip": skip}, None).void is None, "of which trainer is not known"
