# SPDX-License-Identifier: Apache-2.0
"""Versions and commits of what a run computes with, without importing any of it.

A package may be loaded, installed, or lie in a checkout on PYTHONPATH that shadows the installed one. What counts is
the copy that an import would take: of a loaded module its own `__version__`, else what stands in its folder, else what
its installation says.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import sys

PACKAGES: dict[str, str] = {
    "verl": "verl",
    "transformers": "transformers",
    "torch": "torch",
    "torch_npu": "torch_npu",
    "megatron-core": "megatron.core",
    "mindspeed": "mindspeed",
    "vllm": "vllm",
    "vllm-ascend": "vllm_ascend",
    "sglang": "sglang",
    "mindstudio-probe": "msprobe",
    "ray": "ray",
    "flash-attn": "flash_attn",
    "tensordict": "tensordict",
    "TransferQueue": "transfer_queue",
    "tokenizers": "tokenizers",
    "numpy": "numpy",
    "triton": "triton",
    "triton-ascend": "triton_ascend",
    "liger-kernel": "liger_kernel",
    "peft": "peft",
    "accelerate": "accelerate",
    "datasets": "datasets",
    "verl-sentinel": "sentinel",
}
"""Name of the distribution -> name of the module."""

_VERSION_LINE = re.compile(r"^\s*_*version_*\s*(?::[^=]+)?=\s*(?:version\s*=\s*)?[\"']([^\"']+)[\"']", re.MULTILINE)
_COMMIT_LINE = re.compile(
    r"^\s*(?:git_version|__commit_id__|commit_id|__githash__|githash)\s*(?::[^=]+)?=\s*[\"']g?([0-9a-f]{7,40})[\"']",
    re.MULTILINE,
)
_VERSION_FILES = ("version/version", "version.py", "_version.py", "__init__.py", "package_info.py")
_READ = 65536


def package_facts(packages: dict[str, str] | None = None) -> dict[str, dict[str, str]]:
    """Return `{distribution: {"version", "commit"?}}` of the packages that an import would find here."""
    found = {}
    for distribution, module in (packages or PACKAGES).items():
        entry = _one(distribution, module)
        if entry:
            found[distribution] = entry
    return found


def _one(distribution: str, module: str) -> dict[str, str]:
    folder = _folder(module)
    installed = _installed(distribution)
    if folder is None and installed is None:
        return {}
    loaded = str(getattr(sys.modules.get(module), "__version__", "") or "")
    shadowed = installed is None or (folder is not None and not _holds(installed, folder))
    in_folder, commit = _in_folder(folder) if folder else ("", "")
    said = installed.version if installed is not None else ""
    version = loaded or (in_folder or said if shadowed else said or in_folder)
    entry = {"version": version or "unknown"}
    commit = _installed_commit(installed) if installed is not None and not shadowed and not commit else commit
    if not commit and folder:
        commit = checkout_commit(folder)
    if commit:
        entry["commit"] = commit
    return entry


def _folder(module: str) -> str | None:
    """Return the folder of a module that need not be loaded; its parents are not imported either."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = os.path.join(place, *rest)
        if os.path.isdir(folder):
            return folder
    return None


def _installed(distribution: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(distribution)
    except (importlib.metadata.PackageNotFoundError, ValueError, OSError):
        return None


def _holds(installed: importlib.metadata.Distribution, folder: str) -> bool:
    """Return whether `folder` is what was installed: below its site folder, or the checkout of an editable install."""
    try:
        root = os.path.realpath(str(installed.locate_file("")))
    except (OSError, NotImplementedError):
        return True
    here = os.path.realpath(folder)
    if here == root or here.startswith(root + os.sep):
        return True
    url = _direct_url(installed).get("url", "")
    return isinstance(url, str) and url.startswith("file://") and here.startswith(os.path.realpath(url[7:]) + os.sep)


def _direct_url(installed: importlib.metadata.Distribution) -> dict[str, object]:
    try:
        plain = json.loads(installed.read_text("direct_url.json") or "{}")
    except (ValueError, OSError):
        return {}
    return plain if isinstance(plain, dict) else {}


def _installed_commit(installed: importlib.metadata.Distribution) -> str:
    source = _direct_url(installed).get("vcs_info")
    return str(source.get("commit_id") or "") if isinstance(source, dict) else ""


def _in_folder(folder: str) -> tuple[str, str]:
    """Return version and commit as files of the package's folder say them."""
    version = commit = ""
    for name in _VERSION_FILES:
        text = _head(os.path.join(folder, name))
        if not version and name == "version/version":
            version = text.strip().split("\n")[0].strip()
        elif not version:
            match = _VERSION_LINE.search(text)
            version = match.group(1) if match else ""
        match = _COMMIT_LINE.search(text) if not commit else None
        commit = match.group(1) if match else commit
    return version, commit


def checkout_commit(folder: str) -> str:
    """Return the commit of the git checkout that holds `folder`, one or two levels up; empty where there is none."""
    place = os.path.realpath(folder)
    for _ in range(3):
        git = os.path.join(place, ".git")
        if os.path.isfile(git):
            git = os.path.normpath(os.path.join(place, _head(git).partition("gitdir:")[2].strip()))
        head = _head(os.path.join(git, "HEAD")).strip()
        if head:
            return _resolved(git, head)
        place = os.path.dirname(place)
    return ""


def _resolved(git: str, head: str) -> str:
    name = head.partition("ref:")[2].strip()
    if not name:
        return head if re.fullmatch(r"[0-9a-f]{40,64}", head) else ""
    common = _head(os.path.join(git, "commondir")).strip()
    for root in (git, os.path.normpath(os.path.join(git, common))) if common else (git,):
        commit = _head(os.path.join(root, name)).strip()
        if commit:
            return commit
        for line in _head(os.path.join(root, "packed-refs")).splitlines():
            if line.endswith(" " + name):
                return line.split(" ")[0]
    return ""


def _head(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_READ)
    except OSError:
        return ""
