# SPDX-License-Identifier: Apache-2.0
"""The short way to a daemon on the same host: one local socket, one line of JSON a question, one line an answer.

A Ray actor call costs the calling process a millisecond of CPU whatever it carries, and its answer takes as long
again; this costs a tenth. The daemon names its door and both secrets in its answers over Ray, so only who may call
the actor can enter, and only the daemon can answer. Used by the background thread only; whatever goes wrong here,
the way over Ray is still there.
"""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Mapping
from typing import Any

ANSWER_BYTES = 16 * 1024 * 1024
"""Longest answer that is read."""


class DoorClosedError(Exception):
    """Whoever answers is not the daemon, or has gone."""


class Door:
    """A connection to the daemon's local socket.

    Args:
        address: `name` (an abstract socket), `token` (what the daemon asks for), `proof` (what it must show).
        seconds: longest wait for a connection or an answer.

    Raises:
        OSError: nobody listens there: another host, another network namespace, or a daemon that has ended.
        DoorClosedError: somebody else listens there.
        KeyError: the address lacks a part.
    """

    def __init__(self, address: Mapping[str, Any], seconds: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._stream = self._socket.makefile("rb")
        try:
            self._enter(address, seconds)
        except BaseException:
            self.close()
            raise

    def _enter(self, address: Mapping[str, Any], seconds: float) -> None:
        self._socket.settimeout(seconds)
        self._socket.connect("\0" + str(address["name"]))
        self._socket.sendall(str(address["token"]).encode() + b"\n")
        shown = self._stream.readline(256).strip()
        if not hmac.compare_digest(shown, str(address["proof"]).encode()):
            raise DoorClosedError("another process answers at the daemon's local socket")

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send one message and return its answer.

        Raises:
            OSError: no answer within the wait (TimeoutError), or the connection broke.
            DoorClosedError: the daemon hung up.
            ValueError: the message or the answer is not JSON.
        """
        self._socket.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        line = self._stream.readline(ANSWER_BYTES)
        if not line.endswith(b"\n"):
            raise DoorClosedError("the daemon closed its local socket")
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise DoorClosedError("the daemon's local socket gave no answer that can be read")
        return answer

    def close(self) -> None:
        """Let go of the connection."""
        self._stream.close()
        self._socket.close()
