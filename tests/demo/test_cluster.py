# SPDX-License-Identifier: Apache-2.0
"""A private cluster is there, is nobody else's, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sentinel.demo.cluster import ClusterError, clean_environment, private_cluster, start

pytest.importorskip("ray")

ASK = "import ray; ray.init(address='auto', log_to_driver=False); print(ray.cluster_resources().get('NPU'))"


def processes_of(folder):
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or ()):
            found.append(process)
    return found


def gone(folder, seconds=30):
    until = time.monotonic() + seconds
    while processes_of(folder) and time.monotonic() < until:
        time.sleep(0.2)
    return not processes_of(folder)


@pytest.mark.live
@pytest.mark.timeout(180)
def test_a_cluster_answers_those_who_know_its_token_and_ends_with_the_block():
    with private_cluster(accelerators=3) as cluster:
        answer = subprocess.run(
            [sys.executable, "-c", ASK],
            env=cluster.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert processes_of(cluster.folder)

    assert answer.stdout.strip() == "3.0", answer.stderr
    assert gone(cluster.folder)
    assert not cluster.folder.exists()


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_killed_holder_takes_the_cluster_with_it():
    with private_cluster() as cluster:
        os.kill(cluster.holder.pid, signal.SIGKILL)

        assert gone(cluster.folder)


@pytest.mark.timeout(60)
def test_a_cluster_that_does_not_start_says_why(tmp_path, monkeypatch):
    package = tmp_path / "elsewhere" / "ray"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise OSError('no room for shared memory')")
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{Path.cwd()}")

    with pytest.raises(ClusterError, match="no room for shared memory"):
        start(tmp_path, {}, 1)


def test_a_users_own_cluster_and_run_do_not_reach_the_demo(monkeypatch):
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "SENTINEL_RUN", "SENTINEL_DISABLED", "VERL_FILE_LOGGER_PATH"):
        monkeypatch.setenv(name, "the user's")
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")

    environment = clean_environment()

    assert "the user's" not in environment.values()
    assert environment["LANG"] == "zh_CN.UTF-8"
