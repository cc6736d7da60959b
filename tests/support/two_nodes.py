# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster of two nodes on this machine, one with given resources; prints where the daemon went, each time it was started.

Run by path, not imported: it is a process of its own, with everything of Ray below it. The second node joins a
cluster that is used already, and the daemon is started as soon as Ray knows of the node, as a pod of KubeRay does it.
Arguments: the second node's resources as JSON, the daemon's home, how often to start.
"""

import json
import sys
import time

import ray
from ray.cluster_utils import Cluster

JOIN_SECONDS = 60.0


def main():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    from sentinel.daemon import ray_actor

    resources = json.loads(sys.argv[1])
    cluster.add_node(wait=False, num_cpus=0, resources=resources)
    end = time.monotonic() + JOIN_SECONDS
    while len(nodes := [node for node in ray.nodes() if node["Alive"]]) < 2:
        assert time.monotonic() < end, "the second node did not join"
        time.sleep(0.02)
    sentinel = {node["NodeID"]: node["Resources"].get("sentinel", 0) for node in nodes}
    settings = json.dumps({"home": sys.argv[2], "http": {"port": 0}})
    found = []
    for _ in range(int(sys.argv[3])):
        actor = ray_actor.connect_or_start(settings)
        query = actor.__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id())
        found.append(sentinel[ray.get(query, timeout=60)])
        ray.kill(actor, no_restart=True)
        while ray_actor.find() is not None:
            time.sleep(0.02)
    print(json.dumps({"resource_of_its_node": found, "nodes": len(nodes)}), flush=True)
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
