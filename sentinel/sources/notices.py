# SPDX-License-Identifier: Apache-2.0
"""Notices of changes from the operating system, as a wake-up for a loop that polls anyway."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

if TYPE_CHECKING:
    from typing_extensions import Self
    from watchdog.observers.api import BaseObserver

# Reading a file makes `opened` and `closed_no_write` events: they would wake the reader for ever.
_CHANGES = frozenset(("modified", "created", "moved", "deleted"))


class _Waker(FileSystemEventHandler):
    def __init__(self, names: Iterable[str], wake: threading.Event) -> None:
        self._names = frozenset(names)
        self._wake = wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Sets the wake-up for a change of a followed path, or below one."""
        if event.event_type not in _CHANGES:
            return
        for path in (event.src_path, event.dest_path):
            name = path if isinstance(path, str) else bytes(path).decode("utf-8", "replace")
            if name in self._names or str(Path(name).parent) in self._names:
                self._wake.set()


class Notices:
    """Sets `wake` when one of the paths changes, where the system tells; silent where it does not (network shares)."""

    def __init__(self, paths: Iterable[Path], wake: threading.Event) -> None:
        self._paths = [path.absolute() for path in paths]
        self._wake = wake
        self._observer: BaseObserver | None = None

    def __enter__(self) -> Self:
        """Starts the observer; without inotify, or without room in it, there simply are no notices."""
        observer = Observer()
        waker = _Waker([str(path) for path in self._paths], self._wake)
        try:
            for folder in {path if path.is_dir() else path.parent for path in self._paths}:
                if folder.is_dir():
                    observer.schedule(waker, str(folder))
            observer.start()
        except (OSError, RuntimeError):
            return self
        self._observer = observer
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the observer."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join(timeout=5)
