# SPDX-License-Identifier: Apache-2.0
"""Plans are read as they are written, refused in one line, and drawn from a seed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.demo.assets import module_paths
from sentinel.demo.kit.faults import Fault
from sentinel.demo.plans import PlanError, draw, objection, parse, to_text

MODULES = module_paths()
STEPS = 8


def test_a_plan_is_read_as_it_is_written():
    text = "actor_update:model.layers.1.mlp.down_proj:scale=1.1@4"

    fault = parse(text, modules=MODULES, steps=STEPS)

    assert fault == Fault(stage="actor_update", module="model.layers.1.mlp.down_proj", kind="scale", size=1.1, step=4)
    assert to_text(fault) == text


@given(st.integers(0, 10_000))
def test_every_drawn_plan_can_be_asked_for(seed):
    for fault in draw(seed, 5, modules=MODULES, steps=STEPS):
        assert parse(to_text(fault), modules=MODULES, steps=STEPS) == fault


def test_a_longer_draw_begins_with_the_shorter_one():
    assert draw(7, 10, modules=MODULES, steps=STEPS)[:3] == draw(7, 3, modules=MODULES, steps=STEPS)


def test_other_seeds_draw_other_plans():
    assert draw(1, 3, modules=MODULES, steps=STEPS) != draw(2, 3, modules=MODULES, steps=STEPS)


def test_drawn_faults_make_no_nan_and_leave_a_step_for_the_dump():
    for fault in draw(3, 200, modules=MODULES, steps=STEPS):
        assert fault.kind != "nan_grad"
        assert 4 <= fault.step <= STEPS - 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("foo", "not of the form"),
        ("actor_update:model.norm:scale=1.1", "not of the form"),
        ("actor_updat:model.norm:scale=1.1@4", "did you mean 'actor_update'"),
        ("actor_update:model.layers.1.mlp.down_pro:scale=1.1@4", "did you mean 'model.layers.1.mlp.down_proj'"),
        ("actor_update:model.layers:scale=1.1@4", "no module 'model.layers'"),
        ("actor_update:model.norm:scala=1.1@4", "did you mean 'scale'"),
        ("actor_update:model.norm:scale=big@4", "size 'big' is not a number"),
        ("actor_update:model.norm:scale=nan@4", "size 'nan' is not a number"),
        ("actor_update:model.norm:mantissa=3.5@4", "size '3.5' is not a whole number"),
        ("actor_update:model.norm:scale=1.1@four", "step 'four' is not a whole number"),
        ("actor_update:model.norm:scale=1.1@0", "the step must be 1 to 7"),
        ("actor_update:model.norm:scale=1.1@8", "the step must be 1 to 7"),
        ("actor_update:model.norm:scale=1@4", "other than 1"),
        ("actor_update:model.layers.2:scale=1.5@4", "takes any factor out again"),
        ("actor_update:model.norm:bias=0@4", "other than 0"),
        ("actor_update:model.norm:mask=1.5@4", "up to 1"),
        ("actor_update:model.norm:mantissa=24@4", "1 to 23"),
        ("actor_update:model.norm:stale=4@4", "1 to 3 at step 4"),
        ("ref_compute_log_prob:model.norm:stale=2@4", "never change"),
        ("actor_update:model.layers.0.mlp.act_fn:stale=2@4", "has none of its own"),
        ("actor_update:model.rotary_emb:stale=2@4", "has none of its own"),
        ("actor_update:model.layers.0.mlp:stale=2@4", "has none of its own"),
        ("ref_compute_log_prob:model.norm:nan_grad=2@4", "only actor_update has one"),
        ("actor_update:model.norm:nan_grad=5@4", "1 to 4 at step 4"),
    ],
)
def test_what_cannot_be_planted_is_refused_in_one_line(text, says):
    with pytest.raises(PlanError) as refusal:
        parse(text, modules=MODULES, steps=STEPS)

    assert says in str(refusal.value)
    assert text in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_every_kind_can_be_planted():
    """On a module that has weights of its own."""
    sizes = {"scale": 1.02, "bias": 0.1, "mask": 0.1, "mantissa": 16, "stale": 2, "nan_grad": 3}
    for kind, size in sizes.items():
        fault = Fault(stage="actor_update", module="model.layers.0.mlp.up_proj", kind=kind, size=size, step=4)
        assert objection(fault, modules=MODULES, steps=STEPS) is None
