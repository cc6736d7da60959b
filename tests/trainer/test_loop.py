# SPDX-License-Identifier: Apache-2.0
"""Loops that are not verl's: one's own, and a real Trainer of Hugging Face; each captured as ordered, none changed by it."""

import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="loops train torch models")
pytest.importorskip("msprobe.pytorch", reason="the capture is msprobe's")

from sentinel.callback import Loop, SentinelCallback  # noqa: E402
from tests.support.workers import TinyModel, hooks_on  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument"),
]
ORDERS = [{"first_step": 3, "last_step": 4, "stages": ["actor_update"], "level": "mix", "why": "test"}]


@pytest.fixture
def environment(tmp_path):
    """Orders from a file and a recording: no daemon is needed."""
    (tmp_path / "orders.json").write_text(json.dumps(ORDERS))
    return {"SENTINEL_ORDERS": str(tmp_path / "orders.json"), "SENTINEL_RECORD": str(tmp_path / "record.jsonl")}


def train(watch=None, steps=6):
    """Losses of a small loop, watched or not."""
    torch.manual_seed(0)
    model, ids = TinyModel(), torch.arange(12).reshape(3, 4) % 16
    watch = watch(model) if watch is not None else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(1, steps + 1):
        if watch is not None:
            watch.begin(step)
        loss = model(ids).square().mean()
        loss.backward()
        if watch is not None:
            watch.end()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if watch is not None:
            watch.log(step, {"loss": losses[-1]})
    if watch is not None:
        watch.close()
    return losses, model


def records(environment, kind):
    with open(environment["SENTINEL_RECORD"]) as file:
        return [record for record in map(json.loads, file) if record["t"] == kind]


def dumped(environment):
    from pathlib import Path

    root = Path(environment["SENTINEL_RECORD"] + ".dumps")
    return sorted(str(path.relative_to(root)) for path in root.rglob("dump.json"))


def test_a_loop_of_ones_own_is_captured_as_ordered_and_trains_the_same_bits(environment):
    plain, _ = train()

    watched, model = train(lambda model: Loop(model, environment=environment))

    assert watched == plain
    assert hooks_on([model]) == 0
    assert dumped(environment) == [f"step_{step}/actor_update/step0/rank0/dump.json" for step in (3, 4)]
    assert [record["step"] for record in records(environment, "step")] == [1, 2, 3, 4, 5, 6]
    receipt = records(environment, "receipt")[-1]["receipt"]
    assert (receipt["outcome"], receipt["first_step"], receipt["last_step"], receipt["ranks"]) == (
        "complete",
        3,
        4,
        [0],
    )


def test_the_dump_holds_the_backward_pass_and_not_the_optimizer(environment, tmp_path):
    train(lambda model: Loop(model, environment=environment))

    (file, _) = sorted((tmp_path / "record.jsonl.dumps").rglob("dump.json"))
    names = list(json.loads(file.read_text())["data"])
    assert any(".backward." in name for name in names)
    assert not any("add_" in name for name in names)


def test_without_a_named_run_nothing_is_watched(tmp_path):
    watched, _ = train(lambda model: Loop(model, environment={}))

    assert watched == train()[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("unset", [{"SENTINEL_DISABLED": "1"}, {"RANK": "3"}])
def test_switched_off_or_of_another_rank_nothing_is_captured(environment, unset):
    train(lambda model: Loop(model, environment={**environment, **unset}))

    assert dumped(environment) == []


def test_a_step_that_raises_leaves_nothing_behind(environment):
    model = TinyModel()
    watch = Loop(model, environment=environment)

    def a_step():
        with watch.step(3):
            model(torch.arange(4).reshape(1, 4))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        a_step()
    watch.close()

    assert hooks_on([model]) == 0


def test_a_loop_without_a_cluster_goes_on_and_is_told_once():
    """No daemon can be reached: the trainer learns nothing of it."""
    script = (
        "import torch, time\n"
        "from sentinel.callback import Loop\n"
        "model = torch.nn.Linear(2, 2)\n"
        "watch = Loop(model, run='alone', environment={})\n"
        "began = time.perf_counter()\n"
        "for step in range(1, 30):\n"
        "    with watch.step(step):\n"
        "        model(torch.ones(1, 2)).sum().backward()\n"
        "    watch.log(step, {'loss': 1.0})\n"
        "print('took', time.perf_counter() - began)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=_environment(), check=False
    )

    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 3.0


def _environment():
    import os

    return {**os.environ, "RAY_ADDRESS": "127.0.0.1:1"}


def hf_run(folder, callback=None, steps=6):
    """A real Trainer on a tiny model: its losses, and the model."""
    transformers = pytest.importorskip("transformers", reason="the Trainer is transformers'")
    pytest.importorskip("accelerate", reason="Trainer needs it")
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=32,
        max_position_embeddings=32,
    )
    model = transformers.Qwen2ForCausalLM(config)
    rows = [{"input_ids": [n % 32, 3, 5, 7], "labels": [n % 32, 3, 5, 7]} for n in range(64)]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        seed=0,
    )
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, callbacks=[] if callback is None else [callback]
    )
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], model


def test_a_real_hugging_face_trainer_is_captured_and_trains_the_same_bits(environment, tmp_path):
    plain, _ = hf_run(tmp_path / "plain")

    watched, model = hf_run(tmp_path / "watched", SentinelCallback(environment=environment))

    assert watched == plain
    assert hooks_on([model]) == 0
    assert dumped(environment) == [f"step_{step}/actor_update/step0/rank0/dump.json" for step in (3, 4)]
    steps = records(environment, "step")
    assert [record["step"] for record in steps] == [1, 2, 3, 4, 5, 6]
    assert {"loss", "grad_norm"} <= set(steps[0]["values"])
    assert records(environment, "start")[0]["facts"]["trainer"] == "hf"
    assert records(environment, "end")
