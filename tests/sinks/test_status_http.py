"""The HTTP endpoint."""

import base64
import http.client
import json
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

from sentinel.errors import SettingsError
from sentinel.sinks import status_http
from sentinel.sinks.http_access import HttpSettings
from sentinel.sinks.status_http import StatusServer


class View:
    """A view with fixed answers."""

    missing = None

    def ready(self):
        return self.missing

    def metrics(self, accept):
        return b"# EOF\n", "application/openmetrics-text" if "openmetrics" in accept else "text/plain"

    def api(self, path, query):
        return {"path": path, "query": dict(query), "value": float("nan")} if path != "nothing" else None

    def page(self, language):
        return f"<p>{language}</p>"

    def report(self, incident):
        return f"<p>{incident}</p>" if incident == "run 1:1" else None


@pytest.fixture
def serve():
    servers = []

    def start(view=None, **settings):
        settings.setdefault("port", 0)
        server = StatusServer(HttpSettings(**settings), view or View())
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


def get(server, path, headers=(), method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request(method, path, headers=dict(headers))
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_every_path_of_the_contract_answers(serve):
    """Metrics, health, readiness, both lists, one incident, the page and a report."""
    server = serve()

    assert get(server, "/-/healthy")[1] == b"healthy\n"
    assert get(server, "/-/ready")[0].status == 200
    assert get(server, "/metrics")[1] == b"# EOF\n"
    assert json.loads(get(server, "/api/v1/incidents?run=a")[1]) == {
        "path": "incidents",
        "query": {"run": "a"},
        "value": "nan",
    }
    assert json.loads(get(server, "/api/v1/incidents/run%201%3A1")[1])["path"] == "incidents/run 1:1"
    assert get(server, "/")[1] == b"<p>en</p>"
    assert get(server, "/reports/run%201%3A1")[1] == b"<p>run 1:1</p>"


def test_the_scraper_chooses_the_form(serve):
    """OpenMetrics where it is accepted."""
    answer, _ = get(serve(), "/metrics", {"Accept": "application/openmetrics-text"})

    assert answer.headers["Content-Type"] == "application/openmetrics-text"


def test_the_browser_or_the_link_chooses_the_language(serve):
    """Chinese for who reads it, and for who asks."""
    server = serve()

    assert get(server, "/", {"Accept-Language": "zh-CN,zh;q=0.9"})[1] == b"<p>zh</p>"
    assert get(server, "/?lang=zh")[1] == b"<p>zh</p>"
    assert get(server, "/?lang=en", {"Accept-Language": "zh"})[1] == b"<p>en</p>"


@pytest.mark.parametrize("path", ["/nothing", "/api/v1/nothing", "/reports/..%2f..%2fetc%2fpasswd", "/reports/"])
def test_what_is_not_there_is_404(serve, path):
    """No path reaches the file system."""
    assert get(serve(), path)[0].status == 404


def test_not_ready_is_503_with_the_reason(serve):
    """Readiness says what is missing."""
    view = View()
    view.missing = "the disk is full"
    answer, body = get(serve(view), "/-/ready")

    assert (answer.status, body) == (503, b"the disk is full\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_is_read_only(serve, method):
    """Nothing can be changed by HTTP."""
    assert get(serve(), "/api/v1/runs", method=method)[0].status == 501


def test_head_sends_no_body(serve):
    """A HEAD request is answered without its body."""
    answer, body = get(serve(), "/-/healthy", method="HEAD")

    assert (answer.status, body, answer.headers["Content-Length"]) == (200, b"", "8")


def test_answers_forbid_scripts_framing_and_sniffing(serve):
    """What a model wrote cannot become a script."""
    headers = get(serve(), "/")[0].headers

    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "script-src" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_a_web_page_cannot_reach_it_under_its_own_name(serve):
    """DNS rebinding: a foreign host name is refused on loopback."""
    server = serve()

    assert get(server, "/", {"Host": "evil.example:9477"})[0].status == 403
    assert get(server, "/", {"Host": "localhost:9477"})[0].status == 200
    assert get(server, "/", {"Host": "[::1]:9477"})[0].status == 200


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("correct-horse-battery\n")
    return str(path)


def basic(password):
    return "Basic " + base64.b64encode(f"me:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("offered", "status"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Bearer correct-horse-battery", 200),
        (basic("correct-horse-battery"), 200),
        (basic("wrong"), 401),
        ("Basic !!!", 401),
        ("Bearer é", 401),
    ],
)
@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/runs", "/-/healthy"])
def test_with_a_token_file_every_request_needs_the_token(serve, token_file, offered, status, path):
    """By bearer token, or as the password that a browser asks for."""
    server = serve(token_file=token_file)
    headers = {} if offered is None else {"Authorization": offered.encode("utf-8")}

    assert get(server, path, headers)[0].status == status


def test_beyond_loopback_a_token_or_a_word_is_needed(token_file):
    """Listening for the world is a decision."""
    with pytest.raises(ValueError, match="token_file"):
        HttpSettings(host="0.0.0.0")

    HttpSettings(host="0.0.0.0", token_file=token_file)
    HttpSettings(host="0.0.0.0", insecure=True)


@pytest.mark.parametrize("text", ["", "short\n"])
def test_a_token_that_is_no_token_is_refused(tmp_path, text):
    """An empty token would let everybody in."""
    (tmp_path / "token").write_text(text)

    with pytest.raises(SettingsError, match="at least 16"):
        StatusServer(HttpSettings(port=0, token_file=str(tmp_path / "token")), View())


def test_ports_of_rays_workers_are_refused():
    """Ray would refuse to start beside it."""
    with pytest.raises(ValueError, match="10002"):
        HttpSettings(port=10500)


def test_a_port_that_is_taken_is_replaced_and_said(serve):
    """Two clusters on one machine: the second daemon takes a free port."""
    first = serve()
    second = serve(port=first.port) if first.port > 19999 or first.port < 10002 else None
    assert second is not None

    assert second.port != first.port
    assert f"port {first.port} is taken" in second.remark


def test_an_address_that_is_not_ours_is_one_line():
    """A host that this machine does not have."""
    with pytest.raises(SettingsError, match=r"http\.host"):
        StatusServer(HttpSettings(host="192.0.2.1", insecure=True, port=0), View())


def test_a_silent_client_is_cut_and_others_are_served(serve, monkeypatch):
    """Slow loris: a connection that drips bytes has an end, and nobody waits for it."""
    monkeypatch.setattr(status_http, "CONNECTION_SECONDS", 0.5)
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nX: ")

        assert get(server, "/-/healthy")[0].status == 200
        slow.settimeout(5)
        assert slow.recv(1000) == b""


def test_too_many_connections_are_closed_at_once(serve, monkeypatch):
    """The number of threads is bounded."""
    monkeypatch.setattr(status_http, "CONNECTIONS", 2)
    server = serve()
    held = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(2)]
    for connection in held:
        connection.sendall(b"GET / HTTP/1.1\r\n")

    def refused():
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            get(server, "/-/healthy")

    refused()
    for connection in held:
        connection.close()


def test_a_huge_request_line_is_refused(serve):
    """A request of 100 kB is 414, not memory."""
    assert get(serve(), "/" + "a" * 100_000)[0].status == 414


@pytest.fixture
def certificate(tmp_path):
    """A certificate for localhost and its key."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return {"tls_cert_file": str(cert), "tls_key_file": str(key)}


def test_it_speaks_https_with_a_certificate(serve, certificate):
    """TLS files are used, and a client that talks plain text there is no trouble."""
    server = serve(**certificate)

    assert server.url.startswith("https://127.0.0.1:")
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        get(server, "/-/healthy")
    context = ssl.create_default_context(cafile=certificate["tls_cert_file"])
    with urllib.request.urlopen(f"https://localhost:{server.port}/-/healthy", context=context, timeout=5) as answer:
        assert answer.read() == b"healthy\n"


@pytest.mark.parametrize("shakes_hands", [True, False])
def test_a_slow_client_is_cut_under_tls_too(serve, certificate, monkeypatch, shakes_hands):
    """However it drips, and whether or not it ever ends its handshake."""
    monkeypatch.setattr(status_http, "CONNECTION_SECONDS", 0.5)
    server = serve(**certificate)
    context = ssl.create_default_context(cafile=certificate["tls_cert_file"])
    with socket.create_connection(("localhost", server.port), timeout=5) as slow:
        client = context.wrap_socket(slow, server_hostname="localhost") if shakes_hands else slow
        with client:
            ended = False
            for _ in range(40):
                try:
                    client.sendall(b"\x16" if not shakes_hands else b"G")
                    client.settimeout(0.1)
                    ended = client.recv(1000) == b""
                except TimeoutError:
                    continue
                except OSError:
                    ended = True
                if ended:
                    break

    assert ended


def test_a_certificate_that_cannot_be_read_is_one_line(tmp_path):
    """Said at the start, not at the first request."""
    missing = str(tmp_path / "none.pem")
    with pytest.raises(SettingsError, match="tls_cert_file"):
        StatusServer(HttpSettings(port=0, tls_cert_file=missing, tls_key_file=missing), View())


def test_many_clients_at_once_are_answered(serve):
    """Threads serve side by side."""
    server = serve()
    codes = []
    threads = [threading.Thread(target=lambda: codes.append(get(server, "/metrics")[0].status)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert codes == [200] * 20
