# SPDX-License-Identifier: Apache-2.0
"""The tokens on which both engines part are told, a few times a run; a healthy run is not even looked into."""

import types

import pytest

from sentinel.trainer import token_gaps

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Session:
    def __init__(self):
        self.heard = []

    def said(self, code, text):
        self.heard.append((code, text))


class Batch(dict):
    """As verl's: asked for by name, never to be touched while all is well."""


def batch(gap=0.6):
    rollout = torch.log(torch.full((4, 6), 0.9))
    actor = rollout.clone()
    actor[2, 3] = torch.log(torch.tensor(0.9 - gap))
    mask = torch.ones(4, 6)
    mask[1, 2:] = 0
    actor[1, 4] = -50.0  # padding: no difference
    responses = torch.arange(24).reshape(4, 6) + 100
    return Batch(rollout_log_probs=rollout, old_log_probs=actor, responses=responses, response_mask=mask)


@pytest.fixture
def verl():
    module = types.ModuleType("verl.utils.debug.metrics")
    module.result = {token_gaps.MEAN: 0.001}
    module.calculate_debug_metrics = lambda data: module.result
    return module


def data(made):
    return types.SimpleNamespace(batch=made)


def test_the_worst_token_is_told_with_row_position_and_both_probabilities(verl):
    session = Session()
    token_gaps.hook(session, verl)
    verl.result = {token_gaps.MEAN: 0.025}
    assert verl.calculate_debug_metrics(data(batch())) is verl.result
    ((code, text),) = session.heard
    assert code == "token_gaps"
    assert "row 2" in text
    assert "position 3 token 115: rollout 0.9, actor 0.3" in text
    assert "row 1" not in text, "what is masked is no difference"


def test_a_healthy_step_is_not_looked_into(verl):
    session = Session()
    token_gaps.hook(session, verl)
    for mean in (0.001, float("nan"), 0.01):
        verl.result = {token_gaps.MEAN: mean}
        verl.calculate_debug_metrics(data(None))
    verl.result = {}
    verl.calculate_debug_metrics(data(None))
    assert session.heard == []


def test_three_times_a_run_and_no_more(verl):
    session = Session()
    token_gaps.hook(session, verl)
    verl.result = {token_gaps.MEAN: 0.5}
    for _ in range(10):
        verl.calculate_debug_metrics(data(batch()))
    assert [code for code, _ in session.heard] == ["token_gaps", "token_gaps_2", "token_gaps_3"]


def test_a_batch_of_another_form_never_reaches_the_trainer(verl):
    session = Session()
    token_gaps.hook(session, verl)
    verl.result = {token_gaps.MEAN: 0.5}
    for _ in range(5):
        assert verl.calculate_debug_metrics(data({"responses": None})) is verl.result
    assert session.heard == []


def test_afterwards_verl_has_its_own_function_again(verl):
    own = verl.calculate_debug_metrics
    undo = token_gaps.hook(Session(), verl)
    assert verl.calculate_debug_metrics is not own
    undo()
    assert verl.calculate_debug_metrics is own


def test_a_verl_without_the_function_is_left_alone():
    module = types.ModuleType("m")
    token_gaps.hook(Session(), module)()
    assert not hasattr(module, token_gaps.FUNCTION)


def test_only_so_many_probabilities_are_looked_at(monkeypatch):
    monkeypatch.setattr(token_gaps, "MOST_VALUES", 12)
    assert token_gaps.worst_tokens(batch()) == [], "row 2 is beyond the bound"
