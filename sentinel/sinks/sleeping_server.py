# SPDX-License-Identifier: Apache-2.0
"""A socket server that sleeps until somebody comes; the standard library's own looks up several times a second."""

from __future__ import annotations

import contextlib
import socket
import socketserver

LONGEST_SLEEP_SECONDS = 60.0
"""Where closing does not wake it: another system than Linux."""


class SleepingServer(socketserver.BaseServer):
    """Mix-in before a server of `socketserver`: what idles costs nothing."""

    socket: socket.socket

    def serve_forever(self, poll_interval: float = LONGEST_SLEEP_SECONDS) -> None:
        """Serve until `shutdown`."""
        super().serve_forever(poll_interval)

    def shutdown(self) -> None:
        """Stop serving, and wait for that."""
        # A listening socket that is shut down becomes readable, and says so once more at each look.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        super().shutdown()
