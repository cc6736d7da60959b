# SPDX-License-Identifier: Apache-2.0
"""Found equals planted only where step, stage and module agree; a healthy run must be silent."""

import pytest

from sentinel.demo.assets import module_paths
from sentinel.demo.kit.faults import Fault
from sentinel.demo.plans import objection
from sentinel.demo.scenarios import HEALTHY, STEPS, Found, Scenario, asked, extra, failed, judge, standard

FAULT = Fault(stage="actor_update", module="model.layers.1.mlp.down_proj", kind="scale", size=1.1, step=4)
PLANTED = Scenario(name="run-1", title="planted", fault=FAULT)
NAN = Fault(stage="actor_update", module="model.layers.0.self_attn.o_proj", kind="nan_grad", size=1, step=5)
ONCE = Scenario(name="run-2", title="once", fault=NAN, comes_back=False)

CLEAN = {"verdict": "clean", "first": None}
OVER = "Lasted one step and did not come back at step 6; verl skips a non-finite update."


def incident(**changes):
    base = {
        "id": "run-1:1",
        "kind": "drift",
        "severity": "critical",
        "stage": "actor_update",
        "opened_at_step": 4,
        "because": "actor/grad_norm stands at 2",
        "findings": [],
        "receipt": {"paths": ["/dumps/step_5/actor_update"], "outcome": "complete"},
        "triage": {
            "verdict": "diverged",
            "comparable": {"step": True, "rows": True, "weights": "unknown"},
            "first": {"stage": "actor_update", "module": FAULT.module},
        },
    }
    return base | changes


def test_a_silent_healthy_run_is_as_it_should_be():
    assert judge(HEALTHY, []).ok


def test_an_incident_in_a_healthy_run_is_a_false_alarm():
    outcome = judge(HEALTHY, [incident()])

    assert not outcome.ok
    assert "false alarm" in outcome.why


def test_found_equals_planted():
    outcome = judge(PLANTED, [incident()])

    assert outcome.ok
    assert outcome.found == Found(stage="actor_update", module=FAULT.module, step=4)
    assert outcome.golden == "same step, same rows, unknown weights"
    assert outcome.dump == "/dumps/step_5/actor_update"


def test_weights_that_updates_have_moved_are_told_with_triages_remark():
    triage = incident()["triage"] | {
        "comparable": {"step": True, "rows": True, "weights": False},
        "notes": ["38 of 38 weights differ, most by up to 1.5e-05: moved by updates, not blamed"],
    }

    golden = judge(PLANTED, [incident(triage=triage)]).golden

    assert golden.startswith("same step, same rows, other weights (38 of 38")


def test_a_scenario_that_broke_off_is_wrong_and_says_why():
    outcome = failed(PLANTED, ValueError("verl ended with code 1"))

    assert not outcome.ok
    assert "verl ended with code 1" in outcome.why


def test_a_fault_that_nobody_reports_is_not_found():
    outcome = judge(PLANTED, [])

    assert not outcome.ok
    assert outcome.why == "nothing was reported"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"opened_at_step": 5}, "step 5 instead of 4"),
        ({"opened_at_step": 3}, "step 3 instead of 4"),
        ({"triage": None}, "module None instead of"),
        (
            {"triage": {"verdict": "diverged", "first": {"stage": "actor_update", "module": "model.norm"}}},
            "module model.norm instead of",
        ),
        (
            {
                "stage": "rollout",
                "triage": {"verdict": "diverged", "first": {"stage": "ref_compute_log_prob", "module": FAULT.module}},
            },
            "stage rollout instead of",
        ),
        ({"kind": "non_finite"}, "kind non_finite for scale"),
    ],
)
def test_what_differs_from_the_plan_is_said(changes, says):
    outcome = judge(PLANTED, [incident(**changes)])

    assert not outcome.ok
    assert says in outcome.why


def test_the_first_incident_counts():
    """What follows from a fault may be reported as well, but not before it."""
    early = incident(id="run-1:1", opened_at_step=2)

    assert not judge(PLANTED, [incident(id="run-1:2"), early]).ok
    assert judge(PLANTED, [incident(), incident(id="run-1:2", opened_at_step=6, stage="rollout")]).ok


def test_a_nan_of_one_step_is_right_when_the_next_step_was_clean():
    told = incident(kind="non_finite", opened_at_step=5, triage=CLEAN, notes=[OVER])

    outcome = judge(ONCE, [told])

    assert outcome.ok
    assert outcome.found == Found(stage="actor_update", module=None, step=5)
    assert OVER in outcome.why


def test_a_nan_of_one_step_is_wrong_when_the_next_step_was_not_looked_at_or_nothing_said():
    assert not judge(ONCE, [incident(kind="non_finite", opened_at_step=5, triage=None, notes=[OVER])]).ok
    assert not judge(ONCE, [incident(kind="non_finite", opened_at_step=5, triage=CLEAN, notes=[])]).ok


def test_the_json_form_is_that_of_the_contract():
    plain = judge(PLANTED, [incident()]).to_plain()

    assert plain["name"] == "run-1"
    assert plain["planted"] == {
        "stage": "actor_update", "module": FAULT.module, "kind": "scale", "size": 1.1, "step": 4
    }  # fmt: skip
    assert plain["found"] == {"stage": "actor_update", "module": FAULT.module, "step": 4}
    assert plain["ok"] is True
    assert plain["report"] is None
    assert judge(HEALTHY, []).to_plain()["planted"] is None


def test_names_of_runs_give_nothing_away():
    for scenario in (*standard(), *asked([FAULT, NAN])):
        for word in ("fault", "nan", "healthy", "scale", "mlp"):
            assert word not in scenario.name


def test_the_standard_faults_can_be_planted():
    for scenario in standard():
        if scenario.fault:
            assert objection(scenario.fault, modules=module_paths(), steps=STEPS) is None


def test_what_is_asked_for_comes_after_a_healthy_run():
    scenarios = asked([FAULT, NAN])

    assert [s.fault for s in scenarios] == [None, FAULT, NAN]
    assert [s.comes_back for s in scenarios] == [True, True, False]


def config_mismatch(**changes):
    return incident(kind="mismatch", stage="config", opened_at_step=1, triage=None, receipt=None, **changes)


def test_a_replay_that_did_not_happen_is_found_as_a_mismatch_of_the_configuration():
    no_replay, _ = extra()
    outcome = judge(no_replay, [config_mismatch()])
    assert outcome.ok
    assert outcome.to_plain()["planted"] == {
        "stage": "config", "module": None, "kind": "mismatch", "size": None, "step": 1,
    }  # fmt: skip
    assert not judge(no_replay, []).ok
    assert not judge(no_replay, [config_mismatch() | {"opened_at_step": 2}]).ok
    assert not judge(no_replay, [config_mismatch() | {"stage": "rollout"}]).ok


def test_broken_text_is_found_as_a_collapse_of_the_rollout_whatever_else_the_incident_holds():
    _, scrambled = extra()
    mixed = incident(kind="mismatch", stage="rollout", findings=[{"kind": "collapse", "because": "garbled"}])
    assert judge(scrambled, [mixed]).ok
    assert not judge(scrambled, [incident(stage="rollout")]).ok
