# SPDX-License-Identifier: Apache-2.0
"""Replayed or free, and how sure."""

import json
from pathlib import Path

import pytest

from sentinel.cli import main
from tests.support.runs import a_grpo_run, a_reference, an_engine, changed, repeated, replaced, scaled, watched, without

ROOT = Path(__file__).parents[3]
RUN = a_grpo_run(steps=20)
ENGINE_KEYS = ("rollout_corr/rollout_log_ppl",)


def regime(candidate, *seeds):
    return watched(an_engine(detectors=()), candidate, a_reference(*seeds))[0].recognition


def test_the_engines_own_perplexity_decides_alone():
    flat = replaced(
        response_length__mean=16.0,
        global_seqlen__mean=76.0,
        response_length__clip_ratio=1.0,
        critic__score__mean=0.0,
        response_length__max=16.0,
    )
    run = changed(RUN, at=1, change=flat)

    assert regime(run[:1], run).regime == "replayed"
    assert regime(changed(run, at=1, change=without(*ENGINE_KEYS))[:1], run).regime == "unknown"


def test_without_it_lengths_and_scores_decide():
    bare = changed(RUN, at=1, change=without(*ENGINE_KEYS))

    known = regime(repeated(bare)[:2], bare)

    assert (known.regime, known.firm) == ("replayed", True)


def test_a_free_run_is_free_at_its_first_step():
    assert regime(a_grpo_run(steps=1, seed=5), RUN).regime == "free"


@pytest.mark.parametrize("seed", range(20, 40))
def test_a_length_that_agrees_by_chance_makes_no_replay_of_a_free_run(seed):
    """Five seeds of few rows: some mean length is met by chance."""

    def coarse(metrics):
        length = float(round(metrics["response_length/mean"] / 8) * 8)
        return without(*ENGINE_KEYS)(
            {
                **metrics,
                "response_length/mean": length,
                "global_seqlen/mean": 60.0 + length,
                "response_length/max": 255.0,
                "response_length/clip_ratio": 0.0,
            }
        )

    seeds = [changed(a_grpo_run(steps=20, seed=number), at=1, change=coarse) for number in range(1, 6)]
    candidate = changed(a_grpo_run(steps=20, seed=seed), at=1, change=coarse)

    assert regime(candidate, *seeds).regime == "free"


def test_a_reward_fault_from_the_first_step_on_does_not_hide_the_replay():
    bare = changed(RUN, at=1, change=without(*ENGINE_KEYS))
    bad = changed(bare, at=1, change=scaled("critic/score/mean", 1.1))

    assert regime(bad[:3], bare).regime == "replayed"


def test_a_replay_stays_one_when_its_lengths_differ_later():
    bad = changed(RUN, at=9, change=replaced(response_length__mean=17.0))

    assert regime(bad, RUN).regime == "replayed"


def test_a_run_without_a_telling_metric_is_free():
    bare = changed(
        RUN,
        at=1,
        change=lambda metrics: {
            "actor/entropy": metrics["actor/entropy"],
            "actor/grad_norm": metrics["actor/grad_norm"],
        },
    )

    assert regime(bare[:1], bare).regime == "free"


def test_what_was_said_is_not_recognised():
    assert watched(an_engine(), RUN[:1], a_reference(RUN), regime="free")[0].regime == "free"
    assert (
        watched(an_engine(), a_grpo_run(steps=1, seed=9), a_reference(RUN), regime="replayed")[0].regime == "replayed"
    )


def test_two_free_runs_that_share_their_first_step_are_no_replay():
    other = (RUN[0], *a_grpo_run(steps=20, seed=8)[1:])

    assert regime(other[:1], RUN).regime == "replayed"
    assert regime(other[:2], RUN).regime == "free"


@pytest.mark.parametrize("seed", [42, 43])
def test_a_free_run_on_other_hardware_with_a_seed_of_the_baseline_is_free_from_its_first_step(capsys, seed):
    """The CPU samples the H200's very text for some steps, with log-probs of its own; replays of that bundle have the recorded ones."""
    run = ROOT / "bench" / "hardware" / "data" / f"cpu-free-{seed}.jsonl"
    main(["replay", str(run), "--baseline", str(ROOT / "examples" / "h200" / "tiny-grpo-fp32.sentinel"), "--json"])
    said = json.loads(capsys.readouterr().out)

    assert (said["regime"], said["verdict"], said["incidents"]) == ("free", "healthy", [])


def test_recorded_log_probs_are_asked_for_only_where_the_twins_have_them():
    anew = changed(RUN, at=1, change=scaled("rollout_corr/rollout_log_ppl", 1.001))

    recorded = a_reference(RUN, twins=(repeated(RUN),))
    scored_again = a_reference(RUN, twins=(changed(RUN, at=1, change=scaled("rollout_corr/rollout_log_ppl", 1.002)),))

    assert watched(an_engine(detectors=()), anew, recorded)[0].recognition.regime == "free"
    assert watched(an_engine(detectors=()), anew, scored_again)[0].recognition.regime == "replayed"
    assert watched(an_engine(detectors=()), repeated(RUN), recorded)[0].recognition.regime == "replayed"
