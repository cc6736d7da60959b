# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster of three nodes on this machine; the one with the daemon dies while a run is watched; prints what became of both.

Run by path, not imported: it is a process of its own, with everything of Ray below it. Arguments: a folder that all
nodes see, and the settings as JSON.
"""

import contextlib
import json
import math
import sys
import time
import types
from pathlib import Path

import psutil
import ray
from ray.cluster_utils import Cluster

ROOT = Path(__file__).parents[2]
# Another package named `tests` may be installed.
sys.modules.setdefault("tests", types.ModuleType("tests")).__path__ = [str(ROOT / "tests")]


def ask(actor, what, *args, seconds=90):
    """Ask until an answer comes, as the trainer's side does; return it and the seconds that took."""
    begun = time.monotonic()
    while True:
        try:
            return ray.get(getattr(actor, what).remote(*args), timeout=20), time.monotonic() - begun
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
            if time.monotonic() - begun > seconds:
                raise
            time.sleep(0.1)


def where(actor):
    return ray.get(actor.__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id()), timeout=60)


def main():
    from sentinel.daemon import ray_actor
    from tests.support.watching import metrics

    folder, text = sys.argv[1], sys.argv[2]
    config = {"path": str(Path(folder) / "sentinel.yaml"), "text": text}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    workers = [cluster.add_node(num_cpus=1, resources={"sentinel": 1}), cluster.add_node(num_cpus=1)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    actor = ray_actor.connect_or_start(text)

    def report(*records):
        return ask(actor, "report", {"v": 1, "run": "r", "session": "s", "records": list(records)})

    def step(number, **changed):
        return report({"t": "step", "step": number, "at": time.time(), "values": metrics(number, **changed)})

    report({"t": "start", "at": time.time(), "facts": {"trainer": "v1"}, "config": config})
    for number in range(1, 8):
        step(number)
    orders = step(8, actor__grad_norm=math.nan)[0]["orders"]
    before, home = where(actor), ask(actor, "query", "status")[0]
    (node,) = [worker for worker in workers if worker.node_id == before]
    begun = time.monotonic()
    cluster.remove_node(node, allow_graceful=False)
    # The actor's process outlives its node for a moment, and still answers.
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(home["pid"]).wait(60)

    # What was not acknowledged is sent again.
    reply, _ = step(9)
    seconds = time.monotonic() - begun
    after, status = where(actor), ask(actor, "query", "status")[0]
    incidents = ask(actor, "query", "incidents")[0]["incidents"]
    found = {
        "moved": after not in (before, None),
        "seconds": seconds,
        "step": reply["step"],
        "same_orders": [order["id"] for order in orders] == [order["id"] for order in reply["orders"]] != [],
        "incidents": [(incident["id"], incident["opened_at_step"]) for incident in incidents],
        "steps_seen": status["runs"][0]["steps_seen"],
        "restarts": status["restarts"] - home["restarts"],
        "warnings": status["runs"][0]["warnings"],
    }
    print(json.dumps(found), flush=True)
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
