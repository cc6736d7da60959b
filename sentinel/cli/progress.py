# SPDX-License-Identifier: Apache-2.0
"""Progress of a verb that takes over two seconds, on standard error, also while one long call is going on."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Self

QUIET_SECONDS = 2.0
REPEAT_SECONDS = 10.0


class Progress:
    """Says what is being done: after two seconds, then whenever it changed (at most every two seconds) or every ten."""

    def __init__(self, *, stream: TextIO | None = None, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet_seconds
        self._text = ""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._talk, daemon=True, name="progress")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def says(self, text: str) -> None:
        """Set what is being done now."""
        self._text = text

    def _talk(self) -> None:
        begun = time.monotonic()
        said, said_at = "", begun
        while not self._done.wait(self._quiet):
            now = time.monotonic()
            if self._text and (self._text != said or now - said_at >= REPEAT_SECONDS):
                said, said_at = self._text, now
                print(f"{said} ({now - begun:.0f} s)", file=self._stream, flush=True)
