# SPDX-License-Identifier: Apache-2.0
"""A private Ray cluster on this machine: one process that holds it, ended by closing that process's standard input.

Ray's processes are children of the holder and end with it, even when it is killed. Nothing machine-wide is touched:
own temporary folder, own token file, own port; `ray stop` is never called.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sentinel.errors import SentinelError

START_SECONDS = 90.0
STOP_SECONDS = 30.0

# Quiet, offline, one thread a process: two cores are shared by a dozen of them.
QUIET = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "MSPROBE_LOG_LEVEL": "3",
    "HYDRA_FULL_ERROR": "1",
}
# On a CPU nothing may wake a GPU that happens to be there.
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}
# What would attach a process of the demo to something that is not the demo's.
FOREIGN = (
    "RAY_ADDRESS", "RAY_NAMESPACE", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_JOB_CONFIG_JSON_ENV_VAR",
    "SENTINEL_RUN", "SENTINEL_RECORD", "SENTINEL_ORDERS", "SENTINEL_CONFIG", "SENTINEL_DISABLED", "SENTINEL_SEED_ALL",
    "VERL_FILE_LOGGER_PATH", "VERL_FILE_LOGGER_ROOT", "VERL_USE_EXTERNAL_MODULES", "VERL_PLATFORM", "VERL_DEMO_FAULT",
)  # fmt: skip


class ClusterError(SentinelError):
    """The private Ray cluster did not start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A running private cluster and how to reach it."""

    address: str
    folder: Path
    token_file: Path
    holder: subprocess.Popen[str]

    def environment(self) -> dict[str, str]:
        """The environment in which a process finds this cluster and no other."""
        return {**clean_environment(), **self.access(), "RAY_ADDRESS": self.address}

    def access(self) -> dict[str, str]:
        """What proves to the cluster that a process may join."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token_file)}


def clean_environment(device: str = "cpu") -> dict[str, str]:
    """The environment of this process without what belongs to other clusters and runs, and quiet."""
    kept = {key: value for key, value in os.environ.items() if key not in FOREIGN}
    return kept | QUIET | (HIDDEN if device == "cpu" else {})


@contextmanager
def private_cluster(extra: Mapping[str, str] | None = None, *, accelerators: int = 2) -> Iterator[Cluster]:
    """Start a private cluster and end it afterwards.

    `extra` is added to the environment of every worker; `accelerators` is the number of (pretended) NPUs.
    """
    # Not under TMPDIR: the path of a Unix socket may have 107 characters, and Ray adds about 60.
    folder = Path(tempfile.mkdtemp(prefix="sdemo-", dir="/tmp"))
    cluster = None
    try:
        cluster = start(folder, extra or {}, accelerators)
        yield cluster
    finally:
        if cluster is not None:
            stop(cluster)
        shutil.rmtree(folder, ignore_errors=True)


def start(folder: Path, extra: Mapping[str, str], accelerators: int) -> Cluster:
    """Start the holder and wait for its address."""
    token_file = folder / "auth_token"
    token_file.write_text(secrets.token_hex(32), encoding="utf-8")
    token_file.chmod(0o600)
    environment = {
        **clean_environment(),
        **extra,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_file),
        "RAY_TMPDIR": str(folder),
    }
    with (folder / "holder.log").open("w") as log:
        holder = subprocess.Popen(
            [sys.executable, "-m", "sentinel.demo.cluster", str(folder), str(accelerators)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True,
        )  # fmt: skip
    address = _address(holder)
    if address is not None:
        return Cluster(address=address, folder=folder, token_file=token_file, holder=holder)
    _end(holder)
    tail = (folder / "holder.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    raise ClusterError(f"Ray did not start on this machine: {' '.join(tail) or 'no message'}; try `sentinel doctor`")


def stop(cluster: Cluster) -> None:
    """End the cluster: ask the holder, then kill it; Ray's processes go with it."""
    _end(cluster.holder)


def _address(holder: subprocess.Popen[str]) -> str | None:
    """What the holder says once Ray is up; None if it ended, or was ended, before that."""
    assert holder.stdout is not None
    timer = threading.Timer(START_SECONDS, holder.kill)
    timer.start()
    try:
        for line in holder.stdout:
            if line.startswith("address "):
                return line.split()[1]
        return None
    finally:
        timer.cancel()


def _end(holder: subprocess.Popen[str]) -> None:
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.close()
    try:
        holder.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()
    holder.stdout.close()


def hold(folder: str, accelerators: int) -> None:
    """Be the holder: start Ray, say its address, wait for the end of standard input."""
    import ray

    context = ray.init(
        address="local",
        num_cpus=32,
        resources={"NPU": accelerators},
        include_dashboard=False,
        object_store_memory=300_000_000,
        log_to_driver=False,
        _temp_dir=folder,
    )
    print(f"address {context.address_info['gcs_address']}", flush=True)
    sys.stdin.read()
    ray.shutdown()
    # Also here, for a demo that was killed.
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    hold(sys.argv[1], int(sys.argv[2]))
