# SPDX-License-Identifier: Apache-2.0
"""The kit makes the installed verl ready for a CPU, from inside verl's own import; in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("verl")
pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

LOOK = """
import json
import verl
from verl.plugin.platform import get_platform
import verl.utils.distributed, verl.workers.engine_workers
import verl.workers.rollout.base as base, verl.workers.rollout.replica as replica
from verl.workers.engine.base import EngineRegistry
from verl.utils.device import get_device_name, get_torch_device
import verl.workers.engine.fsdp.transformer_impl as fsdp
worker = verl.workers.engine_workers.ActorRolloutRefWorker
platform = get_platform()
print("LOOK " + json.dumps({
    "device": get_device_name(),
    "resource": platform.ray_resource_name(),
    "memory": get_torch_device().max_memory_allocated(),
    "engines": sorted(m for m in ("language_model", "value_model") if "cpu" in EngineRegistry._engines[m]["fsdp2"]),
    "pinned": fsdp.CPUOffloadPolicy(pin_memory=True).pin_memory,
    "replica": replica.RolloutReplicaRegistry.get("democpu").__name__,
    "sender": base.get_rollout_class("democpu").__name__,
    "wrapped": {name: hasattr(getattr(worker, name), "__wrapped__") and "faults" in getattr(worker, name).__code__.co_filename
                for name in ("update_actor", "compute_log_prob", "compute_ref_log_prob", "update_weights")},
    "marks": [a for a in dir(worker.update_actor) if a.startswith("attrs_")],
}))
"""


def look(**variables):
    environment = os.environ | {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "sentinel.demo.kit.plugin"}
    environment |= {"SENTINEL_DISABLED": "1", "PYTHONPATH": os.getcwd()} | variables
    done = subprocess.run(
        [sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, check=False, timeout=170
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("LOOK ")), None)
    assert line, done.stderr[-2000:]
    return json.loads(line.removeprefix("LOOK "))


def test_verl_finds_platform_engine_and_rollout_of_the_kit():
    seen = look()

    assert seen["device"] == "cpu"
    assert seen["resource"] == "NPU"
    assert seen["memory"] == 0
    assert seen["engines"] == ["language_model", "value_model"]
    assert seen["pinned"] is False
    assert seen["replica"] == "DemoReplica"
    assert seen["sender"] == "WeightSender"
    assert not any(seen["wrapped"].values()), "without a plan verl's worker stays as it is"


def test_a_plan_wraps_its_stage_only_and_keeps_verls_marks():
    plan = {"stage": "actor_update", "module": "model.norm", "kind": "scale", "size": 1.5, "step": 4}

    seen = look(VERL_DEMO_FAULT=json.dumps(plan))

    assert seen["wrapped"] == {
        "update_actor": True, "compute_log_prob": False, "compute_ref_log_prob": False, "update_weights": True
    }  # fmt: skip
    assert seen["marks"], "verl's registration of the method was lost"
