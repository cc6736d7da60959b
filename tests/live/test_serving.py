# SPDX-License-Identifier: Apache-2.0
"""What containers and systemd run: a cluster with the daemon in it, in the foreground; and the node that the daemon goes to."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from sentinel.demo.cluster import clean_environment
from tests.support.monitoring import free_port
from tests.support.watching import write_baseline

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]


def environment(folder):
    """Nothing of other clusters; Ray's files in a folder of ours, with a short name as its sockets want."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    own = {"HOME": str(folder), "PATH": path, "PYTHONPATH": str(ROOT), "RAY_TMPDIR": str(folder)}
    return {**clean_environment(), **own, "RAY_PORT": str(port_below_rays_workers())}


def port_below_rays_workers():
    while 10002 <= (port := free_port()) <= 19999:
        pass
    return port


@pytest.fixture
def short(tmp_path_factory):
    """A folder with a short name, and an end of every process that was started in it."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="sn", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_the_daemon_is_served_in_the_foreground_and_a_signal_ends_it_all(short):
    http = port_below_rays_workers()
    settings = short / "sentinel.yaml"
    settings.write_text(f"home: {short / 'home'}\nhttp: {{port: {http}}}\n")
    script = subprocess.Popen(
        # A shell cannot trap what was ignored before it began, as under nohup.
        ["env", "--default-signal=HUP", "bash", str(ROOT / "deploy/container/serve.sh"), str(settings)],
        env=environment(short),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    below = []
    try:
        end = time.monotonic() + 150
        while not healthy(http):
            assert script.poll() is None, script.stdout.read()
            assert time.monotonic() < end
            time.sleep(0.5)
        below = psutil.Process(script.pid).children(recursive=True)
        assert below

        settings.write_text(settings.read_text() + "regime: free\n")
        end = time.monotonic() + 90
        script.send_signal(signal.SIGHUP)
        while '"applied": ["regime"]' not in (short / "home" / "daemon.log").read_text():
            assert script.poll() is None, script.stdout.read()
            assert time.monotonic() < end
            time.sleep(0.5)
        assert healthy(http)

        script.send_signal(signal.SIGTERM)
        assert script.wait(60) == 0
        _, left = psutil.wait_procs(below, timeout=30)
        assert left == []
        assert not healthy(http)
    finally:
        for process in below:
            if process.is_running():
                process.kill()
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)
        script.stdout.close()
        script.wait(30)


def healthy(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/healthy", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.mark.parametrize(("resources", "starts", "expected"), [({"sentinel": 1}, 5, {1.0}), ({}, 1, {0})])
def test_the_daemon_goes_to_the_node_that_is_meant_for_it(short, resources, starts, expected):
    """Service and NetworkPolicy then have a place to point at; without such a node it is anywhere.

    Several starts: a place that is drawn would be right by chance half the time.
    """
    command = [sys.executable, str(ROOT / "tests/support/two_nodes.py"), json.dumps(resources), str(short / "home")]
    command.append(str(starts))
    done = subprocess.run(command, env=environment(short), capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]

    found = json.loads(done.stdout.splitlines()[-1])
    assert (set(found["resource_of_its_node"]), found["nodes"]) == (expected, 2)
    assert len(found["resource_of_its_node"]) == starts


def test_when_the_daemons_node_dies_it_goes_on_on_another_and_the_run_is_watched(short):
    """With the journal on storage that both see: incident, order and the count of steps are there, nothing is there twice."""
    baseline = write_baseline(short / "golden.jsonl")
    settings = json.dumps({"home": str(short / "home"), "baseline": str(baseline), "http": {"port": 0}})
    command = [sys.executable, str(ROOT / "tests/support/dying_node.py"), str(short), settings]
    done = subprocess.run(command, env=environment(short), capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]

    found = json.loads(done.stdout.splitlines()[-1])
    print(f"watched again {found['seconds']:.1f} s after its node died")
    assert found["moved"]
    assert found["step"] == 9
    assert found["same_orders"]
    assert found["incidents"] == [["r:1", 8]]
    assert found["steps_seen"] == 9
    assert found["restarts"] == 1
    assert found["seconds"] < 60
