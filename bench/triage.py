# SPDX-License-Identifier: Apache-2.0
"""Numbers of triage: how often it is right on the fault sets, beside its peers, and what it costs.

The fault sets (bench/triage_corpus.py) are built once under outputs/triage; golden dumps of an H200 come with the repository.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.triage_score import Case, load, ours, ours_calibrated, score
from sentinel.daemon.triaging import triage_paths

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "outputs" / "triage"
PLANS = tuple(
    f"{family}-{dtype}" for family in ("dense", "tied", "gpt2", "moe", "experts") for dtype in ("fp32", "bf16")
)
EVERY_PEER_PAIR = 4
LAYERS, MIX_ENTRIES, BIG_BYTES = 28, 50_000, 200_000_000
# evidence -> (what is counted, least share of it)
WANTED = {
    "strong": ("right", 0.95),
    "nonfinite": ("right", 1.0),
    "marginal": ("right", 0.6),
    "nothing": ("silent", 1.0),
    "clean": ("silent", 0.98),
}


def run() -> list[dict]:
    """Return one row a number; `limit` is the most, or with `at_least` the least, that is accepted."""
    return [*_scores(), *_speed(), *_memory()]


def _row(name: str, value: float, unit: str, limit: float | None = None, peer: str | None = None) -> dict:
    return {"name": name, "value": value, "unit": unit, "limit": limit, "peer": peer}


def corpus() -> Path:
    """The fault sets; built on the first call, which takes minutes."""
    missing = [plan for plan in PLANS if not (CORPUS / plan / "pairs.json").exists()]
    if missing:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "bench.triage_corpus",
            "build",
            str(CORPUS),
            "--plans",
            ",".join(missing),
        ]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return CORPUS


def h200() -> Path:
    """Golden dumps of the same plans, made on an H200."""
    folder = CORPUS / "h200"
    if not folder.exists():
        with tarfile.open(Path(__file__).parent / "data" / "triage_golden_h200.tgz") as archive:
            archive.extractall(folder, filter="data")
    return folder / "g"


def _scores() -> list[dict]:
    root = corpus()
    own = [case for case in load(root) if case.pair["plan"] in PLANS]
    across = [case for case in load(root, h200()) if case.pair["plan"] in PLANS]
    rows = []
    for where, cases in (("other kernels", own), ("H200 against CPU", across)):
        table, _ = score(cases, root, ours)
        rows += _shares(f"triage, {where}", table)
    table, _ = score(across, root, ours_calibrated)
    rows += _shares("triage with a clean pair, H200 against CPU", table)
    return rows + _peers(across[::EVERY_PEER_PAIR], root)


def _shares(title: str, table: dict[tuple[str, str], Counter], peer: str | None = None) -> list[dict]:
    rows = []
    for evidence, (wanted, least) in WANTED.items():
        counts = table.get((evidence, "all"), Counter())
        total = sum(counts.values())
        if total:
            row = _row(
                f"{title}: {evidence}, {wanted} of {total}",
                counts[wanted] / total,
                "share",
                None if peer else least,
                peer,
            )
            rows.append({**row, "at_least": True})
    return rows


def _peers(cases: list[Case], root: Path) -> list[dict]:
    try:
        from bench.triage_peers import PEERS
    except ImportError:
        return []
    rows = _shares("triage, the peers' pairs", score(cases, root, ours)[0], peer="Sentinel")
    for name, method in PEERS.items():
        rows += _shares(f"{name}, the same pairs", score(cases, root, method)[0], peer=name)
    return rows


def many_layers(folder: Path, *, entries: int | None = None, layers: int = LAYERS) -> Path:
    """A dump of that many layers (or, at level mix, of about that many entries), grown out of a real one."""
    import zipfile

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
            seconds = min(_timed(lambda t=target, g=golden: triage_paths(str(t), str(g))) for _ in range(3))
            rows.append(_row(f"triage of a pair: {title}", seconds, "s", limit))
            with contextlib.suppress(ImportError):
                from sentinel.cli.triage_peers import msprobe_table

                msprobe_table(target, golden)
                peer = _timed(lambda t=target, g=golden: msprobe_table(t, g))
                rows.append(_row(f"pt_compare in process: {title}", peer, "s", None, "pt_compare"))
            command = [
                sys.executable,
                "-m",
                "msprobe.msprobe",
                "compare",
                "-tp",
                str(target / "dump.json"),
                "-gp",
                str(golden / "dump.json"),
                "-o",
                f"{base}/out{title[:2]}",
            ]
            whole = _timed(lambda c=command: subprocess.run(c, capture_output=True, check=False))
            rows.append(_row(f"msprobe compare, the command: {title}", whole, "s", None, "msprobe compare"))
            verb = [
                sys.executable,
                "-c",
                "import sys; from sentinel.cli import main; sys.exit(main())",
                "triage",
                str(target),
                str(golden),
            ]
            rows.append(
                _row(
                    f"sentinel triage, the command: {title}",
                    _timed(lambda c=verb: subprocess.run(c, capture_output=True, check=False, cwd=ROOT)),
                    "s",
                )
            )
    return rows


def _timed(action) -> float:
    before = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        action()
    return time.perf_counter() - before


def _memory() -> list[dict]:
    """The peak of a process that reads and searches one dump of 200 MB."""
    with tempfile.TemporaryDirectory() as base:
        folder = many_layers(Path(base) / "rank0", entries=MIX_ENTRIES)
        size = (folder / "dump.json").stat().st_size
        many_layers(Path(base) / "big" / "rank0", entries=int(MIX_ENTRIES * BIG_BYTES / size))
        big = Path(base) / "big" / "rank0" / "dump.json"
        child = [sys.executable, "-m", "bench.triage", str(big)]
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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak": peak, "seconds": time.perf_counter() - before}))


if __name__ == "__main__":
    os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
    if len(sys.argv) > 1:
        _measure(sys.argv[1])
    else:
        for line in run():
            print(f"{line['name']:90} {line['value']:.4g} {line['unit']} (limit {line['limit']})")
