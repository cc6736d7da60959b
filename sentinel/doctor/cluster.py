# SPDX-License-Identifier: Apache-2.0
"""Ray: its version, whether a cluster can be reached, what stands in the way, and what its head knows of the plugin."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from sentinel.doctor.check import FAIL, PASS, UNKNOWN, WARN, Check

LEAST_RAY = (2, 41)
_TCP_SECONDS = 2.0


def checks(address: str | None, found: Mapping[str, Any] | None, *, named: bool = False) -> tuple[Check, ...]:
    """Return the checks of Ray.

    Args:
        address: of the cluster that a command here would join; None where there is none.
        found: what the trial `ray` found there; None where it was not run.
        named: whether a person named that address.
    """
    return (
        version(_installed()),
        token(os.environ, Path.home()),
        left_over(Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray"),  # noqa: S108  # Ray's own folder
        reached(address, found, named=named),
        environment_of_head(found),
    )


def _installed() -> str | None:
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return None


def version(installed: str | None) -> Check:
    """Of the installed Ray."""
    title = "Ray"
    if installed is None:
        return Check(
            id="ray",
            title=title,
            status=FAIL,
            found="not installed",
            fix="pip install 'ray>=2.41', in the version of the training run",
        )
    parts = tuple(int(part) for part in installed.split(".")[:2] if part.isdigit())
    old = parts < LEAST_RAY
    fix = "pip install 'ray>=2.41'" if old else ""
    return Check(id="ray", title=title, status=FAIL if old else PASS, found=installed, fix=fix)


def token(environment: Mapping[str, str], home: Path) -> Check:
    """Of Ray's token authentication: mode and file must go together, or connecting waits 20 s and gives up."""
    title = "Ray's token"
    mode = environment.get("RAY_AUTH_MODE", "")
    path = Path(environment.get("RAY_AUTH_TOKEN_PATH") or home / ".ray" / "auth_token")
    known = bool(environment.get("RAY_AUTH_TOKEN")) or path.is_file()
    if mode == "token" and not known:
        return Check(
            id="ray.token",
            title=title,
            status=FAIL,
            found=f"RAY_AUTH_MODE=token, and {path} is not there",
            fix=f"copy the head's token to {path}, or unset RAY_AUTH_MODE",
        )
    if not mode and known:
        fix = "export RAY_AUTH_MODE=token for head, runs and scripts alike (Sentinel's own verbs do it themselves)"
        return Check(
            id="ray.token", title=title, status=WARN, found=f"{path} is there, RAY_AUTH_MODE is not set", fix=fix
        )
    if known and path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        return Check(id="ray.token", title=title, status=WARN, found=f"others may read {path}", fix=f"chmod 600 {path}")
    return Check(id="ray.token", title=title, status=PASS, found=f"mode {mode}, token known" if known else "not used")


def left_over(root: Path) -> Check:
    """A cluster that is gone leaves its address behind, and the next `ray.init()` tries to join it for minutes."""
    title = "Address of a cluster that is gone"
    file = root / "ray_current_cluster"
    try:
        address = file.read_text(encoding="utf-8").strip()
    except OSError:
        return Check(id="ray.left_over", title=title, status=PASS, found="none")
    if answers(address):
        return Check(id="ray.left_over", title=title, status=PASS, found=f"{address} answers")
    return Check(
        id="ray.left_over",
        title=title,
        status=WARN,
        found=f"{file} names {address}, where nobody listens",
        fix=f"rm {file}; a run with a cluster of its own takes +ray_kwargs.ray_init.address=local",
    )


def answers(address: str) -> bool:
    """Return whether somebody listens at HOST:PORT."""
    host, _, number = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(number)), timeout=_TCP_SECONDS):
            return True
    except (OSError, OverflowError, ValueError):
        return False


def reached(address: str | None, found: Mapping[str, Any] | None, *, named: bool) -> Check:
    """Whether a cluster can be joined."""
    title = "Ray cluster"
    if address is None or found is None:
        return Check(
            id="ray.cluster",
            title=title,
            status=UNKNOWN,
            found="none runs here, and RAY_ADDRESS names none",
            fix="a run starts its own, and `sentinel up` one that outlives runs; for one elsewhere set RAY_ADDRESS or --address",
        )
    if "error" in found:
        late = " (a wrong or missing token looks like this)" if found.get("timeout") else ""
        fix = f"is the head running, is it the same Ray version, and the same token{late}?"
        if not named:
            fix = "it may be a run's own cluster with a token of its own; for another one set RAY_ADDRESS or --address"
        status = FAIL if named else WARN
        return Check(id="ray.cluster", title=title, status=status, found=f"{address}: {found['error']}", fix=fix)
    daemon = "a Sentinel daemon runs in it" if found["daemon"] else "no Sentinel daemon in it yet"
    said = f"{address}: {found['nodes']} nodes, {found['resources']}; {daemon}"
    return Check(id="ray.cluster", title=title, status=PASS, found=said)


def environment_of_head(found: Mapping[str, Any] | None) -> Check:
    """Workers take their environment from the head, not from the shell that launches a run."""
    title = "Sentinel in the cluster's workers"
    if found is None or "error" in found:
        return Check(id="ray.workers", title=title, status=UNKNOWN, found="no cluster to ask")
    if found["worker"] and found["worker"] == found["here"]:
        return Check(id="ray.workers", title=title, status=PASS, found=f"Sentinel {found['worker']}, as here")
    return Check(
        id="ray.workers",
        title=title,
        status=FAIL,
        found=f"a worker has Sentinel {found['worker'] or 'not at all'}, here it is {found['here'] or 'not installed'}",
        fix="install the same Sentinel on every node, in the Python that Ray was started with",
    )
