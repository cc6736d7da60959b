# SPDX-License-Identifier: Apache-2.0
"""The daemon's local socket: the short way in for trainers on the same host; see `sentinel.trainer.door`.

An abstract socket: no file, nothing left behind when the daemon is killed, not reachable over any network. It asks
for a token before it reads anything of length, and shows a proof that it is the daemon; both are made anew by each
daemon and are told over Ray only.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socketserver
import threading
from typing import TYPE_CHECKING, Any

from sentinel.sinks.sleeping_server import SleepingServer

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE_BYTES = 64 * 1024 * 1024
"""Longest message that is read: 256 records of 10,000 metrics fit."""
CONNECTIONS = 256
TOKEN_SECONDS = 5.0


class LocalDoor:
    """Listens on the local socket and answers with `report`; every connection has a thread.

    Args:
        report: what answers a message; called from any thread.

    Raises:
        OSError: this system has no such sockets.
    """

    def __init__(self, report: Callable[[object], dict[str, Any]]) -> None:
        self.address = {
            "name": f"sentinel-{secrets.token_hex(8)}",
            "token": secrets.token_hex(16),
            "proof": secrets.token_hex(16),
        }
        """What a trainer needs to come in; never logged, never shown."""
        self._server = _Server("\0" + self.address["name"], self.address, report)
        self._thread = threading.Thread(target=self._server.serve_forever, name="sentinel-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody."""
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()


class _Server(SleepingServer, socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, name: str, address: dict[str, str], report: Callable[[object], dict[str, Any]]) -> None:
        self.secrets = (address["token"].encode(), address["proof"].encode())
        self.report = report
        self.guests: set[Any] = set()
        super().__init__(name, _Visit)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self.guests) >= CONNECTIONS:
            self.shutdown_request(request)
            return
        self.guests.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.guests.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End all connections; their threads then close them."""
        for request in tuple(self.guests):
            with contextlib.suppress(OSError):
                request.shutdown(2)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A trainer that went away is no news."""


class _Visit(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Ask for the token, then answer line by line until the other side has gone."""
        token, proof = self.server.secrets
        self.connection.settimeout(TOKEN_SECONDS)
        if not hmac.compare_digest(self.rfile.readline(256).strip(), token):
            return
        self.connection.settimeout(None)
        self.wfile.write(proof + b"\n")
        while (line := self.rfile.readline(MESSAGE_BYTES)).endswith(b"\n"):
            # A message that is no JSON is the protocol's to refuse, in its own words.
            message: object = None
            with contextlib.suppress(ValueError):
                message = json.loads(line)
            answer = self.server.report(message)
            self.wfile.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
