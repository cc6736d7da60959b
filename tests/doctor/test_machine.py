# SPDX-License-Identifier: Apache-2.0
"""What is said of the machine: each trouble is found, named, and has a way out."""

import os
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sentinel.doctor import cluster, installation, machine
from sentinel.settings import Settings
from sentinel.storage.journal import Journal
from sentinel.storage.run_folders import journal_folder, write_run_name


def test_a_healthy_machine_has_nothing_that_fails(tmp_path):
    settings = Settings.from_mapping({"home": str(tmp_path / "home"), "http": {"port": 0}})

    found = {check.id: check for check in machine.checks(settings)}

    assert not [check for check in found.values() if check.status == "fail"]
    assert found["home"].status == "pass"
    assert "will be made" in found["home"].found
    assert found["journal"].found == "none yet"
    assert found["baseline"].status == "unknown"
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(("version", "status"), [((3, 9, 1), "fail"), ((3, 10, 0), "pass"), ((3, 13, 0), "fail")])
def test_python_is_3_10_to_3_12(version, status):
    assert installation.python_version(version).status == status


def test_a_switch_that_turns_sentinel_off_is_said():
    assert installation.switches({"SENTINEL_DISABLED": "1", "SENTINEL_RUN": "r"}).status == "warn"
    assert installation.switches({"SENTINEL_DISABLED": "0"}).status == "pass"
    assert installation.switches({"SENTINEL_CONFIG": "/nowhere/s.yaml"}).status == "fail"


def test_a_home_below_a_file_fails(tmp_path):
    (tmp_path / "file").write_text("")

    check = machine.home_folder(tmp_path / "file" / "home")

    assert check.status == "fail"
    assert "Not a directory" in check.found


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_cannot_be_written_fails(tmp_path):
    tmp_path.chmod(0o500)
    assert machine.home_folder(tmp_path).status == "fail"


def test_characters_that_msprobe_refuses_are_named(tmp_path):
    assert machine.dump_path(tmp_path / "lr=1e-5 a").found.count("'='") == 1
    assert machine.dump_path(tmp_path / "lr=1e-5").status == "warn"


def test_a_journal_of_a_format_that_is_not_known_fails(tmp_path):
    folder = journal_folder(tmp_path, "r")
    folder.mkdir(parents=True)
    with Journal(folder, run="r") as journal:
        journal.append("step", {"step": 1})
    write_run_name(folder, "r")
    assert machine.journal(tmp_path).found == "1 runs, all readable"

    segment = next(folder.glob("entries-*.jsonl"))
    header, _, rest = segment.read_bytes().partition(b"\n")
    segment.write_bytes(re.sub(rb"1", b"99", header, count=1) + b"\n" + rest)
    changed = machine.journal(tmp_path)

    assert changed.status == "fail"
    assert "not known here" in changed.found


def test_a_port_that_is_taken_is_warned_of_unless_a_daemon_holds_it():
    class Ours(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"sentinel": "healthy"}')

        def log_message(self, *_):
            pass

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        other.settimeout(0.1)
        assert machine.port("127.0.0.1", other.getsockname()[1]).status == "warn"
    server = HTTPServer(("127.0.0.1", 0), Ours)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    check = machine.port("127.0.0.1", server.server_port)
    server.shutdown()
    thread.join()
    server.server_close()

    assert check.status == "pass"
    assert "served by a Sentinel daemon" in check.found


def test_a_baseline_that_cannot_be_read_fails(tmp_path):
    settings = Settings.from_mapping({"baseline": str(tmp_path / "gone.zip")})

    assert machine.baseline(settings).status == "fail"


def test_a_clock_before_its_own_files_fails(tmp_path):
    (tmp_path / "journal").mkdir()
    now = (tmp_path / "journal").stat().st_mtime

    assert machine.clock(now + 1, tmp_path).status == "pass"
    assert machine.clock(now - 3600, tmp_path).status == "fail"
    assert machine.clock(0.0, tmp_path / "none").status == "fail"


def test_few_files_and_little_shared_memory_are_warned_of(tmp_path):
    assert machine.open_files(1024).status == "warn"
    assert machine.open_files(-1).status == "pass"
    assert machine.shared_memory(tmp_path / "none").status == "unknown"


def test_a_proxy_that_catches_loopback_is_warned_of(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert machine.proxy().found == "none"
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    assert machine.proxy().status == "warn"
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    assert machine.proxy().status == "pass"


def test_a_token_without_its_mode_and_a_mode_without_its_token_are_told(tmp_path):
    assert cluster.token({}, tmp_path).found == "not used"
    assert cluster.token({"RAY_AUTH_MODE": "token"}, tmp_path).status == "fail"
    (tmp_path / ".ray").mkdir()
    file = tmp_path / ".ray" / "auth_token"
    file.write_text("secret-token-text")
    file.chmod(0o600)
    assert cluster.token({}, tmp_path).status == "warn"
    assert cluster.token({"RAY_AUTH_MODE": "token"}, tmp_path).status == "pass"
    file.chmod(0o644)
    check = cluster.token({"RAY_AUTH_MODE": "token"}, tmp_path)
    assert check.status == "warn"
    assert "secret-token-text" not in str(check)


def test_the_address_of_a_dead_cluster_is_named(tmp_path):
    assert cluster.left_over(tmp_path).found == "none"
    (tmp_path / "ray_current_cluster").write_text("127.0.0.1:1")
    check = cluster.left_over(tmp_path)
    assert check.status == "warn"
    assert "ray_current_cluster" in check.fix
    (tmp_path / "ray_current_cluster").write_text("no address")
    assert cluster.left_over(tmp_path).status == "warn"


def test_no_cluster_is_unknown_and_one_that_does_not_answer_is_no_pass():
    assert cluster.reached(None, None, named=False).status == "unknown"
    broken = {"error": "ConnectionError: ..."}
    assert cluster.reached("h:1", broken, named=True).status == "fail"
    assert cluster.reached("h:1", broken, named=False).status == "warn"
    there = {"nodes": 1, "resources": "2 CPU", "daemon": False, "worker": "", "here": "0.1.0"}
    assert cluster.reached("h:1", there, named=True).status == "pass"
    assert cluster.environment_of_head(there).status == "fail"
    assert cluster.environment_of_head({**there, "worker": "0.1.0"}).status == "pass"
    assert cluster.environment_of_head({**there, "here": ""}).status == "fail"


def test_rays_version_is_judged():
    assert cluster.version(None).status == "fail"
    assert cluster.version("2.9.3").status == "fail"
    assert cluster.version("2.60.0").status == "pass"


def test_what_sentinel_itself_needs_is_looked_for(monkeypatch):
    assert installation.dependencies().status == "pass"
    monkeypatch.setattr(installation, "DISTRIBUTION", "not-installed-anywhere")
    assert installation.dependencies().status == "unknown"
    monkeypatch.setattr(installation, "_version_of", lambda name: "" if name == "pyarrow" else "99")
    monkeypatch.setattr(installation, "DISTRIBUTION", "verl-sentinel")
    check = installation.dependencies()
    assert check.status == "fail"
    assert "pyarrow missing" in check.found
