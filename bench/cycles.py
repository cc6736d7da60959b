# SPDX-License-Identifier: Apache-2.0
"""A thousand captures in one worker process: what stays behind; and what each stage costs after captures, beside a process without any.

Processes of their own, so that nothing else is counted; the two whose stages are timed take turns, so that both have the same machine.
"""

from __future__ import annotations

import json
import statistics
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


TURNS = 150
_TURNS_SCRIPT = """
import json, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
import workers
from sentinel.trainer import arming

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(16, 128)
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 128)) for _ in range(6))
        self.head = torch.nn.Linear(128, 4)
    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)

workers.TinyModel = Model
actor = workers.WorkerActor(critic=True)
actor.data = {"ids": torch.arange(1024).reshape(16, 64) % 16}
critic = actor.worker_dict["critic"]
stages = {
    "actor_compute_log_prob": actor.main.compute_log_prob,
    "ref_compute_log_prob": actor.main.compute_ref_log_prob,
    "compute_values": lambda data: critic.infer_batch(data),
    "critic_update": lambda data: critic.train_mini_batch(data),
    "actor_update": actor.main.update_actor,
}
for line in sys.stdin:
    what = json.loads(line)
    if what == "capture":
        for number, level in enumerate(("L0", "mix", "L1", "mix")):
            with tempfile.TemporaryDirectory() as root:
                plan = {"root": root, "step": number, "stages": list(stages), "level": level, "min_free_bytes": 1}
                arming.arm(actor, plan)
                actor.run_step()
                answer = arming.disarm(actor)
        print(json.dumps(answer["broken"]), flush=True)
        continue
    if isinstance(what, dict):
        with tempfile.TemporaryDirectory() as root:
            arming.arm(actor, {"root": root, "step": 1, "min_free_bytes": 1, **what})
            actor.run_step()
            answer = arming.disarm(actor)
        print(json.dumps([answer["bytes"], answer["seconds"]]), flush=True)
        continue
    began = time.process_time()
    stages[what](actor.data)
    print(json.dumps(time.process_time() - began), flush=True)
"""
STAGES = ("actor_compute_log_prob", "ref_compute_log_prob", "compute_values", "critic_update", "actor_update")


def ask(process, what):
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()
    while True:
        line = process.stdout.readline()
        if line[:1] in '"[0123456789':
            return json.loads(line)


def prices() -> list[dict]:
    """Bytes and added seconds of dumping everything (five stages, L1, two steps) over those of an escalation in the reference."""
    support = str(Path(__file__).parents[1] / "tests" / "support")
    command = [sys.executable, "-W", "ignore", "-c", _TURNS_SCRIPT, support]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stage, module = ["ref_compute_log_prob"], ["layers.3.0"]
    plans = {
        "everything": {"stages": list(STAGES), "level": "L1"},
        "modules": {"stages": stage, "level": "L0"},
        "operations": {"stages": stage, "level": "mix", "modules": module},
        "tensors": {"stages": stage, "level": "mix", "modules": module, "task": "tensor"},
    }
    try:
        ask(process, "capture")
        taken = {}
        for name, plan in plans.items():
            tries = [ask(process, plan) for _ in range(5)]
            taken[name] = (tries[0][0], statistics.median(seconds for _, seconds in tries))
    finally:
        process.kill()
        process.wait()
    rows = []
    for place, unit in ((0, "bytes"), (1, "added seconds")):
        whole = 2 * taken["everything"][place]
        one = taken["modules"][place] + taken["operations"][place]
        told = ", ".join(f"{name} {value[place]:.4g}" for name, value in taken.items())
        rows.append(
            {
                "name": f"worker in miniature: {unit} of everything over modules (1 step) and operations",
                "value": whole / one,
                "unit": "x",
                "peer": f"one step each: {told}; two steps of modules: {whole / (one + taken['modules'][place]):.3g} x",
            }
        )
    return rows


def stage_times(turns: int = TURNS) -> list[dict]:
    """Median CPU time of each stage in a process that captured every stage four times, over that in one that never did."""
    support = str(Path(__file__).parents[1] / "tests" / "support")
    command = [sys.executable, "-W", "ignore", "-c", _TURNS_SCRIPT, support]
    pair = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]

    try:
        ask(pair[1], "capture")
        times = {stage: ([], []) for stage in STAGES}
        for turn in range(turns):
            for stage in STAGES:
                for place in (0, 1) if turn % 2 else (1, 0):
                    times[stage][place].append(ask(pair[place], stage))
    finally:
        for process in pair:
            process.kill()
            process.wait()
    return [
        {
            "name": f"{stage} after captures at every level, of a process without any",
            "value": statistics.median(after[turns // 10 :]) / statistics.median(before[turns // 10 :]),
            "unit": "x",
            "limit": 1.05,
            "peer": f"{statistics.median(before) * 1e3:.1f} ms of CPU",
        }
        for stage, (before, after) in times.items()
    ]


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
        *prices(),
        *stage_times(),
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
