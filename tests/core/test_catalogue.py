# SPDX-License-Identifier: Apache-2.0
"""The metric catalogue as a look-up."""

import pytest

from sentinel.core.catalogue import Catalogue, check_overrides, reduction
from sentinel.core.engine import Engine, EngineSettings
from sentinel.daemon.metric_catalogue import load_catalogue
from sentinel.errors import SettingsError
from sentinel.settings import Settings
from tests.support.runs import a_grpo_run, a_reference, an_engine, incidents, repeated, watched


def a_catalogue(*entries):
    return Catalogue.from_mapping({"metric": list(entries)})


def test_the_most_specific_pattern_wins():
    catalogue = a_catalogue(
        {"match": ["actor/*"], "stage": "actor_update"},
        {"match": ["actor/mtp*"], "stage": "actor_compute_log_prob"},
        {"match": ["actor/mtp_x"], "stage": "rollout"},
    )

    assert [catalogue.entry(key).stage for key in ("actor/a", "actor/mtp_1", "actor/mtp_x")] == [
        "actor_update",
        "actor_compute_log_prob",
        "rollout",
    ]


def test_alternatives_are_written_out():
    catalogue = a_catalogue({"match": ["a/{mean,max}"], "class": "exact"})

    assert [catalogue.entry(key).metric_class for key in ("a/mean", "a/max", "a/min")] == ["exact", "exact", "unknown"]


def test_a_key_with_wildcards_and_brackets_in_it_is_taken_as_it_is():
    catalogue = a_catalogue({"match": ["actor/lr(*)"], "class": "control"})

    assert catalogue.entry("actor/lr(1e-4)").metric_class == "control"
    assert catalogue.entry("actor/lr").metric_class == "unknown"


def test_unknown_keys_are_listed():
    assert a_catalogue({"match": ["a"]}).unknown(["b", "a", "c", "b"]) == ("a", "b", "c")
    assert a_catalogue({"match": ["a"], "class": "count"}).unknown(["b", "a"]) == ("b",)


def test_an_override_changes_fields_and_nothing_else():
    plain = load_catalogue()
    changed = plain.with_overrides({"actor/entropy": {"rel": 0.5}})

    assert changed.entry("actor/entropy").rel == 0.5
    assert changed.entry("actor/entropy").stage == plain.entry("actor/entropy").stage
    assert plain.entry("actor/entropy").rel == 0.01


def test_an_override_of_everything_touches_compared_numbers_only():
    changed = load_catalogue().with_overrides({"*": {"rel": 0.5}})

    assert changed.entry("actor/entropy").rel == 0.5
    assert changed.entry("timing_s/gen").rel == 0.0


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"match": ["a"], "clas": "exact"}, "unknown field clas, did you mean class?"),
        ({"match": ["a"], "class": "exakt"}, "metric_class 'exakt' is none of"),
        ({"match": ["a"], "stage": "nowhere"}, "stage 'nowhere' is none of"),
        ({"match": ["a"], "rel": "much"}, "rel must be a number"),
        ({"stage": "rollout"}, "without `match`"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said_in_one_line(entry, complaint):
    with pytest.raises(SettingsError) as caught:
        a_catalogue(entry)

    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_catalogue_without_entries_is_refused():
    with pytest.raises(SettingsError):
        Catalogue.from_mapping({})


def test_the_reduction_follows_verls_substrings():
    assert [reduction(key) for key in ("critic/score/max", "actor/minibatch", "actor/grad_norm")] == [
        "max",
        "min",
        "mean",
    ]


def test_presets_come_first_and_own_changes_last():
    changed = load_catalogue().with_overrides({"actor/entropy": {"rel": 0.5}}, ["npu-2pct", "strict-replay"])

    assert changed.entry("actor/entropy").rel == 0.5
    assert changed.entry("critic/vf_loss").rel == 1e-6


def test_the_engine_refuses_what_no_catalogue_could_take():
    for wrong in ({"presets": ("npu-3pct",)}, {"metrics": {"actor/entropy": {"relative": 0.1}}}):
        with pytest.raises(SettingsError):
            EngineSettings(**wrong)


def test_the_engine_watches_with_the_changed_catalogue():
    run = a_grpo_run(steps=6)
    strict = an_engine(presets=("strict-replay",))

    state, _ = watched(strict, repeated(run, noise=1e-3, seed=4), a_reference(run))

    assert incidents(state)
    assert incidents(watched(an_engine(), repeated(run, noise=1e-3, seed=4), a_reference(run))[0]) == []


def test_settings_of_a_file_reach_the_catalogue():
    settings = Settings.from_mapping({"engine": {"presets": ["npu-2pct"], "metrics": {"actor/entropy": {"rel": 0.07}}}})

    assert Engine(settings.engine, load_catalogue()).catalogue.entry("actor/entropy").rel == 0.07


@pytest.mark.parametrize("field", ["replay", "free", "noise"])
@pytest.mark.parametrize("value", [[1.0], "wide", [1, 2, 3, -4], [True] * 4, 3.0])
def test_limits_that_are_no_row_of_numbers_are_refused(field, value):
    with pytest.raises(SettingsError, match=field):
        check_overrides({"actor/entropy": {field: value}})


def test_a_tolerance_that_somebody_states_outweighs_the_measured_noise():
    mine = load_catalogue().with_overrides({"actor/entropy": {"rel": 0.5}})

    assert load_catalogue().entry("actor/entropy").noise
    assert mine.entry("actor/entropy").noise == ()
