# SPDX-License-Identifier: Apache-2.0
"""Devices, driver, firmware and toolkit, read from files: no process is started, no device is opened."""

from __future__ import annotations

import glob
import os
import platform
import re
from collections.abc import Mapping

from sentinel.facts.npu import ASCEND_ROOT, DEVICE_FILES, TOOLKIT_FOLDERS, TOOLKIT_VARIABLES

_VERSION = re.compile(r"^\s*(?:version|runtime_running_version|Version)\s*=\s*[\"'\[]*([^\s\"'\]]+)", re.MULTILINE)
_CFG_VERSION = re.compile(r"^\s*runtime_running_version\s*=\s*\[([^:\]]+)", re.MULTILINE)
_NVIDIA_DRIVER = re.compile(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")
_READ = 65536


def hardware_facts(environment: Mapping[str, str], root: str = "/") -> dict[str, object]:
    """Return what this machine computes with.

    Args:
        environment: variables of the process.
        root: of the file system, for tests.

    Returns:
        `{"machine", "cpus", "npus"?, "gpus"?, "gpu_names"?, "cann"?, "driver"?, "firmware"?, "nvidia_driver"?}`;
        what is not there is absent.
    """
    facts: dict[str, object] = {"machine": platform.machine(), "cpus": os.cpu_count() or 0}
    npus = [path for path in glob.glob(os.path.join(root, DEVICE_FILES)) if re.search(r"davinci\d+$", path)]
    if npus:
        facts["npus"] = len(npus)
    names = [
        _value(path, "Model") for path in sorted(glob.glob(os.path.join(root, "proc/driver/nvidia/gpus/*/information")))
    ]
    if names:
        facts["gpus"] = len(names)
        facts["gpu_names"] = sorted(set(names))
    match = _NVIDIA_DRIVER.search(_text(os.path.join(root, "proc/driver/nvidia/version")))
    if match:
        facts["nvidia_driver"] = match.group(1)
    toolkit = cann_folder(environment, root)
    ascend = os.path.join(root, ASCEND_ROOT.lstrip("/"))
    said = {
        "cann": cann_version(toolkit) if toolkit else "",
        "driver": _version(os.path.join(ascend, "driver/version.info")),
        "firmware": _version(os.path.join(ascend, "firmware/version.info")),
    }
    return facts | {key: value for key, value in said.items() if value}


def cann_folder(environment: Mapping[str, str], root: str = "/") -> str | None:
    """Return the CANN toolkit's folder: as the environment says, else where it is installed by default."""
    ascend = os.path.join(root, ASCEND_ROOT.lstrip("/"))
    places = [environment.get(name, "") for name in TOOLKIT_VARIABLES]
    places += [os.path.join(ascend, name) for name in TOOLKIT_FOLDERS]
    return next((place for place in places if place and os.path.isdir(place)), None)


def cann_version(folder: str) -> str:
    """Return the toolkit's version, or `unknown` where no file of the folder says it."""
    infos = sorted(glob.glob(os.path.join(folder, "*-linux/ascend_toolkit_install.info")))
    infos += sorted(glob.glob(os.path.join(folder, "*/ascend_toolkit_install.info")))
    for path in (*infos, os.path.join(folder, "ascend_toolkit_install.info"), os.path.join(folder, "version.info")):
        version = _version(path)
        if version:
            return version
    match = _CFG_VERSION.search(_text(os.path.join(folder, "version.cfg")))
    return match.group(1) if match else "unknown"


def _version(path: str) -> str:
    match = _VERSION.search(_text(path))
    return match.group(1) if match else ""


def _value(path: str, name: str) -> str:
    match = re.search(rf"^{name}:\s*(.+?)\s*$", _text(path), re.MULTILINE)
    return match.group(1) if match else "unknown"


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_READ)
    except OSError:
        return ""
