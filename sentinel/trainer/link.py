# SPDX-License-Identifier: Apache-2.0
"""The way to the daemon: a Ray actor call, or its local socket once an answer named one; on the background thread only.

Connecting, looking up and starting the daemon can take seconds (and block for minutes on a frozen cluster); none of
that touches the trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sentinel.trainer.door import Door
from sentinel.trainer.fuse import attempt

REPLY_SECONDS = 10.0


class NoClusterError(Exception):
    """No Ray cluster in this process (yet)."""


class DaemonLink:
    """An outlet that calls `report` of the watchdog actor and returns its reply.

    Args:
        run: name of the run.
        session: id of this trainer process; the daemon tells a repeated record by it.
        config_text: text of the run's sentinel.yaml, for a daemon that has to be started; None for its defaults.
        config_path: where that file lies, for relative paths in it.
    """

    def __init__(self, run: str, session: str, config_text: str | None, config_path: str | None = None) -> None:
        self._run = run
        self._session = session
        self._config_text = config_text
        self._config_path = config_path
        self._actor: Any = None
        self._late: Any = None
        """A call that was given up; it may be in Ray's hands still."""
        self._door: Door | None = None
        self._tried = ""
        """Name of the last local socket that was tried: one that leads nowhere is not tried again."""

    @property
    def local(self) -> bool:
        """Whether the short way is in use."""
        return self._door is not None

    def send(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Deliver, starting the daemon when there is none.

        Raises:
            NoClusterError: this process has no Ray cluster.
            TimeoutError: the daemon does not answer at its local socket.
            Exception: whatever Ray raises.
        """
        message = {"v": 1, "run": self._run, "session": self._session, "records": records}
        if self._door is not None:
            answers: list[dict[str, Any]] = []
            failure = attempt(lambda: answers.append(self._door.ask(message)))  # type: ignore[union-attr]
            if failure is None:
                return answers[0]
            self._close_door()
            if isinstance(failure, TimeoutError):
                raise failure
        reply = self._call(message)
        self._find_door(reply.get("door"))
        return reply

    def _call(self, message: dict[str, Any]) -> dict[str, Any]:
        import ray

        if not ray.is_initialized():
            raise NoClusterError("this process has no Ray cluster")
        if self._actor is None:
            from sentinel.daemon.ray_actor import connect_or_start

            self._actor = connect_or_start(self._config_text, self._config_path)
        try:
            # Calls to a daemon that is away wait in Ray, which keeps their records: one at a time, however long that lasts.
            if self._late is not None and not ray.wait([self._late], timeout=REPLY_SECONDS)[0]:
                raise TimeoutError("the daemon has not answered the call before")
            self._late = self._actor.report.remote(message)
            reply: dict[str, Any] = ray.get(self._late, timeout=REPLY_SECONDS)
            self._late = None
        except ray.exceptions.GetTimeoutError:
            raise
        except ray.exceptions.RayError:
            # Dead or unreachable: look it up anew next time.
            self._actor = self._late = None
            raise
        return reply

    def _find_door(self, address: object) -> None:
        """Try the short way that the daemon offers; on another host it leads nowhere, and Ray's stays."""
        if not isinstance(address, Mapping) or address.get("name") == self._tried:
            return
        self._tried = str(address.get("name"))
        opened: list[Door] = []
        attempt(lambda: opened.append(Door(address, REPLY_SECONDS)))
        self._door = opened[0] if opened else None

    def _close_door(self) -> None:
        door, self._door = self._door, None
        self._tried = ""
        if door is not None:
            door.close()

    def close(self) -> None:
        """Let go of the connection; the daemon is detached and goes on."""
        self._close_door()
        self._actor = self._late = None
