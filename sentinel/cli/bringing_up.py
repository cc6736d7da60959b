# SPDX-License-Identifier: Apache-2.0
"""Starting and stopping the daemon."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli import cluster, output
from sentinel.errors import DaemonError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_HEAD_SECONDS = 60.0


def up(args: argparse.Namespace) -> dict[str, Any]:
    """Start the daemon where there is none, and a Ray cluster where there is none; return the daemon's status.

    Raises:
        SettingsError: the settings file is at fault.
        DaemonError: it could not be started.
    """
    text, path = None, None
    if args.config is not None:
        from sentinel.daemon.house import settings_text

        text, path = settings_text(args.config), str(Path(args.config).absolute())
    if cluster.find_address(args.address) is None:
        output.note("no Ray cluster runs here: starting one on this machine")
        _start_head()

    def call() -> dict[str, Any]:
        import ray

        cluster.connect(args)
        from sentinel.daemon import ray_actor

        actor = ray_actor.connect_or_start(text, path, by_hand=True)
        status: dict[str, Any] = ray.get(actor.query.remote("status"), timeout=args.timeout)
        elsewhere = meant_elsewhere(status["host"], [node["NodeManagerHostname"] for node in ray_actor.meant_nodes()])
        if elsewhere is not None:
            output.note(elsewhere)
        return status

    found: dict[str, Any] = cluster.within(args.timeout, call)
    return found


def meant_elsewhere(host: str, meant: Sequence[str]) -> str | None:
    """Return what to say of a daemon on `host` when the nodes meant for it are others; None where all is well."""
    if not meant or host in meant:
        return None
    return (
        f"the daemon was running already, on {host}; {meant[0]} is the node meant for it. "
        "`sentinel down` and `sentinel up` move it; its journal goes along where `home` is storage that both see"
    )


def down(args: argparse.Namespace) -> dict[str, Any]:
    """Stop the daemon for good; its journal stays.

    Raises:
        AbsentError: there is none.
        UnreachableError: it does not answer; it is ended all the same where Ray can do it.
    """

    def call() -> dict[str, Any]:
        import ray

        cluster.connect(args)
        from sentinel.daemon import ray_actor

        actor = ray_actor.find()
        if actor is None:
            raise cluster.AbsentError("no daemon runs in this cluster")
        try:
            ray.get(actor.shut_down.remote(), timeout=args.timeout / 2)
        except ray.exceptions.RayError as error:
            output.note(f"the daemon did not say goodbye ({type(error).__name__}); it is ended")
        ray_actor.remember_dismissal(time.time())
        ray.kill(actor, no_restart=True)
        return {"daemon": "absent", "endpoint": None, "runs": [], "stopped": True}

    found: dict[str, Any] = cluster.within(args.timeout, call)
    return found


def _start_head() -> None:
    """Start a Ray head on this machine that outlives this command."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--include-dashboard=false"]
    command += ["--disable-usage-stats", "--port=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_HEAD_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise DaemonError(f"a Ray cluster could not be started within {_HEAD_SECONDS:.0f} s") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).split("\n")[-1]
        raise DaemonError(f"a Ray cluster could not be started: {last}")
