# SPDX-License-Identifier: Apache-2.0
"""SIGHUP, the usual way to tell a daemon that its settings changed."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def on_hangup(do: Callable[[], object]) -> bool:
    """Call `do` on a thread of its own at each SIGHUP from now on.

    The main thread of a Ray actor waits outside of Python, where no handler of Python's runs; so the C handler writes a byte
    into a pipe, which a thread reads.

    Returns:
        False where this is not the main thread, which alone may ask for signals.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        signal.signal(signal.SIGHUP, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    except ValueError:
        os.close(reader)
        os.close(writer)
        return False
    threading.Thread(target=_listen, args=(reader, do), name="sentinel-hangup", daemon=True).start()
    return True


def _listen(reader: int, do: Callable[[], object]) -> None:
    while signals := os.read(reader, 1):
        if signals[0] == signal.SIGHUP:
            do()
