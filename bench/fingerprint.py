# SPDX-License-Identifier: Apache-2.0
"""`sentinel fingerprint`: hashing a model beside `sha256sum` and `b3sum` on the same disk, a second look, and without weights.

The files are taken out of the page cache before each turn, as they are when a run is about to begin.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sentinel.sources.weights import model_facts

GIGABYTES = float(os.environ.get("BENCH_MODEL_GB", "4"))
SHARDS = 8
ROUNDS = 3
_CHUNK = 1 << 24


def run() -> list[dict]:
    """Return one row a number; `b3sum` is left out where it is not installed."""
    with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as name:
        folder = Path(name) / "model"
        size = write_model(folder) / 1e9
        lookers = {"sentinel": sentinel_hashes, "sha256sum": peer_hashes}
        if shutil.which("b3sum"):
            lookers["b3sum"] = b3sum
        spent: dict[str, list[float]] = {name: [] for name in lookers}
        for number in range(ROUNDS):
            # In turn, so that a busy machine hurts all.
            for one in list(lookers)[:: -1 if number % 2 else 1]:
                evict(folder)
                spent[one].append(timed(lambda one=one: lookers[one](folder)))
        assert sentinel_hashes(folder) == peer_hashes(folder)
        cache = Path(name) / "hashes.json"
        model_facts(folder, cache=cache)
        again = min(timed(lambda: model_facts(folder, cache=cache)) for _ in range(5))
        bare = min(timed(lambda: fingerprint(Path(name))) for _ in range(3))
    speed = {one: size / min(seconds) for one, seconds in spent.items()}
    what = f"model of {size:.1f} GB in {SHARDS} shards, from the disk"
    rows = [{"name": f"{what}: {one}", "value": value, "unit": "GB/s", "limit": None} for one, value in speed.items()]
    rows += [
        {
            "name": f"{what}: share of what {one} reaches",
            "value": 100 * speed["sentinel"] / speed[one],
            "unit": "%",
            "limit": 80.0,
            "at_least": True,
        }
        for one in speed
        if one != "sentinel"
    ]
    return [
        *rows,
        {"name": f"{what}: second look", "value": again, "unit": "s", "limit": 0.2},
        {"name": "sentinel fingerprint without weights, process start included", "value": bare, "unit": "s", "limit": 3.0},
    ]  # fmt: skip


def write_model(folder: Path) -> int:
    """Write shards as a 15 GB model has them, only smaller; return their bytes."""
    folder.mkdir(parents=True)
    numbers = random.Random(7)
    block = numbers.randbytes(_CHUNK)
    total = 0
    for shard in range(SHARDS):
        path = folder / f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        count = max(1, int(GIGABYTES * 1e9 / SHARDS / _CHUNK))
        header = json.dumps(
            {"w": {"dtype": "BF16", "shape": [count * _CHUNK // 2], "data_offsets": [0, count * _CHUNK]}}
        )
        with path.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header.encode())
            for number in range(count):
                file.write(number.to_bytes(8, "little") + block[8:])
        total += path.stat().st_size
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    return total


def sentinel_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each shard, as a fingerprint has them."""
    files = model_facts(folder)["files"]
    assert isinstance(files, dict)
    return {name: entry["sha256"] for name, entry in files.items() if name.endswith(".safetensors")}


def peer_hashes(folder: Path) -> dict[str, str]:
    """The same by coreutils, one process a core."""
    command = shutil.which("sha256sum")
    assert command is not None
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    words = ["xargs", "-P", str(os.cpu_count()), "-n", "1", command]
    done = subprocess.run(words, input="\n".join(names), cwd=folder, capture_output=True, text=True, check=True)
    return {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()}


def b3sum(folder: Path) -> None:
    """Another hash, which uses every core by itself."""
    subprocess.run(["b3sum", *sorted(map(str, folder.glob("*.safetensors")))], capture_output=True, check=True)


def evict(folder: Path) -> None:
    """Take the files out of the page cache."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fingerprint(folder: Path) -> None:
    """The verb, in a process of its own."""
    command = [sys.executable, "-m", "sentinel", "fingerprint", "-o", str(folder / "side.json")]
    subprocess.run(command, capture_output=True, check=True)


def timed(call) -> float:
    """Seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
