# SPDX-License-Identifier: Apache-2.0
"""The model, its tokenizer and prompts are made here, from a seed, and found again."""

import itertools
import random

import pytest

from sentinel.demo.assets import AssetSettings, dialogues, load, module_paths, prepare
from sentinel.demo.plans import has_own_weights

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

QUICK = AssetSettings(train_steps=6, batch=4, layers=1, hidden_size=16)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("assets") / "x"
    told = []
    return prepare(folder, QUICK, progress=lambda *state: told.append(state))


def weights(assets):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(assets.model).state_dict()


def test_the_same_seed_makes_the_same_model(made, tmp_path):
    import torch

    again = prepare(tmp_path / "again", QUICK)

    one, other = weights(made), weights(again)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert made.train.read_bytes() == again.train.read_bytes()


def test_what_was_made_is_found_again_and_other_settings_are_not(made):
    assert load(made.folder, QUICK) == made
    assert load(made.folder, AssetSettings(train_steps=7)) is None
    assert load(made.folder / "nowhere", QUICK) is None


def test_the_module_paths_are_those_of_the_model(made):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(made.model)

    computing = {name for name, module in model.named_modules() if name and type(module).__name__ != "ModuleList"}
    assert set(module_paths(QUICK)) == computing


def test_modules_with_weights_of_their_own_are_known_without_the_model(made):
    from transformers import AutoModelForCausalLM

    paths = module_paths(QUICK)
    model = AutoModelForCausalLM.from_pretrained(made.model)

    holding = {name for name, module in model.named_modules() if list(module.parameters(recurse=False))}
    assert {path for path in paths if has_own_weights(path, paths)} == holding


def test_prompts_are_chats_with_a_right_answer(made):
    import pyarrow.parquet as pq
    from transformers import AutoTokenizer

    rows = pq.read_table(made.train).to_pylist()
    tokenizer = AutoTokenizer.from_pretrained(made.model)

    assert len(rows) == QUICK.train_prompts
    for row in rows[:10]:
        text = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
        assert row["reward_model"]["ground_truth"].endswith(".")


def test_dialogues_are_right():
    for question, answer in itertools.islice(dialogues(random.Random(1)), 200):
        if question.startswith("What is"):
            left, operation, right = question.removeprefix("What is ").rstrip("?").split()
            value = int(left) + int(right) if operation == "plus" else int(left) - int(right)
            assert answer == f"{left} {operation} {right} is {value}."
