# SPDX-License-Identifier: Apache-2.0
"""One side in one document: what was given is in it, what could not be looked at is named, no credential is."""

import json

import pytest

from sentinel.errors import BaselineError, UnreadableLog
from sentinel.sources import fingerprint
from sentinel.sources.fingerprint import Parts, is_fingerprint, read_fingerprint, take
from sentinel.sources.rollout_order import order_facts


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def rollouts(folder, steps):
    folder.mkdir()
    for step, rows in steps.items():
        (folder / f"{step}.jsonl").write_text("".join(json.dumps({"input": i, "output": o}) + "\n" for i, o in rows))
    return folder


def test_a_document_holds_what_was_given_and_nothing_of_people(tmp_path, monkeypatch):
    monkeypatch.setenv("HCCL_DETERMINISTIC", "true")
    monkeypatch.setenv("VLLM_API_KEY", "planted-secret")
    monkeypatch.setenv("WANDB_API_KEY", "planted-secret")
    launch = tmp_path / "run.sh"
    launch.write_text("export LCCL_DETERMINISTIC=1\npython -m verl.trainer.main_ppo a=$B x.api_key=planted-secret\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"eos_token_id": 1, "hub_token": "planted-secret"}')

    document = take(
        Parts(model=tmp_path / "model", launch=launch, rollouts=rollouts(tmp_path / "r", {1: [("a", "b")]}))
    )

    assert document["process"]["variables"].items() >= {"HCCL_DETERMINISTIC": "true", "LCCL_DETERMINISTIC": "1"}.items()
    assert document["config"]["explicit"]["a"] == "$B"
    assert "config.json" in document["model"]["files"]
    assert set(document["data"]["order"]) == {"1"}
    assert "planted-secret" not in json.dumps(document)
    assert "host" not in document["process"]


def test_a_model_that_is_not_there_is_named_and_the_rest_is_recorded(tmp_path):
    document = take(Parts(model=tmp_path / "none"))

    assert "model" not in document
    assert document["notes"] == ["model: no such model folder"]
    assert document["process"]["packages"]


def test_files_from_elsewhere_say_nothing_of_this_machine(tmp_path):
    assert "process" not in take(Parts(elsewhere=True))


def test_what_is_no_fingerprint_is_refused_in_one_line(tmp_path):
    path = tmp_path / "f.json"
    for text in ("[1]", "{", '{"a": 1}'):
        path.write_text(text)
        assert not is_fingerprint(path)
        with pytest.raises(BaselineError, match="is no fingerprint"):
            read_fingerprint(path)
    path.write_text(json.dumps(take(Parts())))
    assert is_fingerprint(path)
    assert read_fingerprint(path)["sentinel_fingerprint"] == fingerprint.FORMAT


def test_rows_in_another_order_are_the_same_step_and_another_prompt_is_not(tmp_path):
    one = order_facts(rollouts(tmp_path / "1", {1: [("a", "x"), ("b", "y")], 10: [("c", "z")]}))
    two = order_facts(rollouts(tmp_path / "2", {1: [("b", "y"), ("a", "x")], 10: [("c", "other")]}))
    three = order_facts(rollouts(tmp_path / "3", {1: [("b", "y"), ("c", "x")], 10: [("c", "z")]}))

    assert list(one) == ["1", "10"]
    assert one["1"] == two["1"]
    assert one["10"]["prompts"] == two["10"]["prompts"]
    assert one["10"]["texts"] != two["10"]["texts"]
    assert one["1"]["prompts"] != three["1"]["prompts"]


def test_a_folder_without_rollout_text_and_damaged_text_are_refused(tmp_path):
    with pytest.raises(UnreadableLog, match="no such folder"):
        order_facts(tmp_path / "none")
    with pytest.raises(UnreadableLog, match="holds no rollout text"):
        order_facts(tmp_path)
    (tmp_path / "1.jsonl").write_text('{"input": 1}\n[1]\n')
    with pytest.raises(UnreadableLog, match="is no rollout text"):
        order_facts(tmp_path)
