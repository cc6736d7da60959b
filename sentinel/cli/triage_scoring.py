# SPDX-License-Identifier: Apache-2.0
"""`sentinel evaluate SET` of dump pairs whose faulty module is known: answers of triage by evidence, beside those of its peers (`triage_peers`).

A set is a directory or zip with an `index.json`: `[{"target", "golden", "evidence", "module", "direction", "fault", ...}]`, where
target and golden are paths of step folders in it. `evidence` says what the dump shows at the true place: clean, strong, marginal, nothing,
nonfinite, hidden. `bench/triage_pairs.py` makes such sets.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli.triage_peers import Answer, Method, Pair, peers
from sentinel.errors import SettingsError, UnreadableDump

if TYPE_CHECKING:
    from rich.console import Console

INDEX = "index.json"
ANSWERS = ("right", "parent", "wrong", "silent")
"""The true module; the module around it or inside it; another one; none."""
WANTED_SILENT = frozenset({"clean", "nothing"})
ORDER = ("strong", "nonfinite", "marginal", "nothing", "clean", "hidden")


def is_pair_set(path: Path) -> bool:
    """Whether a path is a set of dump pairs."""
    if path.is_file():
        return zipfile.is_zipfile(path)
    return (path / INDEX).is_file()


def score_pairs(path: Path, says: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """The part `triage` of the document of `sentinel evaluate`.

    Raises:
        SettingsError: the set's index cannot be read.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = path
        if path.is_file():
            says("unpacking the pairs")
            folder = Path(scratch)
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder)  # names that lead out of the folder are cut by zipfile
        pairs = _index(folder, path)
        says("what clean pairs show")
        methods: dict[str, Method] = {"Sentinel": _ours, **_peers(pairs, folder)}
        tables = {}
        for name, method in methods.items():
            says(f"{name}: {len(pairs)} pairs")
            tables[name] = _table(pairs, folder, method)
    return {
        "pairs": len(pairs),
        "rows": tables.pop("Sentinel"),
        "references": [{"name": name, "rows": rows} for name, rows in tables.items()],
    }


def show_pairs(found: Mapping[str, Any], console: Console) -> None:
    """Print the table."""
    from rich.table import Table

    table = Table(
        "evidence at the true place", "pairs", "who", *ANSWERS, "wanted", title="dump pairs", title_justify="left"
    )
    answers = [("Sentinel", found["rows"]), *((one["name"], one["rows"]) for one in found["references"])]
    for evidence in ORDER:
        for name, rows in answers:
            for row in rows:
                if row["evidence"] == evidence:
                    wanted = f"{row['wanted']['value']:.0%} [{row['wanted']['low']:.0%}, {row['wanted']['high']:.0%}]"
                    table.add_row(evidence, str(row["pairs"]), name, *(str(row[a]) for a in ANSWERS), wanted)
    console.print(table)


def _index(folder: Path, path: Path) -> list[Pair]:
    try:
        found = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        pairs = [{**pair, "target": str(pair["target"]), "golden": str(pair["golden"])} for pair in found]
        return [pair for pair in pairs if pair["evidence"] in ORDER]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{path}: its {INDEX} is no list of pairs with target, golden and evidence: {error}"
        ) from error


def _table(pairs: Sequence[Pair], folder: Path, method: Method) -> list[dict[str, Any]]:
    from sentinel.core.detect.evaluate import share

    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        counts[pair["evidence"]][judged(pair, method(pair, folder))] += 1
    rows = []
    for evidence in sorted(counts, key=ORDER.index):
        found, total = counts[evidence], sum(counts[evidence].values())
        wanted = share(found["silent" if evidence in WANTED_SILENT else "right"], total)
        shares = {"value": wanted.value, "low": wanted.low, "high": wanted.high}
        rows.append({"evidence": evidence, "pairs": total, **{a: found[a] for a in ANSWERS}, "wanted": shares})
    return rows


def judged(pair: Pair, answer: Answer) -> str:
    """Which of `ANSWERS` an answer is; a direction of None is not held against a method."""
    module, direction = answer
    true = pair.get("module")
    if module is None:
        return "silent"
    if true is None:
        return "wrong"
    weight = str((pair.get("fault") or {}).get("kind", "")).startswith("weight")
    # A weight shows in its parameters, or in what it computes.
    fine = {pair.get("direction"), None} | ({"parameters", "forward"} if weight else set())
    if module == true and direction in fine:
        return "right"
    return "parent" if module.startswith(f"{true}.") or str(true).startswith(f"{module}.") else "wrong"


def _ours(pair: Pair, folder: Path) -> Answer:
    from sentinel.daemon.triaging import triage_paths

    target, golden = str(folder / pair["target"]), str(folder / pair["golden"])
    try:
        found = triage_paths(target, None if pair["evidence"] == "nonfinite" else golden)
    except UnreadableDump as error:
        raise SettingsError(f"a dump of the set is at fault: {error}") from error
    return (None, None) if found.first is None else (found.first.module, found.first.direction)


def _peers(pairs: Sequence[Pair], folder: Path) -> dict[str, Method]:
    try:
        return peers(pairs, folder)
    except UnreadableDump as error:
        raise SettingsError(f"a dump of the set is at fault: {error}") from error
