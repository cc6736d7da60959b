# SPDX-License-Identifier: Apache-2.0
"""A thousand captures in one worker process: what stays behind. A process of its own, so that nothing else is counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CYCLES = 1000
WARM = 100
_SCRIPT = """
import gc, json, os, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
import torch
torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
from workers import WorkerActor, hooks_on
from sentinel.trainer import arming
cycles, warm = int(sys.argv[2]), int(sys.argv[3])
actor = WorkerActor(critic=True)
stages = ["actor_compute_log_prob", "ref_compute_log_prob", "compute_values", "critic_update", "actor_update"]
kinds = [("L0", "statistics", []), ("mix", "statistics", []), ("mix", "tensor", ["first"])]

def memory():
    gc.collect()
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))

seen, failures = [], 0
for cycle in range(cycles):
    level, task, modules = kinds[cycle % 3]
    with tempfile.TemporaryDirectory() as root:
        plan = {"root": root, "step": cycle, "stages": [stages[cycle % 5]], "level": level, "task": task, "modules": modules}
        armed = arming.arm(actor, {**plan, "min_free_bytes": 1})
        actor.run_step()
        answer = arming.disarm(actor)
        failures += bool(armed["error"] or answer.get("broken") or not answer.get("bytes"))
    if cycle + 1 in (warm, cycles // 2, cycles):
        seen.append(memory())
from msprobe.core.dump.data_dump.data_collector import DataCollector
gc.collect()
print(json.dumps({
    "memory": seen, "failures": failures, "hooks": hooks_on(actor.models()),
    "collectors": sum(type(thing) is DataCollector for thing in gc.get_objects()),
}))
"""


def run(cycles: int = CYCLES, warm: int = WARM) -> list[dict]:
    """Return one row a number."""
    support = Path(__file__).parents[1] / "tests" / "support"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SCRIPT, str(support), str(cycles), str(warm)],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    grown = (told["memory"][-1] - told["memory"][0]) / (cycles - warm)
    return [
        {"name": f"hooks on the models after {cycles} captures", "value": told["hooks"], "unit": "hooks", "limit": 0},
        {
            "name": f"msprobe's data collectors after {cycles} captures",
            "value": told["collectors"],
            "unit": "objects",
            "limit": 2,
        },
        {"name": f"captures of {cycles} that failed", "value": told["failures"], "unit": "captures", "limit": 0},
        {
            "name": f"memory that one more capture keeps (from {warm} to {cycles})",
            "value": grown / 1024,
            "unit": "KiB",
            "limit": 8,
            "peer": " -> ".join(f"{size / 2**20:.0f} MiB" for size in told["memory"]),
        },
    ]
