# SPDX-License-Identifier: Apache-2.0
"""Work that takes its time and is done beside the watch: a few threads, and one job at a time for each key.

A job that is asked for again while it waits is not queued twice: it does its work with what is newest then.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

THREADS = 4


class Chores:
    """Threads for triage, reports and alerts.

    Args:
        on_error: told what a job raised, as one sentence that begins with the job's key.
    """

    def __init__(self, on_error: Callable[[str], None]) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="sentinel-chore")
        self._changed = threading.Condition()
        self._wanted: dict[Hashable, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        """Jobs that have not begun."""
        self._busy: set[Hashable] = set()
        """Keys that have a thread, or wait for one."""
        self._closed = False
        self._on_error = on_error

    def do(self, key: Hashable, job: Callable[..., None], *args: Any) -> None:
        """Run `job(*args)` soon: after the one of the same key that runs, instead of the one that waits."""
        with self._changed:
            if self._closed:
                return
            self._wanted[key] = (job, args)
            if key in self._busy:
                return
            self._busy.add(key)
        self._pool.submit(self._work, key)

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is left to do, jobs that jobs have asked for included; False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, seconds)

    def close(self, seconds: float = 5.0) -> None:
        """Finish what is asked for, as far as `seconds` allow, and take nothing more."""
        self.wait(seconds)
        with self._changed:
            self._closed = True
            self._wanted.clear()
        self._pool.shutdown(wait=False)

    def _work(self, key: Hashable) -> None:
        """Do the jobs of one key until none is left."""
        while True:
            with self._changed:
                if key not in self._wanted:
                    self._busy.discard(key)
                    self._changed.notify_all()
                    return
                job, args = self._wanted.pop(key)
            self._run(key, job, args)

    def _run(self, key: Hashable, job: Callable[..., None], args: tuple[Any, ...]) -> None:
        try:
            job(*args)
        except Exception as error:  # noqa: BLE001  # one job's failure must not end the others
            what = " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
            self._on_error(f"{what}: {type(error).__name__}: {error}")
