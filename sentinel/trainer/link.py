# SPDX-License-Identifier: Apache-2.0
"""The way to the daemon: a Ray actor call, made on the background thread only.

Connecting, looking up and starting the daemon can take seconds (and block for minutes on a frozen cluster); none of
that touches the trainer.
"""

from __future__ import annotations

from typing import Any

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

    def send(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Deliver, starting the daemon when there is none; raises what Ray raises, or NoClusterError."""
        import ray

        if not ray.is_initialized():
            raise NoClusterError("this process has no Ray cluster")
        if self._actor is None:
            from sentinel.daemon.ray_actor import connect_or_start

            self._actor = connect_or_start(self._config_text, self._config_path)
        message = {"v": 1, "run": self._run, "session": self._session, "records": records}
        try:
            reply: dict[str, Any] = ray.get(self._actor.report.remote(message), timeout=REPLY_SECONDS)
        except ray.exceptions.GetTimeoutError:
            raise
        except ray.exceptions.RayError:
            # Dead or unreachable: look it up anew next time.
            self._actor = None
            raise
        return reply

    def close(self) -> None:
        """Nothing to close: the daemon is detached and goes on."""
        self._actor = None
