# SPDX-License-Identifier: Apache-2.0
"""What is tried on a device and needs no model: precision, overflow, statistics, collectives, memory.

Each returns `{"ok": bool, "said": text}` and raises what the device raises.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from typing import Any

from sentinel.facts.npu import COLLECTIVES, DEVICE

_EXACT_ENOUGH = 2e-6
"""Of a float32 product of 512 terms against float64: 24 bits of mantissa give about 1e-7, the 11 of HF32 or TF32 about 3e-4."""
_STATISTICS = 1e-5
"""Of a float32 norm against float64, summed in any order."""


def float32_on(device: str) -> dict[str, Any]:
    """Whether float32 products keep all bits: with fewer, triage against a GPU sees differences in every module."""
    torch = importlib.import_module("torch")
    torch.manual_seed(3)
    left, right = torch.randn(128, 512), torch.randn(512, 128)
    exact = left.double() @ right.double()
    there = (left.to(device) @ right.to(device)).cpu().double()
    error = float((there - exact).abs().max() / exact.abs().max())
    said = f"float32 products off by {error:.1e} of the largest value"
    allowed = _hf32(torch)
    return {"ok": error < _EXACT_ENOUGH, "said": said if allowed is None else f"{said}; allow_hf32 is {allowed}"}


def _hf32(torch: Any) -> bool | None:
    with contextlib.suppress(AttributeError):
        return bool(torch.npu.matmul.allow_hf32)
    return None


def non_finite_on(device: str) -> dict[str, Any]:
    """Whether overflow becomes Inf and NaN: where it saturates, no NaN watch can see it."""
    torch = importlib.import_module("torch")
    large = torch.full((8,), 60000.0, dtype=torch.float16).to(device)
    infinite = (large * 2).cpu()
    undefined = ((large * 2) - (large * 2)).cpu()
    ok = bool(torch.isinf(infinite).all()) and bool(torch.isnan(undefined).all())
    return {"ok": ok, "said": f"float16 60000 x 2 is {float(infinite[0])}, less itself {float(undefined[0])}"}


def statistics_on(device: str) -> dict[str, Any]:
    """Whether the statistics of a dump are those of the tensor, computed on the device."""
    torch = importlib.import_module("torch")
    torch.manual_seed(4)
    values = torch.randn(1 << 18)
    there, exact = values.to(device), values.double()
    pairs = {
        "norm": (float(there.norm()), float(exact.norm())),
        "mean of squares": (float(there.square().mean()), float(exact.square().mean())),
        "max": (float(there.max()), float(exact.max())),
        "min": (float(there.min()), float(exact.min())),
    }
    off = {name: abs(a - b) / abs(b) for name, (a, b) in pairs.items()}
    worst = max(off, key=lambda name: off[name])
    return {"ok": off[worst] < _STATISTICS, "said": f"largest difference {off[worst]:.1e}, of the {worst}"}


def collective_on(device: str) -> dict[str, Any]:
    """A process group of one rank: whether the collectives' library can be loaded and used."""
    torch = importlib.import_module("torch")
    distributed = importlib.import_module("torch.distributed")
    backend = COLLECTIVES if device.startswith(DEVICE) else "nccl" if device.startswith("cuda") else "gloo"
    if backend == COLLECTIVES:
        torch.npu.set_device(0)
    with tempfile.TemporaryDirectory(prefix="sentinel_group_") as folder:
        store = distributed.FileStore(os.path.join(folder, "store"), 1)
        distributed.init_process_group(backend, store=store, rank=0, world_size=1)
        try:
            ones = torch.ones(1024, device=device)
            distributed.all_reduce(ones)
            ok = float(ones.sum()) == 1024.0
        finally:
            distributed.destroy_process_group()
    return {"ok": ok, "said": f"all_reduce of one rank over {backend}"}


def memory_on(device: str) -> dict[str, Any]:
    """Free and whole memory, as verl asks for it."""
    torch = importlib.import_module("torch")
    module = getattr(torch, device.partition(":")[0])
    if not hasattr(module, "mem_get_info"):
        return {"ok": True, "said": f"torch.{device} has no mem_get_info"}
    free, whole = module.mem_get_info()
    return {"ok": free > 0, "said": f"{free / 2**30:.1f} of {whole / 2**30:.1f} GiB free"}


TRIALS = {
    "float32": float32_on,
    "non_finite": non_finite_on,
    "statistics": statistics_on,
    "memory": memory_on,
    "collective": collective_on,
}
