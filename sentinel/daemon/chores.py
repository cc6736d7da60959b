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
    from concurrent.futures import Future

THREADS = 4


class Chores:
    """Threads for triage, reports and alerts.

    Args:
        on_error: told what a job raised, as one sentence.
    """

    def __init__(self, on_error: Callable[[str], None]) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="sentinel-chore")
        self._guard = threading.Lock()
        self._waiting: set[Hashable] = set()
        self._futures: set[Future[None]] = set()
        self._on_error = on_error

    def do(self, key: Hashable, job: Callable[..., None], *args: Any) -> None:
        """Run `job(*args)` soon, unless one of this key is still waiting to begin."""
        with self._guard:
            if key in self._waiting:
                return
            self._waiting.add(key)
        try:
            future = self._pool.submit(self._run, key, job, args)
        except RuntimeError:  # closing down
            with self._guard:
                self._waiting.discard(key)
            return
        with self._guard:
            self._futures.add(future)
        future.add_done_callback(self._forget)

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is left to do, jobs that jobs have asked for included; False after `seconds`."""
        from concurrent.futures import wait
        from time import monotonic

        end = monotonic() + seconds
        while True:
            with self._guard:
                pending = set(self._futures)
            if not pending:
                return True
            left = end - monotonic()
            if left <= 0 or wait(pending, timeout=left).not_done:
                return False
            # A future that is done may not be forgotten yet.
            with self._guard:
                self._futures -= {future for future in self._futures if future.done()}

    def close(self, seconds: float = 5.0) -> None:
        """Finish what is begun, as far as `seconds` allow."""
        self.wait(seconds)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, key: Hashable, job: Callable[..., None], args: tuple[Any, ...]) -> None:
        with self._guard:
            self._waiting.discard(key)
        try:
            job(*args)
        except Exception as error:  # noqa: BLE001  # one job's failure must not end the others
            self._on_error(f"{type(error).__name__}: {error}")

    def _forget(self, future: Future[None]) -> None:
        with self._guard:
            self._futures.discard(future)
