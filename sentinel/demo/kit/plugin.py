# SPDX-License-Identifier: Apache-2.0
"""What verl loads in each of its processes: the CPU platform at once, every other patch when its module is imported.

What only a CPU needs is left out where VERL_PLATFORM names another platform.

verl imports this in the middle of its own import, so no verl module but the platform's may be imported here;
wrapt runs each patch right after the module that it concerns was executed.
"""

from __future__ import annotations

import os
from typing import Any

import wrapt

from sentinel.demo.kit import cpu_platform, faults

ROLLOUT_NAME = "democpu"


def patch_process_group(module: Any) -> None:
    """Ask for plain gloo: verl's own string names the backend of device `cpu` twice, which torch refuses."""
    original = module.initialize_global_process_group_ray

    def initialize_global_process_group_ray(timeout_second=None, backend=None):
        return original(timeout_second=timeout_second, backend=backend or "gloo")

    module.initialize_global_process_group_ray = initialize_global_process_group_ray


def patch_engine(module: Any) -> None:
    """Offer the FSDP engine on device `cpu`, without pinned memory, which needs an accelerator."""
    engines = module.EngineRegistry._engines
    for model_type, engine in (
        ("language_model", module.FSDPEngineWithLMHead),
        ("value_model", module.FSDPEngineWithValueHead),
    ):
        engines[model_type]["fsdp2"].setdefault("cpu", engine)
    policy = module.CPUOffloadPolicy
    module.CPUOffloadPolicy = lambda pin_memory=True: policy(pin_memory=False)  # noqa: ARG005


def patch_critic_loader(module: Any) -> None:
    """Load the critic with eager attention: verl's loader insists on flash attention and then blames a missing trl."""

    def load_valuehead_model(local_path, torch_dtype, model_config, trust_remote_code):
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation="eager",
            trust_remote_code=trust_remote_code,
        )

    module.load_valuehead_model = load_valuehead_model


def patch_replicas(module: Any) -> None:
    """Offer the demo's rollout replica."""

    def load() -> Any:
        from sentinel.demo.kit.rollout_engine import DemoReplica

        return DemoReplica

    module.RolloutReplicaRegistry.register(ROLLOUT_NAME, load)


def patch_rollouts(module: Any) -> None:
    """Offer the sender of weights that lives in the training worker."""
    module._ROLLOUT_REGISTRY[(ROLLOUT_NAME, "async")] = "sentinel.demo.kit.rollout_engine.WeightSender"


__all__ = ["cpu_platform"]

ONLY_ON_A_CPU = (
    ("verl.utils.distributed", patch_process_group),
    ("verl.workers.engine.fsdp.transformer_impl", patch_engine),
)

for name, patch in (
    *(ONLY_ON_A_CPU if os.environ.get("VERL_PLATFORM") == "cpu" else ()),
    ("verl.utils.model", patch_critic_loader),
    ("verl.workers.rollout.replica", patch_replicas),
    ("verl.workers.rollout.base", patch_rollouts),
    ("verl.workers.engine_workers", faults.install),
):
    wrapt.register_post_import_hook(patch, name)
