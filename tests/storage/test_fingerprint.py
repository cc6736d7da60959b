# SPDX-License-Identifier: Apache-2.0
"""What a baseline remembers of its model and configuration, without credentials."""

import hashlib
import json

import pytest

from sentinel.errors import BaselineError
from sentinel.storage.fingerprint import config_fingerprint, facts_fingerprint, flatten, model_fingerprint


def test_every_file_of_a_model_is_hashed(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x").write_text("hidden")
    (tmp_path / "b.safetensors").write_bytes(b"weights" * 1_000_000)
    (tmp_path / "sub" / "a.json").write_text("{}")
    said = []

    found = model_fingerprint(tmp_path, said.append)

    assert list(found["files"]) == ["b.safetensors", "sub/a.json"]
    assert found["files"]["b.safetensors"] == {
        "bytes": 7_000_000,
        "sha256": hashlib.sha256(b"weights" * 1_000_000).hexdigest(),
    }
    assert said[-1] == "hashing the model, 2 of 2 files"


def test_a_model_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BaselineError, match="no such model folder"):
        model_fingerprint(tmp_path / "nowhere")
    with pytest.raises(BaselineError, match="holds no model files"):
        model_fingerprint(tmp_path)


def test_a_configuration_is_kept_as_values_without_credentials(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "actor: {lr: 0.1, bad: .nan, when: 2026-01-01, api_key: null}\n"
        "trainer: {wandb_api_key: abc, hf_token: [x, y], max_token: 5, n_tokens: '7'}\npassword: p\n"
    )

    found = config_fingerprint(path)

    assert found == {
        "values": {
            "actor": {"lr": 0.1, "bad": "nan", "when": "2026-01-01", "api_key": None},
            "trainer": {"wandb_api_key": "<cut out>", "hf_token": ["<cut out>"] * 2, "max_token": 5, "n_tokens": "7"},
            "password": "<cut out>",
        }
    }
    json.dumps(found, allow_nan=False)


def test_a_launch_script_is_kept_as_a_hash(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text("python -m verl.trainer.main_ppo a=1\n\tb: [\n")

    assert config_fingerprint(path) == {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    with pytest.raises(BaselineError, match="cannot be read"):
        config_fingerprint(tmp_path / "nowhere")


def test_facts_of_the_process_say_nothing_about_the_recipe():
    facts = {"verl": "0.9.1", "pid": 3, "host": "h", "rollout_data_dir": "/x", "stages": ("a",), "token": "secret"}

    assert facts_fingerprint(facts) == {"verl": "0.9.1", "stages": ["a"], "token": "<cut out>"}


def test_nested_values_become_dotted_keys():
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}
