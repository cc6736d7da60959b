# SPDX-License-Identifier: Apache-2.0
"""verl's two ends of the rollout backend `democpu`: the replica that starts a server, and the sender of weights."""

from __future__ import annotations

import os
from typing import Any

import ray
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica

from sentinel.demo.kit.rollout_server import RolloutServer


def server_name(replica_rank: int) -> str:
    """Name of a replica's server actor within the namespace of the run."""
    return f"democpu_rollout_{replica_rank}"


class DemoReplica(RolloutReplica):
    """Starts one server process a replica."""

    async def launch_servers(self):
        """Start the server; verl's client calls it through its Ray handle."""
        from verl.utils.device import get_device_name

        path = self.model_config["path"] if isinstance(self.model_config, dict) else self.model_config.path
        server = (
            ray.remote(RolloutServer)
            .options(name=server_name(self.replica_rank), num_cpus=0, max_concurrency=1000)
            .remote(path, self.config.seed, self.config.response_length, get_device_name())
        )
        self.servers = [server]
        self._server_handle = server
        self._server_address = f"democpu://{self.replica_rank}"


class WeightSender(BaseRollout):
    """Lives in a training worker and sends its weights to the server of the same rank."""

    _server: Any = None

    async def resume(self, tags):
        """Nothing was released."""

    async def release(self):
        """Nothing is released."""

    async def update_weights(self, weights, wire_format="named_tensors", **kwargs):
        """Send a copy of every tensor, in the trainer's own precision."""
        if wire_format != "named_tensors":
            message = f"rollout backend democpu takes named tensors, not {wire_format}"
            raise NotImplementedError(message)
        state = {}
        if hasattr(weights, "__anext__"):
            async for name, tensor in weights:
                state[name] = tensor.detach().to("cpu", copy=True)
        else:
            for name, tensor in weights:
                state[name] = tensor.detach().to("cpu", copy=True)
        if self._server is None:
            self._server = ray.get_actor(server_name(int(os.environ.get("RANK", "0"))))
        await self._server.set_weights.remote(state, kwargs.get("global_steps"))
