# SPDX-License-Identifier: Apache-2.0
"""Every metric key that verl and the other frameworks are known to write has an entry, and every entry means something."""

import json
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from sentinel.core.catalogue import BANDED, PAIRED, PRESETS
from sentinel.core.signatures import FIRST_NOT_FINITE, GROUPS, RECORDED, SIGNATURES, SUDDEN
from sentinel.daemon.metric_catalogue import load_catalogue
from sentinel.records import STAGES

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = load_catalogue()
KEYS = json.loads((ROOT / "tests/data/metric_keys.json").read_text(encoding="utf-8"))
ENTRIES = (*CATALOGUE.exact.values(), *(entry for _, entry in CATALOGUE.globs))


@pytest.mark.parametrize("source", sorted(KEYS))
def test_every_key_that_is_known_to_be_written_has_an_entry(source):
    assert CATALOGUE.unknown(KEYS[source]) == ()


@pytest.mark.parametrize(
    ("key", "stage", "metric_class"),
    [
        ("actor/entropy", "actor_compute_log_prob", "close"),
        ("actor/kl_loss", "ref_compute_log_prob", "near_zero"),
        ("actor/grad_norm", "actor_update", "scale"),
        ("critic/grad_norm", "critic_update", "scale"),
        ("critic/values/mean", "compute_values", "near_zero"),
        ("critic/score/mean", "compute_rm_score", "exact"),
        ("prompt_length/mean", "data", "exact"),
        ("response_length/clip_ratio", "rollout", "exact"),
        ("training/rollout_probs_diff_mean", "actor_compute_log_prob", "self_consistent"),
        ("rollout_corr/rollout_log_ppl", "rollout", "close"),
        ("rollout_corr/rollout_is_mean", "actor_compute_log_prob", "self_consistent"),
        ("actor/lr", "config", "control"),
        ("timing_s/agent_loop/num_preempted/min", "unknown", "timing"),
        ("fully_async/count/current_param_version", "unknown", "scheduling"),
        ("training/global_step", "unknown", "step"),
        ("val-core/arith/acc/mean@1", "unknown", "validation"),
    ],
)
def test_the_keys_that_matter_stand_where_they_should(key, stage, metric_class):
    entry = CATALOGUE.entry(key)

    assert (entry.stage, entry.metric_class) == (stage, metric_class)


def test_a_key_of_another_world_is_unknown():
    assert CATALOGUE.entry("something/else").metric_class == "unknown"


def test_every_entry_has_a_sentence_for_people():
    assert [entry.pattern for entry in ENTRIES if not entry.text.endswith((".", ")"))] == []


def test_what_is_compared_names_a_stage_and_a_group():
    compared = [entry for entry in ENTRIES if entry.metric_class in PAIRED | BANDED]

    assert [entry.pattern for entry in compared if not entry.group] == []
    assert {entry.stage for entry in compared} <= {*STAGES, "unknown"}


def test_paired_metrics_have_a_tolerance():
    paired = [entry for entry in ENTRIES if entry.metric_class in PAIRED]

    assert [entry.pattern for entry in paired if entry.rel == 0 and entry.abs == 0] == []


def test_the_limits_of_the_verl_faq_hold():
    entry = CATALOGUE.entry("training/rollout_probs_diff_mean")

    assert (entry.ok, entry.bad) == (0.005, 0.01)


def test_signatures_speak_of_groups_that_exist():
    known = {entry.group for entry in ENTRIES} | {SUDDEN, RECORDED}

    assert known >= GROUPS
    assert {group for group, _ in FIRST_NOT_FINITE} <= known


def test_every_stage_but_unknown_has_a_signature():
    assert {signature.stage for signature in SIGNATURES} == set(STAGES)


def test_presets_are_overrides_of_the_catalogue():
    presets = tomllib.loads((ROOT / "sentinel/data/presets.toml").read_text(encoding="utf-8"))

    assert tuple(presets) == PRESETS
    assert [name for name, preset in presets.items() if not preset["text"].endswith(".")] == []
    CATALOGUE.with_overrides({}, PRESETS)
