# SPDX-License-Identifier: Apache-2.0
"""The configuration of a run, from its log, its launch script, or a file of values."""

import hashlib
import json
import os
import sys
from pprint import pformat

import pytest

from sentinel.errors import BaselineError, SettingsError, UnreadableLog
from sentinel.sources import composed_config
from sentinel.sources.composed_config import NotComposedError, compose
from sentinel.sources.printed_config import BrokenConfigError, blocks, printed_config, replayed_steps
from sentinel.sources.run_config import config_facts, config_fingerprint

CONFIG = {
    "actor_rollout_ref": {"actor": {"clip_ratio": 0.2, "optim": {"lr": 1e-06}, "note": "a } brace and 'quotes' " * 6}},
    "algorithm": {"kl": None, "inf": float("inf"), "minus": -1, "list": [1, "a"], "on": True},
    "data": {"shuffle": False},
    "trainer": {"n": 8},
}
TASK = "\x1b[36m(TaskRunner pid=41207)\x1b[0m "


def log(path, *configs, cut=0, between=""):
    lines = ["2026-01-01 INFO worker.py: Started a local Ray instance."]
    for config in configs:
        printed = pformat(config).splitlines()
        for number, line in enumerate(printed[: len(printed) - cut]):
            lines += [TASK + line] + ([between] if number == 2 and between else [])
        lines.append(TASK + "step:1 - actor/lr:1e-06")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_printed_block_is_read_back_as_it_was(tmp_path):
    assert printed_config(log(tmp_path / "a.log", CONFIG)) == CONFIG


def test_lines_of_other_processes_inside_the_block_are_passed_over(tmp_path):
    other = "\x1b[36m(WorkerDict pid=7)\x1b[0m {'actor_rollout': 'no'}"

    assert printed_config(log(tmp_path / "a.log", CONFIG, between=other)) == CONFIG


def test_a_block_that_was_cut_is_no_configuration(tmp_path):
    with pytest.raises(BrokenConfigError, match="ends before its configuration block's end"):
        printed_config(log(tmp_path / "a.log", CONFIG, cut=3))


def test_two_equal_blocks_are_one_and_two_others_are_not_chosen_between(tmp_path):
    assert printed_config(log(tmp_path / "a.log", CONFIG, CONFIG)) == CONFIG
    with pytest.raises(BrokenConfigError, match="2 configuration blocks that differ"):
        printed_config(log(tmp_path / "a.log", CONFIG, {**CONFIG, "trainer": {"n": 16}}))


def test_a_log_without_a_block_says_so_and_one_that_is_not_there_is_refused(tmp_path):
    (tmp_path / "a.log").write_text("step:1 - actor/lr:1e-06\n")
    with pytest.raises(BrokenConfigError, match="shows no configuration block"):
        printed_config(tmp_path / "a.log")
    with pytest.raises(UnreadableLog):
        printed_config(tmp_path / "none.log")


def test_a_block_with_foreign_objects_is_no_configuration(tmp_path):
    (tmp_path / "a.log").write_text("{'actor_rollout_ref': <Foo object at 0x7f>}\n")
    with pytest.raises(BrokenConfigError, match="something stands in"):
        printed_config(tmp_path / "a.log")


def test_binary_and_endless_blocks_end(tmp_path):
    lines = ["{'actor_rollout_ref': {'a': 1,"] + ["'b': 2,"] * 30_000
    assert [whole for _, whole in blocks(lines)] == [False]
    (tmp_path / "a.log").write_bytes(bytes(range(256)) * 50)
    with pytest.raises(BrokenConfigError):
        printed_config(tmp_path / "a.log")


def test_replayed_steps_are_read_from_the_log(tmp_path):
    (tmp_path / "a.log").write_text(
        f"{TASK}[RolloutSkip()] Load generate result at step 3 from: /x\nLoad generate result at step: 4\n"
    )

    assert replayed_steps(tmp_path / "a.log") == (3, 4)


def test_credentials_and_names_are_cut_out_of_what_a_log_prints(tmp_path):
    secret = {"trainer": {"wandb_api_key": "0123456789abcdef0123", "dir": "/home/alice/x", "url": "https://u:pw@h/x"}}

    text = json.dumps(config_facts(log=log(tmp_path / "a.log", {**CONFIG, **secret})))

    for planted in ("0123456789abcdef0123", "alice", "u:pw"):
        assert planted not in text


def test_a_log_and_a_launch_give_both_halves(tmp_path):
    launch = tmp_path / "run.sh"
    launch.write_text(
        "export HCCL_DETERMINISTIC=true WANDB_API_KEY=x SENTINEL_RUN=r\npython -m verl.trainer.main_ppo data.shuffle=False a.lr=$LR\n"
    )

    facts = config_facts(log=log(tmp_path / "a.log", CONFIG), launch=launch)

    assert facts["effective"]["data"] == {"shuffle": False}
    assert facts["explicit"] == {"data.shuffle": False, "a.lr": "$LR"}
    assert facts["unresolved"] == ["a.lr"]
    assert facts["exports"] == {"HCCL_DETERMINISTIC": "true"}
    assert facts["named"] is True
    assert facts["why"] == {}


def test_what_could_not_be_known_says_why(tmp_path):
    launch = tmp_path / "run.sh"
    launch.write_text("python -m verl.trainer.main_ppo a.lr=$LR\n")
    assert "takes a.lr from elsewhere" in config_facts(launch=launch)["why"]["effective"]
    launch.write_text("python -m verl.trainer.main_ppo a=1 $@\n")
    assert "arguments" in config_facts(launch=launch)["why"]["effective"]
    launch.write_text("echo nothing\n")
    assert "starts no verl" in config_facts(launch=launch)["why"]["explicit"]
    assert "ends before" in config_facts(log=log(tmp_path / "a.log", CONFIG, cut=2))["why"]["effective"]
    with pytest.raises(SettingsError, match="cannot be read"):
        config_facts(launch=tmp_path / "none.sh")


def fake_verl(folder):
    """A verl that has nothing but its configuration."""
    place = folder / "verl" / "trainer" / "config"
    place.mkdir(parents=True)
    (folder / "verl" / "__init__.py").write_text("raise ImportError('must not be imported')")
    (place / "ppo_trainer.yaml").write_text("data: {shuffle: true, size: 8}\nactor: {lr: 1e-6, n: '${data.size}'}\n")


@pytest.mark.torch
def test_a_launch_is_composed_with_the_defaults_of_the_installed_verl(tmp_path, monkeypatch, need):
    need("hydra")
    fake_verl(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "verl", raising=False)

    found = compose(("data.shuffle=False", "+data.new=[1,2]", "++actor.lr=2e-6"))

    assert found == {"data": {"shuffle": False, "size": 8, "new": [1, 2]}, "actor": {"lr": 2e-6, "n": 8}}
    with pytest.raises(NotComposedError, match=r"data\.nothing"):
        compose(("data.nothing=1",))


def test_without_verl_nothing_is_composed(monkeypatch):
    monkeypatch.setattr(composed_config, "config_folder", lambda: None)
    with pytest.raises(NotComposedError, match="verl is not installed here"):
        compose(())


@pytest.mark.torch
@pytest.mark.timeout(60)
def test_the_composed_configuration_of_the_installed_verl_has_its_defaults(need):
    need("verl", "hydra")
    found = compose(("data.shuffle=False",))

    assert found["data"]["shuffle"] is False
    assert found["actor_rollout_ref"]["rollout"]["load_format"] == "dummy"
    assert "torch" not in sys.modules or os.environ.get("PYTEST_CURRENT_TEST")


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
