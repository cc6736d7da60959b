# SPDX-License-Identifier: Apache-2.0
"""Numbers of the readers: parsing a 50 MB log, event files beside TensorBoard's reader, the cost of following.

Peers. None of the releases of `rl-insight` on PyPI (0.1.0 to 0.3.0) holds a parser of the numbers in a verl log: its
`verl_log_rules` look for keywords in the first 2 MiB. So the reader that people write for such logs stands in, a search
for `step:` and one regular expression for all `key:number`; it knows no colour codes, cuts, wraps, restarts or warnings.
Both run in processes of their own, and CPU time is compared.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZE = 50_000_000
KEYS = [f"actor/metric_{n}/mean" for n in range(60)] + [f"timing_s/part_{n}" for n in range(60)]
NOISE = (
    "(WorkerDict pid=9) INFO:2031-02-03 04:05:06,789:queue size 3 of 9 - all well\n",
    "[response] so we compute 3 + 4 = 7 and step by step the answer is 12\n",
    "\x1b[36m(TaskRunner pid=41207)\x1b[0m \rTraining Progress:  12%|#         | 1/8 [01:16<05:43, 38.11s/it]\n",
)


def run() -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        return [*consoles(root), *json_lines(root), *event_files(root), *following(root)]


# ---------------------------------------------------------------------------------------------- text


def consoles(root: Path) -> list[dict]:
    log, small = root / "console.log", root / "small.log"
    write_console(log, SIZE)
    write_console(small, SIZE // 10)
    ours, plain = in_a_process("ours", log), in_a_process("plain", log)
    assert ours["steps"] == plain["steps"]
    return [
        row("console, 50 MB: throughput", ours["bytes"] / ours["seconds"] / 1e6, "MB/s"),
        row("console: times faster than the plain reader", plain["seconds"] / ours["seconds"], "x", 1.0, at_least=True),
        row("console: peak memory, 50 MB over 5 MB log", ours["peak"] / in_a_process("ours", small)["peak"], "x", 1.1),
        {
            "name": "console: times faster than rl-insight's log parser",
            "value": None,
            "unit": "x",
            "peer": "it has none",
        },
    ]


def json_lines(root: Path) -> list[dict]:
    log = root / "metrics.jsonl"
    write_jsonl(log, SIZE)
    ours, plain = in_a_process("ours", log), in_a_process("plain_json", log)
    assert ours["steps"] == plain["steps"]
    return [
        row("JSON lines, 50 MB: throughput", ours["bytes"] / ours["seconds"] / 1e6, "MB/s"),
        row(
            "JSON lines: times faster than json.loads of every line",
            plain["seconds"] / ours["seconds"],
            "x",
            1.0,
            at_least=True,
        ),
    ]


def write_console(path: Path, size: int) -> None:
    rng, step = random.Random(1), 0
    with path.open("w") as stream:
        while stream.tell() < size:
            step += 1
            stream.writelines(rng.choices(NOISE, k=20))
            values = " - ".join(f"{key}:{rng.gauss(0, 1)!r}" for key in KEYS)
            stream.write(
                f"\x1b[36m(TaskRunner pid=41207)\x1b[0m step:{step} - {values} - training/global_step:{step}\n"
            )


def write_jsonl(path: Path, size: int) -> None:
    rng, step = random.Random(1), 0
    with path.open("w") as stream:
        while stream.tell() < size:
            step += 1
            stream.write(json.dumps({"step": step, "data": {key: rng.gauss(0, 1) for key in KEYS}}) + "\n")


def ours(path: Path) -> int:
    """Recognises and reads a file, and keeps nothing of it."""
    from sentinel.sources.formats import make_reader, portions, recognise

    with path.open("rb") as stream:
        reader = make_reader(recognise(stream, path).name)
        stream.seek(0)
        return sum(len(reader.feed(chunk)) for chunk in portions(stream)) + len(reader.finish())


def plain(path: Path) -> int:
    """The reader that people write."""
    found = re.compile(r"([\w/@.()-]+):(?:np\.\w+\()?(-?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf))")
    steps = 0
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            match = re.search(r"\bstep:(\d+) - ", line)
            if match:
                steps += bool({key: float(value) for key, value in found.findall(line, match.end())})
    return steps


def plain_json(path: Path) -> int:
    with path.open() as stream:
        return sum(bool({key: float(value) for key, value in json.loads(line)["data"].items()}) for line in stream)


def in_a_process(name: str, path: Path) -> dict:
    """CPU seconds of the best of three, peak memory (KiB) and number of steps of one of the readers above."""
    root = str(Path(__file__).parents[1])
    command = [sys.executable, "-m", "bench.parsing", name, str(path)]
    runs = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout)
        for _ in range(3)
    ]
    return min(runs, key=lambda done: done["seconds"])


def measure(name: str, path: Path) -> dict:
    import resource

    read = {"ours": ours, "plain": plain, "plain_json": plain_json}[name]
    importlib.import_module("sentinel.sources.formats")  # imports are not parsing
    began = time.process_time()
    steps = read(path)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"steps": steps, "seconds": seconds, "peak": peak, "bytes": path.stat().st_size}


# ---------------------------------------------------------------------------------------------- event files


def event_files(root: Path) -> list[dict]:
    from sentinel.sources.tensorboard import EventReader

    path = root / "events.out.tfevents.1.host"
    per_step, steps = 120, 2000
    tags = [f"actor/metric_{n}/mean" for n in range(per_step)]
    more = write_events(path, tags, steps)
    data = path.read_bytes()

    def whole() -> None:
        reader = EventReader()
        assert len(reader.feed(data)) + len(reader.finish()) == steps

    reader = EventReader()
    reader.feed(data)
    reader.settle()
    added = []
    for portion in more:
        began = time.perf_counter()
        reader.feed(portion)
        assert len(reader.settle()[0].metrics) == per_step
        added.append(time.perf_counter() - began)
    ours_seconds = best_of(3, whole)
    rows = [
        row("event files: 240,000 scalars read whole", ours_seconds, "s"),
        row("event files: 120 new scalars, median", sorted(added)[len(added) // 2] * 1000, "ms", 1.0),
    ]
    if importlib.util.find_spec("tensorboard") is None:
        return [
            *rows,
            {
                "name": "event files: times faster than EventAccumulator",
                "value": None,
                "unit": "x",
                "peer": "peer not installed",
            },
        ]
    theirs = best_of(1, lambda: accumulate(path))
    return [
        *rows,
        row("event files: times faster than EventAccumulator", theirs / ours_seconds, "x", 3.0, at_least=True),
    ]


def write_events(path: Path, tags: list[str], steps: int) -> list[bytes]:
    """Writes the file; returns further steps to be appended."""
    rng = random.Random(2)

    def step_of(step: int) -> bytes:
        return b"".join(scalar(step, tag, rng.gauss(0, 1)) for tag in tags)

    with path.open("wb") as stream:
        for step in range(steps):
            stream.write(step_of(step))
    return [step_of(steps + n) for n in range(50)]


def scalar(step: int, tag: str, value: float) -> bytes:
    import struct

    from sentinel.sources.tensorboard import masked_crc

    name = tag.encode()
    inner = b"\x0a" + bytes([len(name)]) + name + b"\x15" + struct.pack("<f", value)
    told, rest = b"", step
    while rest > 0x7F:
        told, rest = told + bytes([rest & 0x7F | 0x80]), rest >> 7
    told = b"\x10" + told + bytes([rest]) if step else b""
    body = b"\x0a" + bytes([len(inner)]) + inner
    data = b"\x09" + struct.pack("<d", 1.9e9 + step) + told + b"\x2a" + bytes([len(body)]) + body
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def accumulate(path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(path), size_guidance={"scalars": 0})
    accumulator.Reload()


def best_of(times: int, work) -> float:
    def once() -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    return min(once() for _ in range(times))


# ---------------------------------------------------------------------------------------------- following


def following(root: Path) -> list[dict]:
    return [idle(root), *delays(root)]


def idle(root: Path) -> dict:
    """CPU of following 100 files in which nothing happens, in a process of its own with the loop's real thread."""
    folder = root / "idle"
    folder.mkdir()
    for n in range(100):
        (folder / f"run{n}.log").write_text(f"step:1 - actor/loss:{n}.5 - training/global_step:1\n")
    command = [sys.executable, "-m", "bench.parsing", "idle", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=str(Path(__file__).parents[1]))
    return row("following 100 idle files, share of one core", float(done.stdout) * 100, "%", 5.0)


def measure_idle(folder: Path, seconds: float = 6.0) -> float:
    import threading

    from sentinel.sources import Follower, follow

    followers = {path.name: Follower(path) for path in sorted(folder.iterdir())}
    stop = threading.Event()
    thread = threading.Thread(target=follow, args=(followers, lambda *_: None, stop))
    thread.start()
    time.sleep(1.0)
    before = time.process_time()
    time.sleep(seconds)
    spent = time.process_time() - before
    stop.set()
    thread.join()
    return spent / seconds


def delays(root: Path) -> list[dict]:
    """Time from a written line to its reading, in the default loop, with and without the system's notices."""
    return [
        row(f"from a written line to its reading, p99, {how}", delay(root / f"{how}.log", notices=notices), "s", 0.5)
        for how, notices in (("with notices", True), ("polling only", False))
    ]


def delay(path: Path, *, notices: bool, lines: int = 100) -> float:
    import threading

    from sentinel.sources import Follower, follow

    path.write_text("(TaskRunner pid=7) begins\n")
    arrived: dict[int, float] = {}
    stop = threading.Event()

    def take(_: str, result) -> None:
        arrived.update((reading.step, time.perf_counter()) for reading in result.readings)

    thread = threading.Thread(target=follow, args=({"run": Follower(path)}, take, stop), kwargs={"notices": notices})
    thread.start()
    rng, written = random.Random(3), {}
    with path.open("a") as stream:
        for step in range(1, lines + 1):
            time.sleep(rng.uniform(0.01, 0.25))
            stream.write(f"(TaskRunner pid=7) step:{step} - actor/loss:0.5 - training/global_step:{step}\n")
            stream.flush()
            written[step] = time.perf_counter()
    time.sleep(1.0)
    stop.set()
    thread.join()
    assert len(arrived) == lines
    return sorted(arrived[step] - written[step] for step in written)[int(lines * 0.99) - 1]


def row(name: str, value: float, unit: str, limit: float | None = None, *, at_least: bool = False) -> dict:
    return {"name": name, "value": value, "unit": unit, "limit": limit, "at_least": at_least}


if __name__ == "__main__":
    if sys.argv[1] == "idle":
        print(measure_idle(Path(sys.argv[2])))
    else:
        print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
