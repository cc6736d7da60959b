# SPDX-License-Identifier: Apache-2.0
"""The Watchdog as a named, detached Ray actor, and the way to it.

This module is imported in training processes (on the emitter's background thread) and while Ray unpickles the actor:
it imports nothing heavy and nothing of verl or torch. The daemon itself is imported inside the actor.

One actor a cluster, name `watchdog`, namespace `sentinel`. It outlives the run that made it and the driver that
started it; killed, Ray starts it again within about 2 s and it goes on from its journal. A call that was in flight
fails and is not repeated by Ray: the trainer's side sends again what was not acknowledged. Calls that are made while it
is away wait for the successor.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import ray
from ray.experimental import internal_kv
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sentinel.errors import DaemonError

NAME = "watchdog"
NAMESPACE = "sentinel"
LOADED_AT = time.time()
"""When this process began to know of the daemon."""
_DISMISSED = b"sentinel_dismissed_at"


class WatchdogActor:
    """The daemon in its process. `report` and `query` run on threads of their own: a question never waits for a run."""

    def __init__(self, config_text: str | None, config_path: str | None = None) -> None:
        shed_inherited_environment()
        from sentinel.daemon.hangup import on_hangup
        from sentinel.daemon.house import House

        self._house = House(config_text, config_path)
        on_hangup(self._house.hang_up)

    @ray.method(concurrency_group="ingest", max_task_retries=0)  # type: ignore[untyped-decorator]
    async def report(self, message: dict[str, Any]) -> dict[str, Any]:
        """Judge what a trainer says and answer with its orders."""
        return self._house.report(message)

    @ray.method(concurrency_group="query", max_task_retries=0)  # type: ignore[untyped-decorator]
    async def query(self, what: str, args: dict[str, Any] | None = None) -> dict[str, Any]:
        """Answer a question of a person or a program; see `answers`."""
        return self._house.answers.answer(what, args or {})

    @ray.method(concurrency_group="query", max_task_retries=0)  # type: ignore[untyped-decorator]
    async def shut_down(self) -> None:
        """Write everything to the journal; the caller then ends the actor."""
        self._house.close()


def connect_or_start(config_text: str | None, config_path: str | None = None, *, by_hand: bool = False) -> Any:
    """Return a handle of the daemon of this process's cluster, starting it when there is none.

    Safe when several processes do it at once: Ray makes one. Blocks; never call it on a training thread.

    Args:
        config_text: text of a sentinel.yaml for a daemon that has to be started; an existing one keeps its own.
        config_path: where that text lies, for relative paths.
        by_hand: a person wants it, whatever was said before.

    Raises:
        DaemonError: a person stopped it while this process ran; a process that begins later may start it again.
    """
    found = find()
    if found is not None:
        return found
    if by_hand:
        remember_dismissal(0.0)
    elif dismissed_at() > LOADED_AT:
        raise DaemonError("the daemon was stopped by `sentinel down`; `sentinel up` starts it again")
    actor = ray.remote(concurrency_groups={"ingest": 1, "query": 4})(WatchdogActor)
    return actor.options(
        name=NAME,
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        # Not for its methods, which say 0: with a 0 here, calls made while Ray starts it again fail, each 2 s later, and
        # the successor is heard of that much later than it is there.
        max_task_retries=1,
        num_cpus=0,
        runtime_env=own_runtime_env(),
        **place(),
    ).remote(config_text, config_path)


def find() -> Any:
    """Return a handle of the daemon; None where there is none."""
    try:
        return ray.get_actor(NAME, namespace=NAMESPACE)
    except ValueError:
        return None


def remember_dismissal(at: float) -> None:
    """Write down in the cluster when a person stopped the daemon, so that runs that go on do not start it again."""
    internal_kv._internal_kv_put(_DISMISSED, str(at).encode())  # noqa: SLF001  # the cluster's own memory


def dismissed_at() -> float:
    """Return when a person stopped the daemon (Unix time); 0 where nobody did."""
    kept = internal_kv._internal_kv_get(_DISMISSED)  # noqa: SLF001  # as above
    try:
        return float(kept) if kept else 0.0
    except ValueError:
        return 0.0


def place() -> dict[str, Any]:
    """Return where the actor belongs: on a node with the custom resource `sentinel`, as long as the cluster has one.

    Not a demand: when that node dies, a daemon anywhere is better than none. The byte of memory is one: an actor that
    asks for nothing is put on a node drawn at random, and Ray looks at no soft affinity then (measured with 2.60).
    """
    meant = meant_nodes()
    if not meant:
        return {}
    strategy = NodeAffinitySchedulingStrategy(meant[0]["NodeID"], soft=True)
    return {"scheduling_strategy": strategy, **({"memory": 1} if meant[0]["Resources"].get("memory") else {})}


def meant_nodes() -> list[dict[str, Any]]:
    """Return the living nodes, as Ray describes them, that have the custom resource `sentinel`."""
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get(NAMESPACE)]


def own_runtime_env() -> dict[str, Any]:
    """Return the actor's environment: where Sentinel is imported from, if it is not installed; nothing of a run."""
    root = str(Path(__file__).resolve().parents[2])
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    paths = [] if root in installed else [root]
    # The libraries that Sentinel needs may come the same way.
    paths += [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in paths]
    return {"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}} if paths else {}


def shed_inherited_environment() -> None:
    """Take the run's variables out of this process: an actor inherits the runtime environment of the run that made it.

    Only PYTHONPATH stays. What Ray gave by other means (its own variables) is not touched.
    """
    inherited = ray.get_runtime_context().runtime_env.get("env_vars") or {}
    for name in (*inherited, *(name for name in os.environ if name.startswith("SENTINEL_"))):
        if name != "PYTHONPATH":
            os.environ.pop(name, None)
    # A run's working directory goes with the run.
    os.chdir("/")
    sys.argv[:] = ["sentinel-watchdog"]
