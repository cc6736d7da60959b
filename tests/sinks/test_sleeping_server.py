# SPDX-License-Identifier: Apache-2.0
"""A server that nobody visits does nothing, and ends at once all the same."""

import socketserver
import threading
import time

import pytest

from sentinel.sinks.sleeping_server import LONGEST_SLEEP_SECONDS, SleepingServer


class Tcp(SleepingServer, socketserver.ThreadingTCPServer):
    pass


class Unix(SleepingServer, socketserver.ThreadingUnixStreamServer):
    pass


@pytest.mark.parametrize(("kind", "address"), [(Tcp, ("127.0.0.1", 0)), (Unix, "\0sentinel-test-sleeping")])
def test_closing_wakes_it(kind, address):
    server = kind(address, socketserver.StreamRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    began = time.monotonic()

    server.shutdown()
    thread.join(10)
    server.server_close()

    assert not thread.is_alive()
    assert time.monotonic() - began < LONGEST_SLEEP_SECONDS / 3


def test_it_looks_up_once_a_minute_at_most():
    class Recorded(SleepingServer, socketserver.TCPServer):
        def service_actions(self):
            looks.append(time.monotonic())

    looks = []
    server = Recorded(("127.0.0.1", 0), socketserver.StreamRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    thread.join(1.2)  # the standard library's looks up twice in that time

    assert looks == []
    server.shutdown()
    server.server_close()
    thread.join(10)
