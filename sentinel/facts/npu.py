# SPDX-License-Identifier: Apache-2.0
"""Everything that is special about an Ascend NPU, each with where it is stated. None of it was run on one.

Other modules take device-specific names from here; `sentinel doctor --npu` asks the device what can be asked, and
docs/npu.md prints the table.
"""

from __future__ import annotations

from dataclasses import dataclass

VERL = "verl 0.9.1, verl/plugin/platform/platform_npu.py (read)"
RAY = "Ray 2.60, ray/_private/accelerators/npu.py (read)"
GUIDE = "verl's alignment guide for Ascend, section on determinism"
MSPROBE = "mindstudio-probe 26.2, msprobe.pytorch.seed_all (read)"
CANN = "Ascend documentation, CANN environment variables and installation guide"
TORCH_NPU = "Ascend Extension for PyTorch, its documentation"

DEVICE = "npu"
MODULE = "torch_npu"
COLLECTIVES = "hccl"
RAY_RESOURCE = "NPU"
VERL_PLATFORM = "huawei"
VISIBLE_DEVICES = "ASCEND_RT_VISIBLE_DEVICES"
DEVICE_FILES = "dev/davinci*"
ASCEND_ROOT = "/usr/local/Ascend"
TOOLKIT_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
TOOLKIT_FOLDERS = ("ascend-toolkit/latest", "cann", "nnae/latest", "latest")
SET_ENV = f"{ASCEND_ROOT}/ascend-toolkit/set_env.sh"
AUTOLOAD_OFF = "TORCH_DEVICE_BACKEND_AUTOLOAD=0"
INF_NAN = "INF_NAN_MODE_ENABLE"
HF32 = "torch.npu.matmul.allow_hf32"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """Something that holds on an NPU and nowhere else."""

    what: str
    value: str
    source: str
    asked: str = ""
    """The check of `sentinel doctor --npu` that asks the device; empty where nothing there can tell."""


FACTS = (
    Fact(what="device of torch", value=DEVICE, source=VERL, asked="npu.compute"),
    Fact(what="module that brings it; importing torch imports it", value=MODULE, source=TORCH_NPU, asked="torch_npu"),
    Fact(what="what keeps torch from importing it", value=AUTOLOAD_OFF, source="PyTorch 2.5, torch.backends entry points"),
    Fact(what="backend of torch.distributed", value=COLLECTIVES, source=VERL, asked="npu.collective"),
    Fact(what="name of Ray's resource", value=RAY_RESOURCE, source=f"{VERL}; {RAY}", asked="ray.cluster"),
    Fact(what="verl's name of the platform (VERL_PLATFORM)", value=VERL_PLATFORM, source=VERL),
    Fact(what="variable of the devices that a process sees", value=VISIBLE_DEVICES, source=f"{VERL}; {RAY}"),
    Fact(what="device files", value=f"/{DEVICE_FILES}", source=RAY, asked="torch_npu"),
    Fact(what="folder of driver, firmware and toolkit", value=ASCEND_ROOT, source=CANN, asked="cann"),
    Fact(what="what makes a shell know CANN", value=f"source {SET_ENV}", source=CANN, asked="cann"),
    Fact(
        what="determinism over HCCL",
        value="HCCL_DETERMINISTIC=true CLOSE_MATMUL_K_SHIFT=1 ATB_MATMUL_SHUFFLE_K_ENABLE=0",
        source=GUIDE, asked="npu.repeat",
    ),
    Fact(
        what="determinism over LCCL (HCCL_OP_EXPANSION_MODE=AIV)",
        value="LCCL_DETERMINISTIC=1 ATB_LLM_LCOC_ENABLE=0 CLOSE_MATMUL_K_SHIFT=1 ATB_MATMUL_SHUFFLE_K_ENABLE=0",
        source=GUIDE, asked="npu.repeat",
    ),
    Fact(what="seeds and deterministic algorithms", value="seed_all(mode=True)", source=f"{GUIDE}; {MSPROBE}", asked="npu.repeat"),
    Fact(
        what="overflow gives Inf and NaN rather than the largest number",
        value=f"{INF_NAN}=1, the default from Atlas A2 on; before it numbers saturate, and no NaN is ever seen",
        source=CANN, asked="npu.non_finite",
    ),
    Fact(
        what="float32 products may be computed with fewer bits",
        value=f"HF32; {HF32} says so", source=TORCH_NPU, asked="npu.float32",
    ),
)  # fmt: skip
