# SPDX-License-Identifier: Apache-2.0
"""Weights that get lost or arrive scrambled on their way to the rollout engine, from the step that was asked for."""

import pytest

from sentinel.demo.kit.rollout_faults import VARIABLE, RolloutFault, from_environment

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STATE = {"w": torch.arange(6.0).reshape(3, 2), "norm": torch.ones(2)}


def test_updates_stop_arriving_with_the_step_whose_rollouts_are_to_be_broken():
    fault = RolloutFault(kind="unsynchronised", step=3)
    assert fault.received(STATE, 1) == STATE, "after step 1: the rollouts of step 2"
    assert fault.received(STATE, 2) == {}


def test_scrambled_weights_keep_shape_and_norms():
    fault = RolloutFault(kind="scrambled", step=1)
    got = fault.received(STATE, None)
    assert torch.equal(got["w"], STATE["w"].roll(1, 0))
    assert got["norm"] is STATE["norm"]


def test_dummy_begins_with_random_weights_and_loads_none_before_its_step():
    fault = RolloutFault(kind="dummy", step=2)
    model = torch.nn.Linear(4, 4)
    before = model.weight.detach().clone()
    fault.begin(model)
    assert not torch.equal(model.weight, before)
    assert fault.received(STATE, 0) == {}
    assert fault.received(STATE, 1) == STATE


def test_the_variable_is_read_and_another_form_refused(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert from_environment() is None
    fault = RolloutFault(kind="scrambled", step=4)
    monkeypatch.setenv(VARIABLE, fault.to_text())
    assert from_environment() == fault
    monkeypatch.setenv(VARIABLE, "scrambled")
    with pytest.raises(ValueError, match="KIND=STEP"):
        from_environment()
