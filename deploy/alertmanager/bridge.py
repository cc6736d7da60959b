#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From the webhooks of Alertmanager and of Sentinel to the robots of DingTalk, Feishu (Lark) and WeCom, which want their own forms.

    bridge.py --config bridge.json [--listen 127.0.0.1:9478]

bridge.json names the robots; a secret is what the robot's page calls signature (WeCom has none):

    {"dingtalk": {"url": "https://HOST/robot/send?access_token=TOKEN", "secret": "SEC..."},
     "feishu":   {"url": "https://HOST/open-apis/bot/v2/hook/TOKEN", "secret": "..."},
     "wecom":    {"url": "https://HOST/cgi-bin/webhook/send?key=TOKEN"}}

Alertmanager posts to /dingtalk, /feishu or /wecom; so does Sentinel itself where there is no Alertmanager, with
`alerts: {webhook: "http://127.0.0.1:9478/dingtalk"}`. What a robot refuses is answered with 502, so that the sender tries
again and shows it. Standard library only; the file can be copied anywhere. Addresses are never printed: they hold secrets.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import http.server
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import ClassVar

MOST_BYTES = 1 << 20
MOST_ALERTS = 8
"""Alerts that one message tells in full; robots refuse long messages."""
TEXT_BYTES = {"dingtalk": 18000, "feishu": 18000, "wecom": 4000}
"""Bytes of text that a robot takes, with room to spare."""
SECONDS = 10.0


def notification_of(document: dict) -> dict:
    """Return what was posted in Alertmanager's form; Sentinel's own message tells of one incident.

    Raises:
        TypeError: it is neither of the two.
    """
    if isinstance(document.get("alerts"), list) and document["alerts"]:
        return document
    if not isinstance(document.get("incident"), dict):
        raise TypeError("neither")
    said = {
        "summary": document.get("title"),
        "description": document.get("text"),
        "report_url": document.get("report_url"),
    }
    labels = {"alertname": "SentinelIncident", "severity": document["incident"].get("severity", "")}
    status = "resolved" if document.get("change") == "closed" else "firing"
    return {"alerts": [{"status": status, "labels": labels, "annotations": {k: v for k, v in said.items() if v}}]}


def text_of(notification: dict, limit: int) -> tuple[str, str]:
    """Return title and Markdown text of one notification of Alertmanager, version 4."""
    alerts = notification.get("alerts", [])
    firing = sum(alert.get("status") == "firing" for alert in alerts)
    state = f"告警 {firing}" if firing else "已恢复"
    first = alerts[0].get("annotations", {}).get("summary", "") if alerts else ""
    title = f"[{state}] {first}".strip()
    parts = [_part(alert) for alert in alerts[:MOST_ALERTS]]
    if len(alerts) > MOST_ALERTS:
        parts.append(f"还有 {len(alerts) - MOST_ALERTS} 条 / and {len(alerts) - MOST_ALERTS} more")
    text = f"**{title}**\n\n" + "\n\n".join(parts)
    return title[:120], text.encode()[:limit].decode("utf-8", "ignore")


def _part(alert: dict) -> str:
    labels, said = alert.get("labels", {}), alert.get("annotations", {})
    state = "触发" if alert.get("status") == "firing" else "恢复"
    lines = [f"- {state} {labels.get('severity', '')} **{said.get('summary', labels.get('alertname', ''))}**"]
    if said.get("description"):
        lines.append(f"  {said['description']}")
    links = [
        f"[{name}]({said[key]})" for name, key in (("报告", "report_url"), ("处置", "runbook_url")) if said.get(key)
    ]
    if links:
        lines.append("  " + " ".join(links))
    return "\n".join(lines)


def dingtalk(title: str, text: str, url: str, secret: str | None, now: float) -> tuple[str, dict]:
    """Return address and body for a robot of DingTalk; the signature goes into the address."""
    if secret:
        stamp = str(int(now * 1000))
        signature = _signed(secret.encode(), f"{stamp}\n{secret}".encode())
        url += ("&" if "?" in url else "?") + urllib.parse.urlencode({"timestamp": stamp, "sign": signature})
    return url, {"msgtype": "markdown", "markdown": {"title": title, "text": text}}


def feishu(title: str, text: str, url: str, secret: str | None, now: float) -> tuple[str, dict]:
    """Return address and body for a robot of Feishu; the signature goes into the body."""
    card = {
        "header": {"title": {"tag": "plain_text", "content": title}},
        "elements": [{"tag": "markdown", "content": text}],
    }
    body: dict = {"msg_type": "interactive", "card": card}
    if secret:
        stamp = str(int(now))
        body |= {"timestamp": stamp, "sign": _signed(f"{stamp}\n{secret}".encode(), b"")}
    return url, body


def wecom(title: str, text: str, url: str, secret: str | None, now: float) -> tuple[str, dict]:  # noqa: ARG001
    """Return address and body for a robot of WeCom."""
    return url, {"msgtype": "markdown", "markdown": {"content": text}}


FORMS = {"dingtalk": dingtalk, "feishu": feishu, "wecom": wecom}


def _signed(key: bytes, message: bytes) -> str:
    return base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode()


def deliver(name: str, robot: dict, notification: dict, now: float) -> str | None:
    """Send one notification to one robot; return why it was not taken, None when it was."""
    title, text = text_of(notification, TEXT_BYTES[name])
    url, body = FORMS[name](title, text, robot["url"], robot.get("secret"), now)
    request = urllib.request.Request(
        url, data=json.dumps(body, ensure_ascii=False).encode(), headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            said = json.load(answer)
    except (OSError, ValueError) as error:
        return f"{type(error).__name__} {getattr(error, 'code', '')}".strip()
    # Robots answer 200 also when they refuse; the code is in the body, under one of two names.
    if not isinstance(said, dict):
        return "the robot answered no JSON object"
    code = said.get("errcode", said.get("code", 0))
    return None if code == 0 else f"the robot answered {code} {said.get('errmsg') or said.get('msg') or ''}".strip()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers Alertmanager and Sentinel."""

    robots: ClassVar[dict] = {}
    timeout = SECONDS

    def do_POST(self) -> None:
        """Deliver one notification."""
        name = self.path.strip("/")
        length = int(self.headers.get("Content-Length") or 0)
        if name not in self.robots:
            self._say(404, f"no robot is named {name[:40]!r}; bridge.json has {', '.join(self.robots)}")
        elif not 0 < length <= MOST_BYTES:
            self._say(413, "the body is empty or too long")
        else:
            self._deliver(name, self.rfile.read(length))

    def _deliver(self, name: str, body: bytes) -> None:
        try:
            notification = notification_of(json.loads(body))
            why = deliver(name, self.robots[name], notification, time.time())
        except (ValueError, AttributeError, TypeError) as error:
            self._say(400, f"neither a notification of Alertmanager nor a message of Sentinel: {type(error).__name__}")
            return
        self._say(200 if why is None else 502, why or "delivered")

    def _say(self, status: int, text: str) -> None:
        data = (text + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def load(path: str) -> dict:
    """Return the robots of a bridge.json; exits with one line where it says something wrong."""
    try:
        robots = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: {error}")
    for name, robot in robots.items():
        if name not in FORMS:
            sys.exit(f"{path}: {name!r} is none of {', '.join(FORMS)}")
        if not str(robot.get("url", "")).startswith(("http://", "https://")):
            sys.exit(f"{path}: {name}.url must begin with http:// or https://")
    return robots


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--config", required=True)
    parser.add_argument("--listen", default="127.0.0.1:9478")
    args = parser.parse_args()
    Handler.robots = load(args.config)
    host, _, port = args.listen.rpartition(":")
    server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
    print(f"listening on {host}:{server.server_address[1]} for {', '.join(Handler.robots)}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
