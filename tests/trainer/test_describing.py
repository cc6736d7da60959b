# SPDX-License-Identifier: Apache-2.0
"""What a run's processes say of themselves: the configuration at once, the workers later, never a credential."""

import json
import threading
import types

import pytest

from sentinel.core.checklist import Side
from sentinel.storage.fingerprint import facts_fingerprint
from sentinel.trainer import describing, reach
from sentinel.trainer.describing import ModelConfigWatch, describe_run, describe_worker, watch_model


def test_a_worker_says_its_rank_its_versions_its_variables_and_its_seeds(monkeypatch):
    monkeypatch.setenv("HCCL_DETERMINISTIC", "true")
    monkeypatch.setenv("VLLM_API_KEY", "planted-secret")
    worker = types.SimpleNamespace(worker_dict={"actor": types.SimpleNamespace(rank=3)})

    said = describe_worker(worker)

    assert said["rank"] == 3
    assert said["variables"]["HCCL_DETERMINISTIC"] == "true"
    assert said["seeds"]["called"] is False
    assert "python" in said
    assert "planted-secret" not in json.dumps(said)


def test_a_worker_that_cannot_look_says_why_and_does_not_raise(monkeypatch):
    def broken():
        raise OSError("no metadata")

    monkeypatch.setattr(describing, "_of_process", broken)

    assert describe_worker(object())["error"] == "OSError: no metadata"


@pytest.mark.torch
def test_the_configuration_in_force_goes_first_and_the_workers_follow(monkeypatch, need):
    need("omegaconf")
    from omegaconf import OmegaConf

    config = OmegaConf.create(
        {
            "data": {"shuffle": False, "n": "${other}"},
            "other": 5,
            "trainer": {"api_key": "planted-secret", "dir": "/home/alice/x"},
        }
    )
    worker = {"rank": 0, "variables": {}, "seeds": {"called": True, "mode": True, "seed": 1234}}
    monkeypatch.setattr(reach, "ask", lambda trainer, question, seconds: [worker])
    emitted = []

    describe_run(types.SimpleNamespace(config=config), emitted.append)

    assert emitted[0]["config"]["effective"]["data"] == {"shuffle": False, "n": 5}
    assert "planted-secret" not in json.dumps(emitted)
    assert "alice" not in json.dumps(emitted)
    assert emitted[1] == {"workers": [worker]}
    side = Side.from_plain({"facts": facts_fingerprint({**emitted[0], **emitted[1]})})
    assert side.value("data.n") == 5
    assert side.workers_known
    assert side.processes[0].name == "rank 0"
    assert side.versions_whole


def test_a_trainer_without_a_readable_configuration_says_so(monkeypatch):
    monkeypatch.setattr(reach, "ask", lambda *_: [])
    emitted = []

    describe_run(object(), emitted.append)

    assert "AttributeError" in emitted[0]["config"]["why"]["effective"]
    assert len(emitted) == 1


def test_a_recording_keeps_what_the_run_said_later(tmp_path):
    from sentinel.storage.recording import read_recording

    lines = [
        {"t": "start", "at": 1.0, "run": "r", "facts": {"verl": "0.9.1"}},
        {"t": "step", "step": 1, "at": 2.0, "values": {"a": 1.0}},
        {"t": "facts", "at": 3.0, "facts": {"config": {"effective": {"a": 1}}}},
        {"t": "facts", "at": 4.0, "facts": {"workers": [{"rank": 0}]}},
        {"t": "facts", "at": 4.0, "facts": "nonsense"},
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    found = read_recording(path).facts

    assert found == {"verl": "0.9.1", "config": {"effective": {"a": 1}}, "workers": [{"rank": 0}]}


def test_a_configuration_that_is_rewritten_while_the_run_goes_is_told_once_with_its_keys(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"eos_token_id": 151645, "x": 1}')
    watch = ModelConfigWatch(str(tmp_path))

    assert watch.look() == []
    file.write_text('{ "x": 1, "eos_token_id": 151645 }')
    assert watch.look() == []
    file.write_text('{"eos_tok')
    assert watch.look() == []
    file.write_text('{"eos_token_id": 151643, "x": 1}')
    assert watch.look() == [
        "config.json of the model was rewritten while the run goes: eos_token_id was 151645 and is 151643"
    ]
    assert watch.look() == []
    file.unlink()
    assert watch.look() == []


def test_the_watch_over_the_model_ends_with_the_run_and_is_not_begun_for_a_model_id(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"a": 1}')
    monkeypatch.setattr(describing, "LOOK_SECONDS", 0.001)
    over, told = threading.Event(), []

    def trainer(path):
        model = types.SimpleNamespace(path=path)
        return types.SimpleNamespace(config=types.SimpleNamespace(actor_rollout_ref=types.SimpleNamespace(model=model)))

    def said(text):
        told.append(text)
        over.set()

    watch_model(trainer("Qwen/Qwen2.5-0.5B"), said, over)
    timer = threading.Timer(0.1, lambda: (tmp_path / "config.json").write_text('{"a": 2}'))
    timer.start()
    watch_model(trainer(str(tmp_path)), said, over)
    timer.join()

    assert told == ["config.json of the model was rewritten while the run goes: a was 1 and is 2"]


@pytest.mark.live
@pytest.mark.timeout(120)
def test_real_ray_workers_answer_and_a_dead_one_is_left_out():
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:

        @ray.remote(num_cpus=0)
        class Worker:
            rank = 1

        workers = [Worker.remote(), Worker.remote()]
        ray.get([worker.__ray_ready__.remote() for worker in workers])
        ray.kill(workers[1])
        trainer = types.SimpleNamespace(actor_rollout_wg=types.SimpleNamespace(workers=workers))

        answers = reach.ask(trainer, describe_worker, 30.0)
    finally:
        ray.shutdown()

    assert [answer["rank"] for answer in answers] == [1]
    assert answers[0]["packages"]["ray"]["version"] == ray.__version__
