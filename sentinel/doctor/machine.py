# SPDX-License-Identifier: Apache-2.0
"""What Sentinel needs of the machine: Python, its home, disk, a path that msprobe accepts, a port, a clock, memory."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from sentinel.doctor.check import FAIL, PASS, UNKNOWN, WARN, Check
from sentinel.doctor.installation import dependencies, python_version, switches
from sentinel.errors import SentinelError
from sentinel.settings import Settings

_GIB = 1 << 30
LEAST_FREE = 256 << 20
"""Below it a capture is refused (`sentinel.trainer.probe`)."""
GOOD_FREE = 10 * _GIB
"""An L0 dump of a 7B actor, three stages and eight ranks, is a few hundred MB a step; ten incidents fit."""
# msprobe refuses every other character, often with an empty message.
_SAFE_PATH = re.compile(r"[a-zA-Z0-9_.:/-]+")
_SAMPLE_SHM = 2 * _GIB
_FILES = 4096
_BUILT = 1_767_225_600
"""2026-01-01: a clock before it is wrong, whatever else it says."""


def checks(settings: Settings) -> tuple[Check, ...]:
    """Return the checks of this machine."""
    home = settings.home_folder
    dumps = Path(settings.trainer.dump_root) if settings.trainer.dump_root else home / "dumps"
    return (
        python_version(sys.version_info[:3]),
        dependencies(),
        switches(os.environ),
        home_folder(home),
        free_space(dumps),
        dump_path(dumps),
        journal(home),
        port(settings.http.host, settings.http.port),
        baseline(settings),
        clock(time.time(), home),
        shared_memory(Path("/dev/shm")),  # noqa: S108  # the machine's shared memory itself
        open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        proxy(),
    )


def home_folder(home: Path) -> Check:
    """Journal, incidents and dumps are kept there."""
    title = "Home folder"
    place = home
    while not place.exists():
        place = place.parent
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".sentinel_doctor_") as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return Check(
            id="home",
            title=title,
            status=FAIL,
            found=f"{home}: {error.strerror or error}",
            fix="make it writable, or set `home:` in sentinel.yaml to a folder that is",
        )
    made = "" if place == home else " (will be made)"
    return Check(id="home", title=title, status=PASS, found=f"{home}{made} can be written")


def free_space(folder: Path) -> Check:
    """A full disk ends captures; training goes on."""
    free = shutil.disk_usage(_existing(folder)).free
    found = f"{free / _GIB:.1f} GiB free at {folder}"
    status = FAIL if free < LEAST_FREE else WARN if free < GOOD_FREE else PASS
    fix = "" if status == PASS else "free some, or set `trainer.dump_root:` to a larger disk that every node sees"
    return Check(id="disk", title="Space for dumps", status=status, found=found, fix=fix)


def dump_path(folder: Path) -> Check:
    """Of the dump folder's name."""
    title = "Characters of the dump path"
    if _SAFE_PATH.fullmatch(str(folder)):
        return Check(id="dump_path", title=title, status=PASS, found=str(folder))
    bad = sorted(set(re.sub(r"[a-zA-Z0-9_.:/-]", "", str(folder))))
    return Check(
        id="dump_path",
        title=title,
        status=WARN,
        found=f"{folder} holds {' '.join(map(repr, bad))}, which msprobe refuses; dumps take a detour over {tempfile.gettempdir()}",
        fix="set `trainer.dump_root:` to a path of letters, digits and _ . : / -",
    )


def journal(home: Path) -> Check:
    """Of earlier runs: what the daemon goes on from."""
    title = "Journal of earlier runs"
    try:
        from sentinel.storage.run_folders import journalled_runs

        runs = journalled_runs(home)
    except ImportError as error:
        return Check(id="journal", title=title, status=UNKNOWN, found=str(error), fix="see dependencies")
    except OSError as error:
        return Check(
            id="journal", title=title, status=FAIL, found=f"{home}: {error.strerror or error}", fix="make it readable"
        )
    broken = [f"{run}: {why}" for run, folder in runs.items() if (why := _unreadable(folder))]
    if broken:
        fix = "use the Sentinel that wrote it, or move the run's folder away: its watch then begins anew"
        return Check(id="journal", title=title, status=FAIL, found="; ".join(broken), fix=fix)
    return Check(
        id="journal", title=title, status=PASS, found=f"{len(runs)} runs, all readable" if runs else "none yet"
    )


def _unreadable(journal_folder: Path) -> str:
    """Return why a journal cannot be read; empty where it can."""
    from sentinel.storage.journal_reading import read_entries

    try:
        for _ in read_entries(journal_folder):
            pass
    except (SentinelError, OSError) as error:
        return str(error)
    return ""


def port(host: str, number: int) -> Check:
    """Of the HTTP endpoint."""
    title = "Port of the endpoint"
    if number == 0:
        return Check(id="port", title=title, status=PASS, found="0: a free one is taken")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host, number))
    except OSError as error:
        if _is_ours(host, number):
            return Check(id="port", title=title, status=PASS, found=f"{host}:{number} is served by a Sentinel daemon")
        return Check(
            id="port",
            title=title,
            status=WARN,
            found=f"{host}:{number}: {error.strerror or error}",
            fix="set `http.port:` to a free one (below 10002 or above 19999); a daemon that finds it taken uses another and says which",
        )
    return Check(id="port", title=title, status=PASS, found=f"{host}:{number} is free")


def _is_ours(host: str, number: int) -> bool:
    """Whether a Sentinel daemon answers there."""
    where = f"[{host}]" if ":" in host else host
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{where}:{number}/-/healthy", timeout=2) as answer:
            return b"sentinel" in answer.read(4096).lower() or "sentinel" in str(answer.headers).lower()
    except (OSError, ValueError):
        return False


def baseline(settings: Settings) -> Check:
    """The one that the settings name."""
    title = "Baseline"
    if settings.baseline is None:
        return Check(
            id="baseline",
            title=title,
            status=UNKNOWN,
            found="the settings name none: only rules that need no baseline apply",
            fix="record one on the GPU side (SENTINEL_RECORD, `sentinel baseline record`) and name it in `baseline:`",
        )
    try:
        # Here: a bundle needs a library of 30 MB, and the doctor must also work where it is missing.
        from sentinel.daemon.references import load_reference

        reference = load_reference(settings.baseline)
    except ImportError as error:
        return Check(id="baseline", title=title, status=UNKNOWN, found=str(error), fix="see dependencies")
    except (SentinelError, OSError) as error:
        return Check(
            id="baseline", title=title, status=FAIL, found=str(error), fix="record it again, or correct `baseline:`"
        )
    steps = sum(len(run.readings) for run in reference.runs)
    found = f"{settings.baseline}: {len(reference.runs)} runs, {steps} steps, {len(reference.dumps)} golden dumps"
    return Check(id="baseline", title=title, status=PASS, found=found)


def clock(now_seconds: float, home: Path) -> Check:
    """A clock that stands wrong dates incidents wrongly; one that jumps back confuses silence."""
    title = "Clock"
    newest = max((path.stat().st_mtime for path in (home, home / "journal") if path.exists()), default=0.0)
    said = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_seconds))
    if now_seconds < _BUILT or now_seconds < newest - 60:
        found = f"{said}: before {'this version was made' if now_seconds < _BUILT else 'the newest file of the home'}"
        return Check(id="clock", title=title, status=FAIL, found=found, fix="set it (chrony or ntpd)")
    return Check(id="clock", title=title, status=PASS, found=said)


def shared_memory(folder: Path) -> Check:
    """Ray's object store lies there; in a container it is often 64 MiB."""
    title = "Shared memory"
    try:
        size = shutil.disk_usage(folder).total
    except OSError as error:
        return Check(id="shared_memory", title=title, status=UNKNOWN, found=f"{folder}: {error.strerror or error}")
    few = size < _SAMPLE_SHM
    fix = "start the container with --shm-size=8g or more: Ray falls back to disk, and steps get slow" if few else ""
    return Check(
        id="shared_memory",
        title=title,
        status=WARN if few else PASS,
        found=f"{size / _GIB:.1f} GiB at {folder}",
        fix=fix,
    )


def open_files(limit: int) -> Check:
    """Ray opens several files for each worker."""
    few = 0 <= limit < _FILES
    return Check(
        id="open_files",
        title="Limit of open files",
        status=WARN if few else PASS,
        found="no limit" if limit < 0 else str(limit),
        fix="ulimit -n 65536 before Ray is started" if few else "",
    )


def proxy() -> Check:
    """A proxy that also catches loopback breaks Ray, scraping and the status page."""
    title = "Proxy"
    found = urllib.request.getproxies_environment()
    used = [name for name in ("http", "https", "all") if name in found]
    if not used:
        return Check(id="proxy", title=title, status=PASS, found="none")
    if all(urllib.request.proxy_bypass(host) for host in ("127.0.0.1", "localhost")):
        return Check(id="proxy", title=title, status=PASS, found=f"{', '.join(used)}; loopback goes past it")
    return Check(
        id="proxy",
        title=title,
        status=WARN,
        found=f"{', '.join(used)} set, and loopback would go through it too",
        fix="export no_proxy=localhost,127.0.0.1,$(hostname -i) before Ray is started",
    )


def _existing(folder: Path) -> Path:
    """Return the nearest folder that is there."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder
