# SPDX-License-Identifier: Apache-2.0
"""The answer of the decisive experiment: inference, training, or nothing that can be decided."""

import pytest

from sentinel.core.rollout.decision import decide
from sentinel.records import Chart, Incident

SAME = tuple(0.5 for _ in range(4))


def chart(metric, values=SAME, band=0.1):
    low, high = tuple(v - band for v in SAME), tuple(v + band for v in SAME)
    return Chart(metric=metric, stage="x", steps=(1, 2, 3, 4), values=values, reference=SAME, low=low, high=high)


CHARTS = [
    chart(name)
    for name in ("response_length/mean", "critic/score/mean", "critic/rewards/mean", "actor/pg_loss", "actor/grad_norm")
]


def incident(stage, step=3, kind="drift"):
    return Incident(
        id="r:1", run="r", kind=kind, state="open", opened_at_step=step, closed_at_step=None, severity="critical",
        stage=stage, suspects=(), findings=(),
    )  # fmt: skip


def test_agreement_on_equal_text_leaves_inference():
    found = decide("replayed", (), CHARTS)
    assert (found.side, found.stage, found.equal_up_to_step) == ("inference", "rollout", 4)
    assert "training is sound" in found.because
    assert len(found.evidence) == 3


@pytest.mark.parametrize(
    "stage", ["actor_update", "actor_compute_log_prob", "ref_compute_log_prob", "compute_rm_score"]
)
def test_a_stage_that_parts_on_equal_text_is_training(stage):
    found = decide("replayed", (incident(stage), incident("rollout", 4)), CHARTS)
    assert (found.side, found.stage) == ("training", stage)
    assert f"first stage {stage}" in found.because


@pytest.mark.parametrize("stage", ["data", "config"])
def test_unequal_inputs_decide_nothing(stage):
    assert decide("replayed", (incident(stage),), CHARTS).side == "undecided"


def test_rollout_evidence_in_a_replay_is_inference_and_says_whether_the_text_was_equal():
    held = decide("replayed", (incident("rollout"),), CHARTS)
    assert held.side == "inference"
    assert "the trainer's own numbers hold" in held.because
    parted = [chart("response_length/mean", (0.5, 0.5, 0.9, 0.9)), *CHARTS[1:]]
    own = decide("replayed", (incident("rollout"),), parted)
    assert (own.side, own.equal_up_to_step) == ("inference", 2)
    assert "the run generated them" in own.because


def test_without_a_replay_only_the_rollout_stage_names_a_side():
    assert decide("free", (incident("rollout"),), CHARTS).side == "inference"
    assert decide("free", (incident("actor_update"),), CHARTS).side == "undecided"
    assert decide("free", (), CHARTS).side == "undecided"
    assert decide("unknown", (), []).side == "undecided"


def test_missing_metrics_are_no_agreement():
    assert decide("replayed", (), [CHARTS[0]]).side == "undecided"
    assert decide("replayed", (), CHARTS[2:]).side == "undecided"
    nan = (float("nan"),) * 4
    assert decide("replayed", (), [CHARTS[0], *(chart(c.metric, nan) for c in CHARTS[2:])]).side == "undecided"
