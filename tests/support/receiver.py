# SPDX-License-Identifier: Apache-2.0
"""A webhook receiver on loopback that remembers what it got."""

import http.server
import json
import threading


class Receiver:
    """A webhook receiver that answers with the given codes, one after the other, the last one for good, and one text."""

    def __init__(self, *codes, answer=b""):
        self.got = []
        codes = list(codes)
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, json.loads(body)))
                self.send_response(codes.pop(0) if len(codes) > 1 else codes[0])
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
