# SPDX-License-Identifier: Apache-2.0
"""A pair of fingerprints that agree in everything, and what the run of the target showed."""

import copy
import hashlib
from importlib import resources

from sentinel.core.checklist import Evidence, Rules

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

RULES = Rules.from_mapping(
    tomllib.loads((resources.files("sentinel") / "data" / "checklist.toml").read_text(encoding="utf-8"))
)

VARIABLES = {
    "CLOSE_MATMUL_K_SHIFT": "1",
    "ATB_MATMUL_SHUFFLE_K_ENABLE": "0",
    "HCCL_DETERMINISTIC": "true",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ASCEND_ENABLE_NZ": "0",
}
CONFIG = {
    "data.shuffle": False,
    "data.validation_shuffle": False,
    "data.train_files": "/data/train.parquet",
    "data.train_batch_size": 128,
    "data.max_response_length": 1024,
    "algorithm.adv_estimator": "grpo",
    "actor_rollout_ref.model.path": "/models/qwen",
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "actor_rollout_ref.actor.clip_ratio": 0.2,
    "actor_rollout_ref.actor.use_dynamic_bsz": False,
    "actor_rollout_ref.actor.shuffle": False,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.actor.profiler.enable": False,
    "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": False,
    "actor_rollout_ref.rollout.load_format": "dummy",
    "actor_rollout_ref.rollout.calculate_log_probs": True,
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": False,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.temperature": 1.0,
    "actor_rollout_ref.rollout.top_p": 1.0,
    "actor_rollout_ref.rollout.top_k": -1,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 2,
    "trainer.balance_batch": False,
    "trainer.n_gpus_per_node": 8,
    "trainer.nnodes": 1,
    "trainer.device": "cuda",
    "trainer.project_name": "gpu-side",
    "skip.rollout.enable": False,
    "skip.rollout.steps": [],
}
WRITTEN = (
    "data.shuffle",
    "data.validation_shuffle",
    "data.train_batch_size",
    "algorithm.adv_estimator",
    "actor_rollout_ref.actor.optim.lr",
    "actor_rollout_ref.rollout.tensor_model_parallel_size",
)
FILES = (
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "tokenizer.json",
    "config.json",
    "generation_config.json",
    "README.md",
)


def _file(name, content="x"):
    return {"bytes": 100 + len(name), "sha256": hashlib.sha256(f"{name}{content}".encode()).hexdigest()}


def golden():
    """The GPU side."""
    packages = {
        "verl": {"version": "0.9.1", "commit": "a" * 40},
        "transformers": {"version": "4.57.1"},
        "torch": {"version": "2.7.1+cu126"},
        "vllm": {"version": "0.10.1"},
        "ray": {"version": "2.49.0"},
        "flash-attn": {"version": "2.8.1"},
        "mindstudio-probe": {"version": "26.2.0"},
    }
    return {
        "sentinel_fingerprint": 1,
        "process": {
            "python": "3.11.7",
            "packages": packages,
            "variables": {},
            "hardware": {"gpus": 8, "nvidia_driver": "550.1"},
        },
        "workers": [
            {
                "rank": rank,
                "variables": {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
                "seeds": {"called": True, "mode": True, "seed": 1234},
            }
            for rank in range(8)
        ],
        "model": {
            "files": {name: _file(name) for name in FILES},
            "documents": {
                "config.json": {"eos_token_id": 151645, "torch_dtype": "bfloat16"},
                "generation_config.json": {"eos_token_id": [151645, 151643]},
            },
        },
        "config": {"effective": dict(CONFIG), "explicit": {key: CONFIG[key] for key in WRITTEN}},
        "data": {"order": {str(step): {"prompts": f"p{step}", "texts": f"t{step}", "rows": 8} for step in range(1, 6)}},
    }


def target():
    """The NPU side of the same recipe: other devices, paths, names and NPU packages, nothing that counts."""
    plain = golden()
    process = plain["process"]
    process["packages"] |= {
        "torch": {"version": "2.7.1"},
        "torch_npu": {"version": "2.7.1"},
        "vllm-ascend": {"version": "0.10.1rc1"},
    }
    del process["packages"]["flash-attn"]
    process["hardware"] = {"npus": 8, "cann": "8.3.RC1", "driver": "25.0"}
    for worker in plain["workers"]:
        worker["variables"] = dict(VARIABLES)
    plain["config"]["effective"] |= {
        "trainer.device": "npu",
        "trainer.project_name": "npu-side",
        "actor_rollout_ref.model.path": "/home/someone/models/qwen",
        "data.train_files": "/elsewhere/train.parquet",
        "skip.rollout.enable": True,
        "skip.rollout.steps": [1, 2, 3, 4, 5],
    }
    plain["model"]["files"]["README.md"] = _file("README.md", "other")
    return plain


EVIDENCE = Evidence(
    replayed=(1, 2, 3, 4, 5),
    steps=(1, 2, 3, 4, 5),
    recording={"path": "/rollouts", "steps": [1, 2, 3, 4, 5]},
    golden_dumps=12,
    armed=True,
    triaged=("same", "same"),
)


def changed(plain, path, value):
    """A copy with one value changed; `path` is split at `/`, so that keys may hold dots. `...` takes it out."""
    plain = copy.deepcopy(plain)
    *parents, last = path.split("/")
    place = plain
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return plain
