# SPDX-License-Identifier: Apache-2.0
"""How often triage is right on the fault sets, beside its peers; what it costs is in `triage_speed`.

The fault sets (bench/triage_corpus.py) are built once under outputs/triage; golden dumps of an H200 come with the repository.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

from bench.triage_score import Case, load, ours, ours_calibrated, score

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "outputs" / "triage"
PLANS = tuple(
    f"{family}-{dtype}" for family in ("dense", "tied", "gpt2", "moe", "experts") for dtype in ("fp32", "bf16")
)
EVERY_PEER_PAIR = 4
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
    return _scores()


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
