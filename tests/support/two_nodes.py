# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster of two nodes on this machine, one with the resource `sentinel`; prints where the daemon went.

Run by path, not imported: it is a process of its own, with everything of Ray below it.
"""

import json
import sys

import ray
from ray.cluster_utils import Cluster


def main():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1, resources=json.loads(sys.argv[1]))
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    from sentinel.daemon import ray_actor

    actor = ray_actor.connect_or_start(json.dumps({"home": sys.argv[2], "http": {"port": 0}}))
    query = actor.__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id())
    found = ray.get(query, timeout=60)
    nodes = {node["NodeID"]: node["Resources"].get("sentinel", 0) for node in ray.nodes()}
    print(json.dumps({"resource_of_its_node": nodes[found], "nodes": len(nodes)}), flush=True)
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
