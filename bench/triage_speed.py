# SPDX-License-Identifier: Apache-2.0
"""What triage costs beside `msprobe compare` and its in-process `pt_compare`, on the same pairs in the same run, and its memory.

The pairs are grown out of a real dump: an L0 one of 28 layers, and a mix one of 50,000 entries; one side is rounded otherwise, as on other
hardware, so that nearly no number is the same on both.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import operator
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from sentinel.cli.triage_peers import msprobe_table
from sentinel.daemon.triaging import triage_paths

ROOT = Path(__file__).parent.parent
LAYERS, MIX_ENTRIES, BIG_BYTES = 28, 50_000, 200_000_000


def run() -> list[dict]:
    """Return one row a number; `limit` is the most, or with `at_least` the least, that is accepted."""
    return [*_speed(), *_memory()]


def _row(name: str, value: float, unit: str, limit: float | None = None, peer: str | None = None) -> dict:
    return {"name": name, "value": value, "unit": unit, "limit": limit, "peer": peer}


def many_layers(folder: Path, *, entries: int | None = None, layers: int = LAYERS) -> Path:
    """A dump of that many layers (or, at level mix, of about that many entries), grown out of a real one."""
    source = "mix" if entries else "l0"
    with zipfile.ZipFile(ROOT / "tests" / "data" / "dumps.zip") as archive:
        found = json.loads(archive.read(f"{source}/step0/rank0/dump.json"))
        parents = json.loads(archive.read(f"{source}/step0/rank0/construct.json"))
    layer = {
        name: entry
        for name, entry in found["data"].items()
        if ".layers.0." in name or (entries and not name.startswith("Module."))
    }
    copies = layers if entries is None else max(1, entries // max(1, len(layer)))
    data, inside = {}, {}
    for name, entry in found["data"].items():
        if name not in layer:
            data[name], inside[name] = entry, parents.get(name)
    for number in range(copies):
        for name, entry in layer.items():
            new = _numbered(name, number)
            data[new] = entry
            inside[new] = _numbered(parents[name], number) if parents.get(name) else None
    folder.mkdir(parents=True)
    (folder / "dump.json").write_text(json.dumps({**found, "data": data}))
    (folder / "construct.json").write_text(json.dumps(inside))
    (folder / "stack.json").write_text(json.dumps({str(i): [[name], []] for i, name in enumerate(data)}))
    return folder


def _numbered(name: str, number: int) -> str:
    if name.startswith("Module."):
        return name.replace(".layers.0.", f".layers.{number}.")
    head, call, kind = name.rsplit(".", 2)
    return f"{head}.{int(call) + 1000 * number}.{kind}"


def rounded(folder: Path) -> Path:
    """The dump with every number of its activations and gradients off by up to one unit of fp32, as other hardware rounds.

    A number that stands in several places (an output is the next input) is off in all of them alike.
    """
    found = json.loads((folder / "dump.json").read_text())
    for entry in found["data"].values():
        _round({field: value for field, value in entry.items() if field != "parameters"})
    (folder / "dump.json").write_text(json.dumps(found))
    return folder


def _round(value: object) -> None:
    if isinstance(value, dict) and "Norm" in value:
        for key in ("Max", "Min", "Mean", "Norm"):
            if isinstance(value[key], float):
                value[key] *= 1 + (hash(value[key]) % 3 - 1) * 2.0**-23
    elif isinstance(value, (dict, list)):
        for below in value.values() if isinstance(value, dict) else value:
            _round(below)


def _speed() -> list[dict]:
    rows = []
    with tempfile.TemporaryDirectory() as base:
        for title, entries, limit in (
            ("28 layers, L0", None, 1.0),
            (f"mix of {MIX_ENTRIES} entries", MIX_ENTRIES, 5.0),
        ):
            target, golden = (
                many_layers(Path(base) / f"{title[:2]}{side}" / "rank0", entries=entries) for side in "ab"
            )
            rows += _beside_msprobe(title, limit, rounded(target), golden, Path(base) / f"out{title[:2]}")
    return rows


def _beside_msprobe(title: str, limit: float, target: Path, golden: Path, out: Path) -> list[dict]:
    """One pair, judged in turn by Sentinel and msprobe: in this process, and each as its command."""
    ours = lambda: triage_paths(str(target), str(golden))  # noqa: E731
    assert ours().verdict == "same"
    rounds = [_timed(ours) for _ in range(3)]
    seconds, cpu = min(rounds), min(rounds, key=operator.itemgetter(1))[1]
    rows = [
        _row(f"triage of a pair: {title}", seconds[0], "s", limit),
        _row(f"the same, CPU: {title}", cpu, "s", limit),
    ]
    verb = [sys.executable, "-c", "import sys; from sentinel.cli import main; sys.exit(main())", "triage"]
    verb = [*verb, str(target), str(golden)]
    command = [sys.executable, "-m", "msprobe.msprobe", "compare", "-tp", str(target / "dump.json")]
    command = [*command, "-gp", str(golden / "dump.json"), "-o", str(out)]
    mine = min(_timed(lambda: _ran(verb)) for _ in range(2))[0]
    rows.append(_row(f"sentinel triage, the command: {title}", mine, "s"))
    if importlib.util.find_spec("msprobe") is None:
        return rows
    peer = min(_timed(lambda: msprobe_table(target, golden)) for _ in range(2))
    whole = _timed(lambda: _ran(command))[0]
    assert list(out.glob("*.csv")), "msprobe compare wrote no table"
    return [
        *rows,
        _row(f"pt_compare in process: {title}", peer[0], "s", None, "pt_compare"),
        _row(f"msprobe compare, the command: {title}", whole, "s", None, "msprobe compare"),
        {**_row(f"times faster than pt_compare, in process: {title}", peer[0] / seconds[0], "", 1.0), "at_least": True},
        {**_row(f"times faster than msprobe compare, commands: {title}", whole / mine, "", 5.0), "at_least": True},
    ]


def _ran(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, check=True, cwd=ROOT)


def _timed(action: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall, and of this process's CPU."""
    before, cpu = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        action()
    return time.perf_counter() - before, time.process_time() - cpu


def _memory() -> list[dict]:
    """The peak of a process that reads and searches one dump of 200 MB."""
    with tempfile.TemporaryDirectory() as base:
        folder = many_layers(Path(base) / "rank0", entries=MIX_ENTRIES)
        size = (folder / "dump.json").stat().st_size
        many_layers(Path(base) / "big" / "rank0", entries=int(MIX_ENTRIES * BIG_BYTES / size))
        big = Path(base) / "big" / "rank0" / "dump.json"
        child = [sys.executable, "-m", "bench.triage_speed", str(big)]
        answer = subprocess.run(child, capture_output=True, check=True, text=True, cwd=ROOT).stdout
        found = json.loads(answer)
        note = f"{big.stat().st_size / 1e6:.0f} MB dump.json"
    return [
        _row(f"peak memory over a {note}", found["peak"] / 1e9, "GB", 1.0),
        _row(f"seconds to read and search a {note}", found["seconds"], "s"),
    ]


def _measure(path: str) -> None:
    before = time.perf_counter()
    triage_paths(path)
    seconds = time.perf_counter() - before
    # Not ru_maxrss, which a child inherits from the process that started it.
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]
    print(json.dumps({"peak": int(peak) * 1024, "seconds": seconds}))


if __name__ == "__main__":
    _measure(sys.argv[1])
