# SPDX-License-Identifier: Apache-2.0
"""The bridge from Alertmanager to chat robots, against robots on loopback that answer as the real ones do."""

import base64
import hashlib
import hmac
import http.server
import importlib.util
import json
import threading
import types
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from sentinel.records import Incident
from sentinel.sinks.alerting import Alerts, AlertSettings

FILE = Path(__file__).parents[2] / "deploy/alertmanager/bridge.py"
spec = importlib.util.spec_from_file_location("bridge", FILE)
bridge = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bridge)


def notification(count=1, status="firing"):
    alert = {
        "status": status,
        "labels": {"alertname": "SentinelDrift", "severity": "critical", "run": "r"},
        "annotations": {
            "summary": "r: drift",
            "description": "价 9",
            "report_url": "http://d/r",
            "runbook_url": "http://b",
        },
    }
    return {"version": "4", "status": status, "alerts": [alert] * count}


class Robot(http.server.BaseHTTPRequestHandler):
    answer, got = types.MappingProxyType({"errcode": 0}), ()

    def do_POST(self):
        self.got.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        data = json.dumps(self.answer, default=dict).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(handler, **attributes):
        made = type("Made", (handler,), {"log_message": lambda *a: None, **attributes})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), made)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def post(url, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("name", ["dingtalk", "feishu", "wecom"])
def test_each_robot_gets_its_own_form(serve, name):
    got = []
    robot = serve(Robot, got=got)
    url = serve(bridge.Handler, robots={name: {"url": f"{robot}/send?key=K"}})

    assert post(f"{url}/{name}", notification()) == (200, "delivered\n")
    ((path, body),) = got
    assert path == "/send?key=K"
    text = json.dumps(body, ensure_ascii=False)
    assert all(part in text for part in ("r: drift", "价 9", "http://d/r", "http://b", "critical"))
    assert body.get("msgtype", body.get("msg_type")) == {"feishu": "interactive"}.get(name, "markdown")


@pytest.mark.parametrize(("change", "state"), [("opened", "告警 1"), ("closed", "已恢复")])
def test_sentinels_own_message_needs_no_alertmanager(serve, change, state):
    """As the daemon sends it to `alerts.webhook`."""
    got = []
    url = serve(bridge.Handler, robots={"dingtalk": {"url": f"{serve(Robot, got=got)}/send?key=K"}})
    told = Incident(
        id="r:1", run="r", kind="drift", state="closed" if change == "closed" else "open",
        opened_at_step=7, closed_at_step=None, severity="critical", stage="actor_update", suspects=(), findings=(), because="grad_norm 价 9",
    )  # fmt: skip
    sender = Alerts(AlertSettings(webhook=f"{url}/dingtalk", page_url="http://d"), pause=lambda _: None)

    assert sender.send(told, change, {"severity": "critical"}) == ()
    ((_, body),) = got
    text = body["markdown"]["text"]
    assert state in text
    assert all(part in text for part in ("drift in actor_update", "价 9", "critical", "http://d/reports/r%3A1"))


def test_dingtalk_is_signed_in_the_address():
    url, _ = bridge.dingtalk("t", "x", "https://h/send?access_token=a", "SECq", 1.5)

    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
    expected = hmac.new(b"SECq", b"1500\nSECq", hashlib.sha256).digest()
    assert query == {"access_token": "a", "timestamp": "1500", "sign": base64.b64encode(expected).decode()}


def test_feishu_is_signed_in_the_body():
    _, body = bridge.feishu("t", "x", "https://h", "q", 7.9)

    assert (body["timestamp"], body["sign"]) == (
        "7",
        base64.b64encode(hmac.new(b"7\nq", b"", hashlib.sha256).digest()).decode(),
    )


@pytest.mark.parametrize("answer", [{"errcode": 310000, "errmsg": "sign"}, {"code": 19021, "msg": "sign"}, []])
def test_a_refusal_reaches_alertmanager_and_no_secret_is_told(serve, answer):
    """Robots answer 200 and refuse in the body."""
    robot = serve(Robot, got=[], answer=answer)
    url = serve(bridge.Handler, robots={"wecom": {"url": f"{robot}/send?key=HIDDEN"}})
    status, text = post(f"{url}/wecom", notification())

    assert status == 502
    assert "HIDDEN" not in text


def test_a_robot_that_is_away_is_a_refusal(serve):
    url = serve(bridge.Handler, robots={"wecom": {"url": "http://127.0.0.1:9/x"}})

    assert post(f"{url}/wecom", notification())[0] == 502


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/nobody", b"{}", 404),
        ("/wecom", b"", 413),
        ("/wecom", b"{", 400),
        ("/wecom", b"[]", 400),
        ("/wecom", b"{}", 400),
        ("/wecom", b'{"alerts": []}', 400),
    ],
)
def test_what_is_no_notification_is_refused(serve, path, body, status):
    url = serve(bridge.Handler, robots={"wecom": {"url": "http://127.0.0.1:9/x"}})

    assert post(url + path, body)[0] == status


def test_long_messages_are_cut_between_characters():
    _, text = bridge.text_of(notification(count=100), 300)

    assert len(text.encode()) <= 300
    assert "and 92 more" in bridge.text_of(notification(count=100), 10**6)[1]


def test_what_is_over_is_told_so():
    assert "已恢复" in bridge.text_of(notification(status="resolved"), 4000)[0]


@pytest.mark.parametrize("text", ["{", '{"slack": {"url": "http://x"}}', '{"wecom": {"url": "ftp://x"}}'])
def test_a_wrong_file_is_one_line(tmp_path, text):
    path = tmp_path / "bridge.json"
    path.write_text(text)

    with pytest.raises(SystemExit) as caught:
        bridge.load(str(path))
    assert str(caught.value).startswith(str(path))
