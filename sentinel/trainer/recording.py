# SPDX-License-Identifier: Apache-2.0
"""An append-only file of a run's records: what a reference run leaves behind without any daemon.

One JSON object a line, flushed line by line: after kill -9 everything up to the last whole line is there.
Not-finite numbers stand as bare NaN and Infinity, which Python's json reads back.
"""

from __future__ import annotations

import json
import os
from typing import IO, Any


class RecordingFile:
    """An outlet that appends to a file. A second run with the same path is a further attempt, never an overwrite."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def send(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Append the records; raises OSError when the disk says no."""
        if self._file is None:
            os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
            _end_last_line(self.path)
            self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - stays open for the run
        if records:
            self._file.write("".join(json.dumps(record) + "\n" for record in records))
            self._file.flush()
        return {}

    def close(self) -> None:
        """Flush to the disk and close."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None


def _end_last_line(path: str) -> None:
    """A torn last line of an earlier attempt must not swallow the first line of this one."""
    try:
        with open(path, "rb+") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
    except FileNotFoundError:
        return
