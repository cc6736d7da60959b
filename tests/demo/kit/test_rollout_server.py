# SPDX-License-Identifier: Apache-2.0
"""Answers do not depend on who asked first; their log-probabilities are the server's own, in bf16."""

import asyncio

import pytest

from sentinel.demo.assets import AssetSettings, prepare

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

LIMIT = 6


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    settings = AssetSettings(train_steps=2, batch=4, layers=1, hidden_size=16)
    return str(prepare(tmp_path_factory.mktemp("assets") / "x", settings).model)


def answers(model_path, prompts, *, temperature=1.0):
    """Tokens and log-probabilities of each prompt, asked at once in this order."""
    from sentinel.demo.kit.rollout_server import RolloutServer

    async def ask():
        server = RolloutServer(model_path, seed=3, limit=LIMIT)
        requests = [server._request(prompt, {"temperature": temperature}) for prompt in prompts]
        server._write(requests)
        return [(r.tokens, r.log_probs) for r in requests]

    return asyncio.run(ask())


def test_an_answer_does_not_depend_on_the_order_of_arrival(model_path):
    prompts = [[5, 6, 7], [8, 9, 10], [11, 12, 13]]

    forth = answers(model_path, prompts)
    back = answers(model_path, prompts[::-1])

    assert [tokens for tokens, _ in forth] == [tokens for tokens, _ in back[::-1]]


def test_the_same_prompt_asked_twice_gets_two_draws(model_path):
    one, other = answers(model_path, [[5, 6, 7], [5, 6, 7]])

    assert one != other


def test_answers_end_at_the_limit_or_the_end_token(model_path):
    for tokens, log_probs in answers(model_path, [[5, 6, 7]] * 8):
        assert 1 <= len(tokens) <= LIMIT
        assert len(tokens) == len(log_probs)
        assert all(p <= 0 for p in log_probs)


def test_temperature_nought_takes_the_likeliest_token(model_path):
    one, other = answers(model_path, [[5, 6, 7], [5, 6, 7]], temperature=0.0)

    assert one == other


def test_new_weights_are_taken_in_bf16_and_unknown_names_are_told(model_path):
    from sentinel.demo.kit.rollout_server import RolloutServer

    async def sync():
        server = RolloutServer(model_path, seed=0, limit=LIMIT)
        name, value = next(iter(server.model.state_dict().items()))
        new = torch.full_like(value, 1.2345, dtype=torch.float32)
        unknown = await server.set_weights({name: new, "other": new}, 7)
        return server.model.state_dict()[name], unknown, server.version

    value, unknown, version = asyncio.run(sync())

    assert value.dtype == torch.bfloat16
    assert torch.equal(value, torch.full_like(value, 1.2345))
    assert unknown == ["other"]
    assert version == 7
