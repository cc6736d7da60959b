# SPDX-License-Identifier: Apache-2.0
"""What could not be tried without an NPU: computing, repeating, dumping on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sentinel.doctor.check import FAIL, PASS, UNKNOWN, Check

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
