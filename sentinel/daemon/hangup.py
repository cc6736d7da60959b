# SPDX-License-Identifier: Apache-2.0
"""SIGHUP, the usual way to tell a daemon that its settings changed.

In a Ray actor nothing of ours runs on the main thread, which alone may ask Python for signals, and which waits outside
of Python anyway. So the handler is that of `faulthandler`, which is C, may be asked for anywhere, and writes where every thread is:
into a pipe, whose reader cares only that something came.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_QUIET_SECONDS = 0.2
"""One signal writes several times; what comes within so long of each other is one."""


def on_hangup(do: Callable[[], object]) -> None:
    """Call `do` on a thread of its own at each SIGHUP from now on; from any thread."""
    reader, writer = os.pipe()
    # A pipe that is full must not hold up whoever was interrupted.
    os.set_blocking(writer, False)
    faulthandler.register(signal.SIGHUP, file=writer, all_threads=True, chain=False)
    threading.Thread(target=_listen, args=(reader, do), name="sentinel-hangup", daemon=True).start()


def _listen(reader: int, do: Callable[[], object]) -> None:
    while os.read(reader, 65536):
        while select.select([reader], [], [], _QUIET_SECONDS)[0]:
            os.read(reader, 65536)
        do()
