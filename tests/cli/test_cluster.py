"""Finding and reaching the cluster within a deadline."""

import argparse
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sentinel.cli import cluster
from sentinel.errors import DaemonError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No cluster of this machine is seen."""
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(cluster, "gcs_addresses", dict)


def test_what_is_given_wins(monkeypatch):
    """The option, then RAY_ADDRESS."""
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")

    assert cluster.find_address("10.0.0.2:6379") == "10.0.0.2:6379"
    assert cluster.find_address(None) == "10.0.0.1:6379"
    assert cluster.find_address("[::1]:6379") == "[::1]:6379"


@pytest.mark.parametrize("text", ["nonsense", "a b:1", "host", "ray://x:1", "host:port", ":1"])
def test_what_is_no_address_is_refused(text):
    """One line, before Ray is asked."""
    with pytest.raises(DaemonError, match="HOST:PORT"):
        cluster.find_address(text)


def test_the_last_start_counts_while_it_answers(tmp_path):
    """The file that `ray start` leaves stays behind when the cluster is gone."""
    (tmp_path / "ray").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        assert cluster.find_address("auto") == address

    assert cluster.find_address(None) is None


def test_several_clusters_are_a_question(monkeypatch):
    """Which one is not guessed."""
    monkeypatch.setattr(cluster, "gcs_addresses", lambda: {"a:1": {os.geteuid()}, "b:2": {os.geteuid()}})
    with pytest.raises(DaemonError, match="a:1, b:2"):
        cluster.find_address(None)

    monkeypatch.setattr(cluster, "gcs_addresses", lambda: {"a:1": {os.geteuid()}})
    assert cluster.find_address(None) == "a:1"


def test_a_raylet_on_this_machine_is_found(tmp_path, monkeypatch):
    """By its command line."""
    monkeypatch.undo()
    raylet = tmp_path / "raylet"
    raylet.symlink_to(sys.executable)
    process = subprocess.Popen([str(raylet), "-c", "input()", "--gcs-address=192.0.2.7:12345"], stdin=subprocess.PIPE)
    try:
        end = time.monotonic() + 10  # a process that is just being started has no command line yet
        while "192.0.2.7:12345" not in cluster.gcs_addresses():
            assert time.monotonic() < end
            time.sleep(0.01)
        assert cluster.gcs_addresses()["192.0.2.7:12345"] == {os.geteuid()}
    finally:
        process.communicate(b"\n")


def test_another_users_cluster_is_taken_only_by_name(monkeypatch, tmp_path):
    """Whether it shows by its processes or in the file of the last `ray start`; root stands for everybody."""
    me = os.geteuid()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = f"127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / cluster.ADDRESS_FILE).write_text(theirs)
        monkeypatch.setattr(cluster, "gcs_addresses", lambda: {"a:1": {me + 1}, "b:2": {me + 1}})
        monkeypatch.setattr(os, "geteuid", lambda: me + 2)

        with pytest.raises(DaemonError, match=r"another user's \(a:1, b:2\): name one with --address"):
            cluster.find_address(None)
        assert cluster.find_address("a:1") == "a:1"

        monkeypatch.setattr(cluster, "gcs_addresses", lambda: {"a:1": {me + 1}, "b:2": {me + 2}})
        assert cluster.find_address(None) == "b:2"

        monkeypatch.setattr(os, "geteuid", lambda: 0)
        assert cluster.find_address(None) == theirs


def test_a_call_that_hangs_is_given_up():
    """Within the deadline, whatever it does."""
    begin = time.monotonic()
    with pytest.raises(cluster.UnreachableError, match="no answer within"):
        cluster.within(0.1, lambda: time.sleep(1.0))

    assert time.monotonic() - begin < 0.9


def test_answers_refusals_and_bugs_pass_through():
    """Only Ray's and the network's troubles mean unreachable."""

    def refuse():
        raise DaemonError("no")

    def drop():
        raise ConnectionResetError("gone")

    assert cluster.within(5.0, lambda: 7) == 7
    with pytest.raises(DaemonError, match="no"):
        cluster.within(5.0, refuse)
    with pytest.raises(cluster.UnreachableError, match="gone"):
        cluster.within(5.0, drop)
    with pytest.raises(ZeroDivisionError):
        cluster.within(5.0, lambda: 1 / 0)


def test_no_cluster_is_absent():
    """Before anything of Ray is loaded."""
    with pytest.raises(cluster.AbsentError):
        cluster.connect(argparse.Namespace(address=None, timeout=1.0))


def test_a_token_is_used_where_there_is_one(tmp_path):
    """Ray does not look for itself when it joins, and waits 20 s instead."""
    cluster.prepare_authentication()
    assert "RAY_AUTH_MODE" not in os.environ

    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("x")
    cluster.prepare_authentication()
    assert os.environ.pop("RAY_AUTH_MODE") == "token"


def test_a_mode_that_is_set_stays(tmp_path, monkeypatch):
    """The user knows better."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    cluster.prepare_authentication()

    assert os.environ["RAY_AUTH_MODE"] == "disabled"


@pytest.mark.parametrize(
    "verb",
    [
        "up",
        "status",
        "down",
        "down --run r",
        "reload",
        "attach {log} --run r",
        "incidents list",
        "captures list",
        "captures request --run r --stages actor_update",
    ],
)
def test_no_verb_imports_ray_before_it_has_said_that_there_is_a_token(tmp_path, verb):
    """Ray reads the environment when it is imported, and never again: a mode that is set later joins no cluster."""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("x")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "data": {"actor/grad_norm": 1.0}}\n')
    (tmp_path / "lib" / "ray").mkdir(parents=True)
    seen = tmp_path / "seen"
    (tmp_path / "lib" / "ray" / "__init__.py").write_text(
        f"import os\nopen({str(seen)!r}, 'a').write(os.environ.get('RAY_AUTH_MODE', 'none') + ' ')\nraise ConnectionError('no')\n"
    )
    root = str(Path(__file__).parents[2])
    with socket.create_server(("127.0.0.1", 0)) as server:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "HOME": str(tmp_path),
            "RAY_ADDRESS": f"127.0.0.1:{server.getsockname()[1]}",
            "PYTHONPATH": os.pathsep.join((str(tmp_path / "lib"), root)),
        }
        words = verb.format(log=tmp_path / "metrics.jsonl").split()
        done = subprocess.run(
            [sys.executable, "-m", "sentinel", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    assert seen.exists(), done.stderr
    assert set(seen.read_text().split()) == {"token"}
