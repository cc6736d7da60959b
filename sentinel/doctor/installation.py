# SPDX-License-Identifier: Apache-2.0
"""Sentinel itself: its Python, its dependencies, and what switches it on and off."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata

from packaging.requirements import Requirement

from sentinel.doctor.check import FAIL, PASS, UNKNOWN, WARN, Check

DISTRIBUTION = "verl-sentinel"


def python_version(version: tuple[int, ...]) -> Check:
    """Sentinel and verl run on 3.10 to 3.12."""
    known = (3, 10) <= version[:2] <= (3, 12)
    return Check(
        id="python",
        title="Python",
        status=PASS if known else FAIL,
        found=f"{'.'.join(map(str, version))} ({sys.executable}, {platform.machine()})",
        fix="" if known else "use Python 3.10, 3.11 or 3.12, the same one as the training run",
    )


def dependencies() -> Check:
    """What Sentinel itself needs, as its installation says; extras apart."""
    title = "Sentinel's own dependencies"
    try:
        listed = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or ()]
    except metadata.PackageNotFoundError:
        return Check(
            id="dependencies",
            title=title,
            status=UNKNOWN,
            found="Sentinel is on the path, not installed: what it needs is not listed",
            fix="pip install verl-sentinel",
        )
    needed = [one for one in listed if one.marker is None or one.marker.evaluate({"extra": ""})]
    wrong = [f"{one.name} {version or 'missing'}" for one in needed if not _fits(one, version := _version_of(one.name))]
    return Check(
        id="dependencies",
        title=title,
        status=FAIL if wrong else PASS,
        found=", ".join(wrong) or f"all {len(needed)} are there",
        fix="pip install --upgrade verl-sentinel" if wrong else "",
    )


def _version_of(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _fits(requirement: Requirement, version: str) -> bool:
    return bool(version) and requirement.specifier.contains(version, prereleases=True)


def switches(environment: Mapping[str, str]) -> Check:
    """The environment variables that switch Sentinel on and off."""
    disabled = environment.get("SENTINEL_DISABLED", "") not in ("", "0")
    config = environment.get("SENTINEL_CONFIG", "")
    names = ("SENTINEL_RUN", "SENTINEL_RECORD", "SENTINEL_ORDERS", "SENTINEL_CONFIG", "SENTINEL_DISABLED")
    said = ", ".join(f"{name}={environment[name]}" for name in names if environment.get(name))
    title = "Switches of the environment"
    if disabled:
        fix = "unset SENTINEL_DISABLED where runs are to be watched"
        return Check(id="switches", title=title, status=WARN, found=f"switched off: {said}", fix=fix)
    if config and not os.access(config, os.R_OK):
        fix = "name a readable file, or unset SENTINEL_CONFIG: until then the defaults hold"
        return Check(id="switches", title=title, status=FAIL, found=f"{said}: cannot be read", fix=fix)
    return Check(
        id="switches", title=title, status=PASS, found=said or "no run is named here: a launch names it (SENTINEL_RUN)"
    )
