# SPDX-License-Identifier: Apache-2.0
"""The other end of a pseudo-terminal."""

import contextlib
import os
import select
import time


def read_to_the_end(process, master, seconds):
    """Read what a process writes until it has ended, as a terminal does: what nobody reads would hold it up. Returns its exit code."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError):
            if select.select([master], [], [], 0.1)[0]:
                os.read(master, 65536)
    return process.wait(1)
