# SPDX-License-Identifier: Apache-2.0
"""A real Trainer of Hugging Face, watched by a daemon in a real cluster: what goes wrong at N is on disk at N+1."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("transformers", reason="the Trainer is transformers'")
pytest.importorskip("accelerate", reason="Trainer needs it")
pytest.importorskip("msprobe", reason="captures are msprobe's")

from sentinel.demo.cluster import private_cluster

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

SCRIPT = """
import sys, torch, transformers
from sentinel.callback import SentinelCallback
torch.manual_seed(0)
config = transformers.Qwen2Config(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, vocab_size=32, max_position_embeddings=32)
rows = [{"input_ids": [n % 32, 3, 5, 7], "labels": [n % 32, 3, 5, 7]} for n in range(64)]

class Broken(transformers.Trainer):
    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        return loss * float("nan") if self.state.global_step == 4 else loss

class Slow(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        import time
        time.sleep(15.0 if state.global_step == 1 else 1.0)  # the daemon starts with the first step

arguments = transformers.TrainingArguments(output_dir=sys.argv[1], max_steps=9, per_device_train_batch_size=4, logging_steps=1,
    logging_nan_inf_filter=False, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, seed=0)
Broken(model=transformers.Qwen2ForCausalLM(config), args=arguments, train_dataset=rows,
    callbacks=[SentinelCallback(run="hf"), Slow()]).train()
"""


def test_a_trainer_whose_loss_became_nan_is_dumped_at_the_next_step(tmp_path):
    settings = tmp_path / "sentinel.yaml"
    settings.write_text(
        json.dumps({"home": str(tmp_path / "home"), "http": {"port": 0}, "trainer": {"wait_seconds": 1.0}})
    )
    with private_cluster() as cluster:
        environment = {**cluster.environment(), "SENTINEL_CONFIG": str(settings)}
        subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "out")], env=environment, check=True, timeout=180)

    (incident,) = [json.loads(path.read_text()) for path in (tmp_path / "home").glob("incidents/*/incident.json")]
    assert (incident["kind"], incident["opened_at_step"]) == ("non_finite", 5)
    receipt = incident["receipt"]
    assert (receipt["first_step"], receipt["stages"], receipt["ranks"]) == (6, ["actor_update"], [0])
    assert list((tmp_path / "home" / "dumps").rglob("step_6/actor_update/step0/rank0/dump.json"))
    assert incident["triage"]["verdict"] == "non_finite"
