# SPDX-License-Identifier: Apache-2.0
"""Stages from what moved and what held."""

import json
from pathlib import Path

import pytest

from sentinel.cli import main
from sentinel.core.localise import localise, localise_not_finite
from sentinel.records import Finding

HELD = dict.fromkeys(
    (
        "prompt",
        "length",
        "score",
        "reward",
        "rollout_logprob",
        "actor_logprob",
        "gap",
        "ref",
        "old_new",
        "advantage",
        "pg",
        "loss",
        "actor_grad",
    ),
    0.0,
)
CRITIC = dict.fromkeys(("values", "explained", "vpred", "critic_loss", "critic_grad"), 0.0)


def moved(*groups, critic=False, **more):
    return {**HELD, **(CRITIC if critic else {}), **dict.fromkeys(groups, 20.0), **more}


def a_finding(metric="m", stage="actor_update", kind="drift"):
    return Finding(detector="d", metric=metric, step=1, value=1.0, expected=None, because="", stage=stage, kind=kind)


@pytest.mark.parametrize(
    ("groups", "critic", "stage"),
    [
        (("prompt", "length", "score", "actor_logprob"), False, "data"),
        (("control", "actor_grad"), False, "config"),
        (("gap",), False, "rollout"),
        (("gap", "rollout_logprob"), False, "rollout"),
        (("length", "rollout_logprob", "actor_logprob", "gap", "score", "pg", "loss"), False, "rollout"),
        (("score", "reward", "advantage", "pg", "loss", "actor_grad"), False, "compute_rm_score"),
        (("actor_logprob", "gap", "old_new", "pg", "loss", "actor_grad"), False, "actor_compute_log_prob"),
        (("ref", "loss", "actor_grad"), False, "ref_compute_log_prob"),
        (("penalty", "reward", "advantage", "pg"), False, "ref_compute_log_prob"),
        (("values", "explained", "advantage", "critic_loss", "pg"), True, "compute_values"),
        (("advantage", "pg", "loss", "actor_grad"), False, "advantage"),
        (("critic_grad",), True, "critic_update"),
        (("critic_loss", "critic_grad"), True, "critic_update"),
        (("values", "vpred", "explained", "critic_loss"), True, "critic_update"),
        (("pg", "old_new", "ref", "loss", "actor_grad"), False, "actor_update"),
        (("actor_grad",), False, "actor_update"),
    ],
)
@pytest.mark.parametrize("replayed", [True, False])
def test_each_stage_is_read_from_its_signature(groups, critic, stage, replayed):
    suspects = localise(moved(*groups, critic=critic), (a_finding(),), replayed=replayed)

    assert suspects[0].stage == stage
    assert sum(suspect.confidence for suspect in suspects) <= 1.001
    assert suspects[0].because


def test_weights_that_parted_slowly_are_the_optimisers():
    slow = moved("actor_logprob", "ref", **{"(sudden)": 0.0})
    sudden = moved("actor_logprob", "gap", "old_new", **{"(sudden)": 10.0})

    assert localise(slow, (a_finding(),), replayed=True)[0].stage == "actor_update"
    assert localise(sudden, (a_finding(),), replayed=True)[0].stage == "actor_compute_log_prob"


def test_a_jump_that_only_a_window_tells_is_named_where_it_jumped(capsys):
    """A real V1 run, q_proj of compute_log_prob 1.1 times too large from step 3 on, beside one run without twins."""
    runs = Path(__file__).parents[1] / "data" / "v1_small_jump"
    main(["replay", str(runs / "broken.jsonl"), "--baseline", str(runs / "replayed.jsonl"), "--json"])
    (incident,) = json.loads(capsys.readouterr().out)["incidents"]

    assert "for most of 3 steps" in incident["findings"][0]["because"]
    assert incident["stage"] == "actor_compute_log_prob"


def test_a_stage_that_the_run_does_not_have_is_no_suspect():
    suspects = localise(moved("advantage", "pg"), (a_finding(),))

    assert not {"compute_values", "critic_update"} & {suspect.stage for suspect in suspects}


def test_what_no_signature_explains_is_left_to_the_catalogue():
    assert localise({}, (a_finding(stage="rollout"), a_finding(stage="actor_update")))[0].stage == "rollout"
    assert localise({}, (a_finding(stage="unknown"),))[0].stage == "unknown"


def test_the_first_stage_with_a_nan_of_its_own_is_named_and_the_next_one_after_it():
    groups = {"actor/kl_loss": "ref", "actor/grad_norm": "actor_grad", "actor/loss": "loss"}
    findings = tuple(a_finding(metric=metric, kind="non_finite") for metric in groups)

    suspects = localise_not_finite(findings, groups)

    assert [suspect.stage for suspect in suspects] == ["ref_compute_log_prob", "actor_update"]
    assert "actor/kl_loss" in suspects[0].because
