# SPDX-License-Identifier: Apache-2.0
"""Whether a process that reported is still there."""

from __future__ import annotations

import os
import socket


def process_lives(host: str, pid: int) -> bool | None:
    """Return whether process `pid` of `host` lives; None where `host` is not this one."""
    if host != socket.gethostname():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
