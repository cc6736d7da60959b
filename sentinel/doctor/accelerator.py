# SPDX-License-Identifier: Apache-2.0
"""What could not be tried without an NPU: computing, repeating, dumping on the device, and what a watch relies on there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sentinel.doctor.check import FAIL, PASS, UNKNOWN, Check
from sentinel.facts.npu import HF32, INF_NAN

QUESTIONS = {
    "compute": ("Computing on the NPU", "the device computes wrongly: run `ascend-dmi -dg` or ask for another card"),
    "repeat": (
        "Repeating on the NPU",
        "set the variables of determinism (`sentinel preflight --fix`) and seed_all(mode=True), then look again",
    ),
    "dump": (
        "A dump on the NPU",
        "captures fail on this device with this text; report it with `sentinel doctor --npu --json`",
    ),
    "float32": (
        "Bits of float32 products",
        f"set {HF32} = False for a comparison in float32; in bf16 it does not matter",
    ),
    "non_finite": (
        "Overflow on the NPU",
        f"export {INF_NAN}=1; where the device cannot, overflow saturates: drift can be seen, NaN never",
    ),
    "statistics": (
        "Statistics of a dump on the NPU",
        "norms of dumps are not comparable with the GPU's; report it with `sentinel doctor --npu --json`",
    ),
    "memory": ("Memory of the NPU", "the device has no free memory: another process holds it (`npu-smi info`)"),
    "collective": (
        "Collectives on the NPU",
        "HCCL does not work here: `hccn_tool -i 0 -link -g`, driver and CANN must fit",
    ),
}


def checks(trial: Mapping[str, Any]) -> tuple[Check, ...]:
    """Return the checks that need a device.

    Args:
        trial: answer of the trial `npu`; `{"error": ...}` where there is no device to try on.
    """
    return tuple(_one(name, title, fix, trial) for name, (title, fix) in QUESTIONS.items())


def _one(name: str, title: str, fix: str, trial: Mapping[str, Any]) -> Check:
    if "error" in trial:
        found = f"no NPU can be used here: {trial['error']}"
        return Check(id=f"npu.{name}", title=title, status=UNKNOWN, found=found, fix="run it on the NPU machine")
    answer = trial[name]
    return Check(
        id=f"npu.{name}",
        title=title,
        status=PASS if answer["ok"] else FAIL,
        found=answer["said"],
        fix="" if answer["ok"] else fix,
    )
