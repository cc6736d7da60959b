# SPDX-License-Identifier: Apache-2.0
"""torch, torch_npu and CANN, msprobe, verl: do they work, and do Sentinel's hooks fit them?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Mapping
from typing import Any

from sentinel.doctor.check import FAIL, PASS, UNKNOWN, WARN, Check
from sentinel.facts.hardware import hardware_facts
from sentinel.facts.npu import SET_ENV
from sentinel.facts.packages import package_facts
from sentinel.trainer.driver import TESTED_VERL

READ_VERL = ("0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.0")
"""Versions whose source was read; the hooks were run on TESTED_VERL only."""
TESTED_MSPROBE = ("26.2.0",)
_FIRST_WITH_ENTRY_POINTS = (0, 9)
_GROUP = "verl.plugins"
_NPU_HINT = f"source {SET_ENV} in this shell (or install CANN), then look again"


def checks(trials: Mapping[str, Mapping[str, Any]]) -> tuple[Check, ...]:
    """Return the checks of what is installed.

    Args:
        trials: answers of the trials `torch`, `verl` and `dump`.
    """
    packages = {name: entry["version"] for name, entry in package_facts().items()}
    hardware = hardware_facts(os.environ)
    return (
        torch(packages, trials["torch"]),
        torch_npu(packages, hardware, trials["torch"]),
        cann(packages, hardware),
        msprobe(packages, trials["dump"]),
        msprobe_names(packages, trials["dump"]),
        dump(packages, trials["dump"]),
        verl(packages, trials["verl"]),
        entry_point(packages, trials["verl"], os.environ),
        hooks(packages, trials["verl"]),
        transfer_queue(packages),
        flash_attention(packages),
        transformers(packages),
    )


def torch(packages: Mapping[str, str], trial: Mapping[str, Any]) -> Check:
    """Whether torch can be imported: with torch_npu and without CANN it cannot."""
    title = "torch"
    if "torch" not in packages:
        return Check(
            id="torch",
            title=title,
            status=UNKNOWN,
            found="not installed: logs can be followed here, no run can be trained or dumped",
            fix="pip install 'verl-sentinel[probe]' in the Python of the training run",
        )
    if "error" in trial:
        npu = "torch_npu" in packages
        fix = _NPU_HINT if npu else "install torch again; its own error is the one above"
        also = "; TORCH_DEVICE_BACKEND_AUTOLOAD=0 lets torch itself be imported without the NPU" if npu else ""
        return Check(
            id="torch", title=title, status=_of(trial), found=f"import torch: {trial['error']}", fix=f"{fix}{also}"
        )
    return Check(id="torch", title=title, status=PASS, found=f"{trial['version']}, import works")


def torch_npu(packages: Mapping[str, str], hardware: Mapping[str, Any], trial: Mapping[str, Any]) -> Check:
    """Whether torch_npu fits torch and finds its devices."""
    title = "torch_npu"
    version = packages.get("torch_npu")
    npus = hardware.get("npus", 0)
    if version is None:
        if npus:
            fix = "pip install torch_npu, in the version of torch"
            return Check(
                id="torch_npu", title=title, status=FAIL, found=f"not installed, and {npus} NPUs are here", fix=fix
            )
        return Check(id="torch_npu", title=title, status=UNKNOWN, found="not installed; no NPU here either")
    wanted = ".".join(packages.get("torch", "").split("+")[0].split(".")[:2])
    if wanted and not version.startswith(f"{wanted}."):
        found = f"{version} beside torch {packages['torch']}"
        return Check(
            id="torch_npu",
            title=title,
            status=FAIL,
            found=found,
            fix=f"install torch_npu {wanted}.* (or the torch that it was built for)",
        )
    if "error" in trial:
        return Check(
            id="torch_npu", title=title, status=_of(trial), found=f"{version}: {trial['error']}", fix=_NPU_HINT
        )
    if not trial.get("npu"):
        status = FAIL if npus else WARN
        found = f"{version}: torch.npu.is_available() is False; {npus} NPUs in /dev"
        return Check(id="torch_npu", title=title, status=status, found=found, fix=_NPU_HINT)
    return Check(id="torch_npu", title=title, status=PASS, found=f"{version}, {trial.get('devices')} devices")


def cann(packages: Mapping[str, str], hardware: Mapping[str, Any]) -> Check:
    """Whether the toolkit is there, and said in the environment."""
    title = "CANN"
    version = hardware.get("cann")
    needed = "torch_npu" in packages or hardware.get("npus")
    if version is None:
        found = "no toolkit in ASCEND_HOME_PATH, ASCEND_TOOLKIT_HOME or /usr/local/Ascend"
        return Check(
            id="cann", title=title, status=FAIL if needed else UNKNOWN, found=found, fix=_NPU_HINT if needed else ""
        )
    more = ", ".join(f"{name} {hardware[name]}" for name in ("driver", "firmware") if name in hardware)
    found = f"{version}{', ' if more else ''}{more}"
    if not os.environ.get("ASCEND_HOME_PATH") and not os.environ.get("ASCEND_TOOLKIT_HOME"):
        return Check(
            id="cann",
            title=title,
            status=WARN,
            found=f"{found}; its environment is not set in this shell",
            fix="source /usr/local/Ascend/ascend-toolkit/set_env.sh before Ray is started",
        )
    return Check(id="cann", title=title, status=PASS, found=found)


def msprobe(packages: Mapping[str, str], trial: Mapping[str, Any]) -> Check:
    """Whether msprobe can be imported."""
    title = "msprobe"
    version = packages.get("mindstudio-probe")
    if version is None:
        return Check(
            id="msprobe",
            title=title,
            status=WARN,
            found="not installed: metrics are watched, nothing can be dumped",
            fix="pip install 'verl-sentinel[probe]' on every training node",
        )
    if "error" in trial:
        found = f"{version}, import msprobe.pytorch: {trial['error']}"
        return Check(
            id="msprobe", title=title, status=_of(trial), found=found, fix="mend torch first; msprobe imports it"
        )
    known = version in TESTED_MSPROBE
    fix = "" if known else f"tested with {', '.join(TESTED_MSPROBE)}; the next two checks say whether it fits"
    return Check(id="msprobe", title=title, status=PASS if known else WARN, found=f"{version}, import works", fix=fix)


def msprobe_names(packages: Mapping[str, str], trial: Mapping[str, Any]) -> Check:
    """Whether the private parts of msprobe that Sentinel drives are there."""
    title = "Private parts of msprobe"
    if "error" in trial or "mindstudio-probe" not in packages:
        return Check(
            id="msprobe.names", title=title, status=UNKNOWN, found="msprobe cannot be imported here", fix="see msprobe"
        )
    return _names("msprobe.names", title, trial["names"], f"install mindstudio-probe {TESTED_MSPROBE[-1]}")


def dump(packages: Mapping[str, str], trial: Mapping[str, Any]) -> Check:
    """Whether a dump works and leaves training as it was."""
    title = "Dump of a small model on the CPU"
    if "error" in trial or "mindstudio-probe" not in packages:
        return Check(
            id="msprobe.dump", title=title, status=UNKNOWN, found="msprobe cannot be imported here", fix="see msprobe"
        )
    found = trial["dump"]
    fix = (
        "" if found["ok"] else f"install mindstudio-probe {TESTED_MSPROBE[-1]}; until then captures fail with this text"
    )
    return Check(id="msprobe.dump", title=title, status=PASS if found["ok"] else FAIL, found=found["said"], fix=fix)


def verl(packages: Mapping[str, str], trial: Mapping[str, Any]) -> Check:
    """Whether verl can be imported, and is of a version that Sentinel knows."""
    title = "verl"
    version = packages.get("verl")
    if version is None:
        return Check(
            id="verl",
            title=title,
            status=WARN,
            found="not installed: logs of runs elsewhere can be followed (`sentinel attach`)",
            fix="install Sentinel in the Python of the training run",
        )
    if "error" in trial:
        return Check(
            id="verl",
            title=title,
            status=_of(trial),
            found=f"{version}, import verl: {trial['error']}",
            fix="a run would fail with the same error; mend what it names first",
        )
    if version in TESTED_VERL:
        return Check(id="verl", title=title, status=PASS, found=f"{version}, import works")
    how = "its source was read, it was not run" if version in READ_VERL else "not known"
    fix = (
        f"tested: {', '.join(TESTED_VERL)}; metrics are watched in any case, the hooks' check says whether captures fit"
    )
    return Check(id="verl", title=title, status=WARN, found=f"{version}: {how}", fix=fix)


def entry_point(packages: Mapping[str, str], trial: Mapping[str, Any], environment: Mapping[str, str]) -> Check:
    """Whether verl will load Sentinel."""
    title = "Sentinel as a plugin of verl"
    names = {point.name: point.value for point in importlib.metadata.entry_points(group=_GROUP)}
    external = "sentinel.trainer.plugin" in environment.get("VERL_USE_EXTERNAL_MODULES", "").split(",")
    policy = environment.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    by_hand = "export VERL_USE_EXTERNAL_MODULES=sentinel.trainer.plugin for launcher and workers"
    if "verl" not in packages:
        return Check(id="verl.plugin", title=title, status=UNKNOWN, found="no verl here", fix="see verl")
    if trial.get("plugin"):
        how = "VERL_USE_EXTERNAL_MODULES" if external else "entry point"
        return Check(id="verl.plugin", title=title, status=PASS, found=f"loaded by import verl ({how})")
    if "error" in trial:
        return Check(
            id="verl.plugin", title=title, status=UNKNOWN, found="verl cannot be imported here", fix="see verl"
        )
    if "sentinel" not in names:
        found = f"no entry point `sentinel` in group {_GROUP}: Sentinel is on the path, not installed"
        return Check(
            id="verl.plugin", title=title, status=FAIL, found=found, fix=f"pip install verl-sentinel, or {by_hand}"
        )
    if policy != "auto" and "sentinel" not in [name.strip() for name in policy.split(",")]:
        found, fix = f"VERL_USE_EXTERNAL_PLUGINS={policy} leaves it out", "add `sentinel` to it, or unset it"
    elif tuple(int(p) for p in packages["verl"].split(".")[:2] if p.isdigit()) < _FIRST_WITH_ENTRY_POINTS:
        found, fix = f"verl {packages['verl']} knows no entry points", by_hand
    else:
        found, fix = "verl did not load it", by_hand
    return Check(id="verl.plugin", title=title, status=FAIL, found=found, fix=fix)


def hooks(packages: Mapping[str, str], trial: Mapping[str, Any]) -> Check:
    """Whether what Sentinel hooks is there in the installed verl."""
    title = "Hooks in verl"
    if "verl" not in packages or "error" in trial:
        return Check(id="verl.hooks", title=title, status=UNKNOWN, found="verl cannot be imported here", fix="see verl")
    names: dict[str, str] = dict(trial["names"])
    v1 = {name: why for name, why in names.items() if ".v1." in name and why}
    rest = {name: why for name, why in names.items() if ".v1." not in name}
    if v1 and not any(rest.values()):
        found = f"V0 fits; V1 does not: {_first(v1)}"
        fix = "see TransferQueue; verl before 0.9 has no V1 trainer of this name"
        return Check(id="verl.hooks", title=title, status=WARN, found=found, fix=fix)
    return _names(
        "verl.hooks", title, names, f"use verl {TESTED_VERL[-1]}; metrics are watched where Tracking.log is there"
    )


def transfer_queue(packages: Mapping[str, str]) -> Check:
    """The V1 trainer imports it, and a plain install of verl does not bring it."""
    title = "TransferQueue (V1 trainer)"
    version = packages.get("TransferQueue")
    if "verl" not in packages:
        return Check(id="transfer_queue", title=title, status=UNKNOWN, found="no verl here", fix="see verl")
    if version is None:
        fix = "pip install 'TransferQueue>=0.1.10', or launch with trainer.use_v1=False"
        return Check(id="transfer_queue", title=title, status=FAIL, found="not installed", fix=fix)
    old = tuple(int(part) for part in version.split(".")[:3] if part.isdigit()) < (0, 1, 10)
    fix = "pip install 'TransferQueue>=0.1.10'" if old else ""
    return Check(id="transfer_queue", title=title, status=FAIL if old else PASS, found=version, fix=fix)


def flash_attention(packages: Mapping[str, str]) -> Check:
    """The kernel that verl asks for is flash_attention_2, unless told otherwise; a critic without it says "install trl"."""
    title = "Attention kernel"
    if "verl" not in packages:
        return Check(id="flash_attention", title=title, status=UNKNOWN, found="no verl here", fix="see verl")
    there = [name for name in ("flash-attn", "torch_npu") if name in packages]
    if there:
        return Check(id="flash_attention", title=title, status=PASS, found=f"{there[0]} {packages[there[0]]}")
    fix = "+actor_rollout_ref.model.override_config.attn_implementation=sdpa (and the same of critic.model), on both sides alike"
    found = (
        "neither flash-attn nor torch_npu: flash_attention_2, verl's default, fails (a critic then says `install trl`)"
    )
    return Check(id="flash_attention", title=title, status=WARN, found=found, fix=fix)


def transformers(packages: Mapping[str, str]) -> Check:
    """It computes the model, and must be the baseline's version exactly."""
    title = "transformers"
    version = packages.get("transformers")
    if version is None:
        status = FAIL if "verl" in packages else UNKNOWN
        return Check(
            id="transformers", title=title, status=status, found="not installed", fix="install the baseline's version"
        )
    broken = importlib.util.find_spec("tokenizers") is None
    fix = "pip install tokenizers, in the version that transformers asks for" if broken else ""
    found = f"{version}; `sentinel preflight` compares it with the baseline's"
    return Check(id="transformers", title=title, status=FAIL if broken else PASS, found=found, fix=fix)


def _names(identity: str, title: str, names: Mapping[str, str], fix: str) -> Check:
    missing = {name: why for name, why in names.items() if why}
    if not missing:
        return Check(id=identity, title=title, status=PASS, found=f"all {len(names)} are there")
    return Check(
        id=identity, title=title, status=FAIL, found=f"{len(missing)} of {len(names)}: {_first(missing)}", fix=fix
    )


def _first(missing: Mapping[str, str]) -> str:
    name, why = next(iter(missing.items()))
    return f"{name}: {why}"


def _of(trial: Mapping[str, Any]) -> str:
    return UNKNOWN if trial.get("timeout") else FAIL
