# SPDX-License-Identifier: Apache-2.0
"""The platform `cpu` for verl, chosen by VERL_PLATFORM=cpu."""

from __future__ import annotations

import types
from contextlib import contextmanager
from typing import Any

import torch
from verl.plugin.platform import PlatformRegistry
from verl.plugin.platform.platform_base import PlatformBase


def _device_module() -> types.ModuleType:
    """`torch.cpu` with the calls of `torch.cuda` that verl makes on its device module: no-ops and zeros."""
    module = types.ModuleType("sentinel_demo_cpu_device")
    for name in dir(torch.cpu):
        if not name.startswith("__"):
            setattr(module, name, getattr(torch.cpu, name))
    for name in ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats"):
        setattr(module, name, lambda *_, **__: None)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, lambda *_, **__: 0)
    given: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: torch.device("cpu"),
        "mem_get_info": lambda *_: (0, 0),
        "memory_stats": lambda *_: {},
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "get_device_name": lambda *_: "cpu",
        "nvtx": types.SimpleNamespace(range_push=lambda *_: None, range_pop=lambda *_: None),
    }
    for name, value in given.items():
        setattr(module, name, value)
    return module


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """verl's questions about the accelerator, answered for a machine that has none."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")

    def device_count(self):
        return 1

    def set_device(self, device_index):
        """One device: nothing to choose."""

    def synchronize(self, device_index=None):
        """Nothing runs asynchronously."""

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        """No allocator to set."""

    def empty_cache(self):
        """No cache to empty."""

    def get_device_capability(self, device_index=0):  # noqa: ARG002
        return (None, None)

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "VERL_CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg):  # noqa: ARG002
        yield

    def profiler_start(self):
        """No device profiler."""

    def profiler_stop(self):
        """No device profiler."""

    def ray_resource_name(self):
        # verl reserves one accelerator a worker; Ray knows the name NPU, so its arithmetic works unchanged.
        return "NPU"

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None
