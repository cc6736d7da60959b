# SPDX-License-Identifier: Apache-2.0
"""`sentinel evaluate SET` of dump pairs whose faulty module is known: answers of triage by evidence, beside msprobe's own.

A set is a directory or zip with an `index.json`: `[{"target", "golden", "evidence", "module", "direction", "fault", ...}]`, where
target and golden are paths of step folders in it. `evidence` says what the dump shows at the true place: clean, strong, marginal, nothing,
nonfinite, hidden. `bench/triage_pairs.py` makes such sets.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import warnings
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import SettingsError, UnreadableDump

if TYPE_CHECKING:
    from rich.console import Console

INDEX = "index.json"
ANSWERS = ("right", "parent", "wrong", "silent")
"""The true module; the module around it or inside it; another one; none."""
WANTED_SILENT = frozenset({"clean", "nothing"})
ORDER = ("strong", "nonfinite", "marginal", "nothing", "clean", "hidden")

Pair = Mapping[str, Any]
Answer = tuple[str | None, str | None]
"""Module and direction; None and None for silence."""
Method = Callable[[Pair, Path], Answer]


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
        methods: dict[str, Method] = {"Sentinel": _ours, **_peers()}
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


def _peers() -> dict[str, Method]:
    """What msprobe says, where it is installed: the first row of its table that is not `pass`, and its first difference."""
    import importlib.util

    there = importlib.util.find_spec("msprobe") is not None
    return {"msprobe compare": _msprobe, "msprobe compare -da": _first_difference} if there else {}


def _msprobe(pair: Pair, folder: Path) -> Answer:
    import csv

    from msprobe.pytorch.compare.pt_compare import pt_compare

    target, golden = (next((folder / pair[side]).rglob("dump.json")) for side in ("target", "golden"))
    asked = {"npu_path": str(target), "bench_path": str(golden), "is_print_compare_log": False}
    with tempfile.TemporaryDirectory() as out:
        with _quiet():
            pt_compare(asked, out)
        for table in Path(out).glob("*.csv"):
            with table.open(encoding="utf-8") as stream:
                for row in csv.DictReader(stream):
                    if row.get("Result", "pass") != "pass":
                        return _module(row["NPU Name"]), None
    return None, None


def _first_difference(pair: Pair, folder: Path) -> Answer:
    from msprobe.core.compare.find_first.analyzer import DiffAnalyzer

    with tempfile.TemporaryDirectory() as out:
        # It raises on what it cannot align, which is an answer of nothing.
        with contextlib.suppress(Exception), _quiet():
            DiffAnalyzer(str(folder / pair["target"]), str(folder / pair["golden"]), out).analyze()
        for file in Path(out).glob("diff_analyze_*.json"):
            for nodes in json.loads(file.read_text(encoding="utf-8")).values():
                for node in nodes:
                    return _module(str(node.get("op_name", ""))), None
    return None, None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without msprobe's progress bars, and without the warnings of the libraries it uses."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


def _module(name: str) -> str:
    """The module path in a row name of msprobe's."""
    from sentinel.sources.msprobe_dump import split_name

    head = name
    for mark in (".input.", ".output.", ".parameters.", ".parameters_grad.", ".input_args.", ".kwargs."):
        head = head.partition(mark)[0]
    split = next(filter(None, map(split_name, (head, f"{head}.0", f"{head}.forward.0"))), None)
    return split[0] if split else head
