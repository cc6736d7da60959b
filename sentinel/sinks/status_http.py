# SPDX-License-Identifier: Apache-2.0
"""The daemon's HTTP endpoint: /metrics, /-/healthy, /-/ready, /api/v1/*, /reports/ID, and the status page at /.

Read-only. What it shows comes from a `View`, whose answers are finished values; no request reaches the file system.
Loopback by default, and then only for requests that name loopback or an address as their host, so that a web page
cannot reach it under a name of its own. Bound elsewhere it asks for a token.
"""

from __future__ import annotations

import contextlib
import hmac
import http.server
import socket
import threading
import urllib.parse
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from sentinel.errors import SettingsError
from sentinel.sinks import json_text
from sentinel.sinks.http_access import LOOPBACK, HttpSettings, is_local, offered_token, read_token, tls_context
from sentinel.sinks.sleeping_server import SleepingServer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"
CONNECTIONS = 64
"""Connections served at once; more are closed at once."""
CONNECTION_SECONDS = 30.0
"""How long one connection may last, however slowly it sends."""
_SILENCE_SECONDS = 10.0
# Nothing is loaded from anywhere. Styles are inline; scripts are not allowed at all.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"


class View(Protocol):
    """What the endpoint shows."""

    def ready(self) -> str | None:
        """Return None when runs can be watched, else what is missing."""

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics page and its content type."""

    def api(self, path: str, query: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return the document at /api/v1/<path>; None where there is none."""

    def page(self, language: str) -> str:
        """Return the status page in `en` or `zh`."""

    def report(self, incident: str) -> str | None:
        """Return an incident's report as HTML; None where there is none."""


class StatusServer:
    """The endpoint, served by threads of its own.

    Args:
        settings: where it listens.
        view: what it shows.
        port: overrides the settings' port, e.g. the one that a predecessor had.

    Raises:
        SettingsError: the token or certificate cannot be read, or the address cannot be listened on.
    """

    def __init__(self, settings: HttpSettings, view: View, *, port: int | None = None) -> None:
        self.settings = settings
        self.remark: str | None = None
        """What people should know about the port; None where all is as asked."""
        token = read_token(settings)
        tls = None if settings.tls_cert_file is None else tls_context(settings)
        wanted = settings.port if port is None else port
        self._server = self._listen(wanted)
        self._server.view, self._server.token, self._server.tls = view, token, tls
        self._thread = threading.Thread(target=self._server.serve_forever, name="sentinel-http", daemon=True)
        self._thread.start()

    def renew(self, settings: HttpSettings) -> None:
        """Ask for another token and show another certificate from now on; the address stays.

        Raises:
            SettingsError: token or certificate cannot be read; nothing is changed then.
        """
        token = read_token(settings)
        tls = None if settings.tls_cert_file is None else tls_context(settings)
        self.settings = settings
        self._server.token, self._server.tls = token, tls

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Its address for people."""
        scheme = "http" if self.settings.tls_cert_file is None else "https"
        host = self.settings.host
        if host in ("0.0.0.0", "::"):  # noqa: S104  # compared, not bound
            host = socket.gethostname()
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        """Stop listening and wait for the serving thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def _listen(self, wanted: int) -> _Server:
        try:
            return _Server(self.settings.host, wanted)
        except OSError as error:
            if wanted == 0:
                raise SettingsError(f"http.host {self.settings.host}: {error.strerror}") from error
        try:
            server = _Server(self.settings.host, 0)
        except OSError as error:
            raise SettingsError(f"http.host {self.settings.host}: {error.strerror}") from error
        self.remark = f"port {wanted} is taken; port {server.server_address[1]} is used"
        return server


class _Server(SleepingServer, http.server.ThreadingHTTPServer):
    """A threading server with a bound on connections and on their age."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int) -> None:
        self.view: View
        self.token: bytes | None = None
        self.tls: ssl.SSLContext | None = None
        self._served = 0
        self._guard = threading.Lock()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            full = self._served >= CONNECTIONS
            self._served += not full
        if full:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        served = request

        def cut() -> None:
            with contextlib.suppress(OSError):
                # Of the connection itself: the one of TLS would first say goodbye, and wait for an answer.
                socket.socket.shutdown(served, socket.SHUT_RDWR)

        end = threading.Timer(CONNECTION_SECONDS, cut)
        end.daemon = True
        end.start()
        try:
            if self.tls is not None:
                # The handshake happens here, on the connection's own thread: a silent client blocks nobody.
                request.settimeout(_SILENCE_SECONDS)
                served = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                served.do_handshake()
            super().process_request_thread(served, client_address)
        except OSError:
            self.shutdown_request(served)
        finally:
            end.cancel()
            with self._guard:
                self._served -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; nothing is printed."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    server_version = "sentinel"
    sys_version = ""
    timeout = _SILENCE_SECONDS

    def do_GET(self) -> None:
        """Answer one request."""
        if not self._may_ask():
            return
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, max_num_fields=20))
        self._route(url.path, query)

    do_HEAD = do_GET  # noqa: N815  # the parent's name

    def _route(self, path: str, query: Mapping[str, str]) -> None:
        view = self.server.view
        if path == "/-/healthy":
            self._answer(HTTPStatus.OK, TEXT, "healthy\n")
        elif path == "/-/ready":
            missing = view.ready()
            status = HTTPStatus.OK if missing is None else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, TEXT, f"{missing or 'ready'}\n")
        elif path == "/metrics":
            body, content_type = view.metrics(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, content_type, body)
        elif path.startswith("/api/v1/"):
            document = view.api(urllib.parse.unquote(path[len("/api/v1/") :]), query)
            self._found(JSON, None if document is None else json_text.to_text(document) + "\n")
        elif path == "/":
            self._answer(HTTPStatus.OK, HTML, view.page(self._language(query)))
        elif path.startswith("/reports/"):
            self._found(HTML, view.report(urllib.parse.unquote(path[len("/reports/") :])))
        else:
            self._found(TEXT, None)

    def _found(self, content_type: str, body: str | None) -> None:
        if body is None:
            self._answer(HTTPStatus.NOT_FOUND, TEXT, "not found\n")
        else:
            self._answer(HTTPStatus.OK, content_type, body)

    def _answer(self, status: HTTPStatus, content_type: str, body: str | bytes) -> None:
        data = body.encode("utf-8", "backslashreplace") if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="sentinel", charset="UTF-8"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _may_ask(self) -> bool:
        token = self.server.token
        if token is not None:
            if hmac.compare_digest(offered_token(self.headers.get("Authorization", "")), token):
                return True
            self._answer(HTTPStatus.UNAUTHORIZED, TEXT, "a token is needed\n")
            return False
        if self.server.server_address[0] in LOOPBACK and not is_local(self.headers.get("Host", "")):
            self._answer(HTTPStatus.FORBIDDEN, TEXT, "this host name is not served here\n")
            return False
        return True

    def _language(self, query: Mapping[str, str]) -> str:
        wanted = query.get("lang") or self.headers.get("Accept-Language") or "en"
        return "zh" if wanted.lower().startswith("zh") else "en"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the parent's name
        """Print nothing: scrapes are no news."""
