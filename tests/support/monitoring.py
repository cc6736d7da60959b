# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus and Alertmanager on loopback with the shipped rules, and a receiver of their webhooks.

Waiting times of the shipped files are shortened; nothing else is changed.
"""

import http.server
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


def free_port():
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get_json(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def report(trainer, first, last=None, **changed):
    """Report steps with the time of now: the daemon's real clock would find older ones silent."""
    for step in range(first, (last or first) + 1):
        trainer.send({**trainer.step_record(step, **changed), "at": time.time()})
    return trainer.reply


class Hook:
    """A receiver of webhooks: keeps when what arrived at which path."""

    def __init__(self):
        hook = self
        self.got = []
        self._arrived = threading.Condition()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with hook._arrived:
                    hook.got.append((time.monotonic(), self.path, body))
                    hook._arrived.notify_all()
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def wait(self, status, alertname, seconds, **labels):
        """Return (when it arrived, the alert) for the first alert of this name, or of these; fail after `seconds`."""
        names = (alertname,) if isinstance(alertname, str) else alertname
        end = time.monotonic() + seconds
        with self._arrived:
            while True:
                for at, _, body in self.got:
                    for alert in body["alerts"]:
                        there = alert["labels"]
                        if (
                            alert["status"] == status
                            and there["alertname"] in names
                            and labels.items() <= there.items()
                        ):
                            return at, alert
                left = end - time.monotonic()
                assert left > 0, f"no {status} {alertname}; arrived: {[self._short(body) for _, _, body in self.got]}"
                self._arrived.wait(left)

    @staticmethod
    def _short(body):
        return [(alert["status"], alert["labels"]["alertname"]) for alert in body["alerts"]]

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class Program:
    """A started program that answers at /-/ready."""

    def __init__(self, command, port, folder):
        self.url = f"http://127.0.0.1:{port}"
        self._log = (folder / f"{Path(command[0]).name}.log").open("w+")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        end = time.monotonic() + 60
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > end:
                self._process.kill()
                self._log.seek(0)
                raise AssertionError(f"{command[0]} did not start: {self._log.read()[-2000:]}")
            time.sleep(0.05)

    def _ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def close(self):
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._log.close()


class Alertmanager(Program):
    """The shipped configuration; every webhook goes to `hook`, e-mail is left out (no mail server is here)."""

    def __init__(self, folder, hook):
        config = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text(encoding="utf-8"))
        shutil.copytree(DEPLOY / "alertmanager/templates", folder / "templates")
        for receiver in config["receivers"]:
            receiver.pop("email_configs", None)
            for webhook in receiver.get("webhook_configs", ()):
                webhook["url"] = f"{hook.url}/{receiver['name']}{urllib.parse.urlsplit(webhook['url']).path}"
        for route in (config["route"], *config["route"]["routes"]):
            route["group_interval"] = "1s"
        path = folder / "alertmanager.yml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        port = free_port()
        command = [shutil.which("prometheus-alertmanager"), f"--config.file={path}", "--log.level=warn"]
        command += [f"--storage.path={folder}/alertmanager", f"--web.listen-address=127.0.0.1:{port}"]
        super().__init__([*command, "--cluster.listen-address="], port, folder)

    def alerts(self):
        """What it holds, also what is inhibited."""
        return get_json(f"{self.url}/api/v2/alerts")


class Prometheus(Program):
    """The shipped configuration and rules, with one-second intervals.

    Args:
        folder: for its files.
        target: address of the daemon's endpoint, HOST:PORT.
        alertmanager: address it sends alerts to; None for nowhere.
    """

    def __init__(self, folder, target, alertmanager=None):
        config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8"))
        config["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        managers = [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager else []
        config["alerting"] = {"alertmanagers": managers}
        # Alerts that wait a minute or longer keep that: until the first scrape the daemon is absent.
        for name in config["rule_files"]:
            text = (DEPLOY / "prometheus" / name).read_text(encoding="utf-8")
            (folder / name).write_text(re.sub(r"for: (30s|2m)\b", "for: 2s", text), encoding="utf-8")
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        port = free_port()
        command = [shutil.which("prometheus"), f"--config.file={folder}/prometheus.yml", "--log.level=warn"]
        command += [f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address=127.0.0.1:{port}"]
        super().__init__([*command, "--enable-feature=exemplar-storage"], port, folder)

    def ask(self, path, **parameters):
        """The data of an answer of /api/v1."""
        return get_json(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}")["data"]

    def query(self, text):
        """The vector of an instant query."""
        return self.ask("query", query=text)["result"]

    def wait(self, text, seconds=30):
        """Wait until an instant query has a result; return it."""
        end = time.monotonic() + seconds
        while not (found := self.query(text)):
            assert time.monotonic() < end, f"nothing for {text}"
            time.sleep(0.1)
        return found
