# SPDX-License-Identifier: Apache-2.0
"""In what two baselines differ. Names, times and the order of runs do not count; contents do."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli.baseline_making import content_hash
from sentinel.storage.dump_tree import DUMP_FILE, rank_folder
from sentinel.storage.fingerprint import flatten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from sentinel.daemon.references import Material
    from sentinel.records import ReferenceRun


def compare(a: Material, b: Material) -> dict[str, Any]:
    """Return the differences, in the form of `sentinel baseline diff --json`."""
    keys_a, keys_b = _metrics(a), _metrics(b)
    difference: dict[str, Any] = {
        "metrics": {"only_in_a": sorted(keys_a - keys_b), "only_in_b": sorted(keys_b - keys_a)},
        "runs": _compare_runs(a, b),
        "dumps": _compare_maps(_dump_hashes(a), _dump_hashes(b)),
        "rollouts": _compare_maps(_rollout_hashes(a), _rollout_hashes(b)),
        "fingerprint": _compare_fingerprints(a.fingerprint, b.fingerprint),
    }
    same = not difference["fingerprint"] and not any(
        listed for part in ("metrics", "runs", "dumps", "rollouts") for listed in difference[part].values()
    )
    return {"same": same, **difference}


def print_difference(console: Console, a: str, b: str, difference: Mapping[str, Any]) -> None:
    """Print the differences for people."""
    if difference["same"]:
        console.print(f"{a} and {b} hold the same")
        return
    for part in ("metrics", "runs", "dumps", "rollouts"):
        for where, listed in difference[part].items():
            for entry in listed:
                console.print(f"{part}, {where.replace('_', ' ')}: {_said(entry)}")
    for entry in difference["fingerprint"]:
        console.print(f"fingerprint {entry['key']}: {entry['a']} in a, {entry['b']} in b")


def _said(entry: object) -> str:
    return ", ".join(f"{k} {v}" for k, v in entry.items()) if isinstance(entry, dict) else str(entry)


def _metrics(material: Material) -> set[str]:
    return {key for run in material.runs for reading in run.readings for key in reading.metrics}


def _compare_runs(a: Material, b: Material) -> dict[str, list[Any]]:
    """Match runs by content; what is left over by source, and say at which step those first differ."""
    left = {(content_hash(run), run.twin): run for run in a.runs}
    right = {(content_hash(run), run.twin): run for run in b.runs}
    rest_a = {run.source: run for key, run in left.items() if key not in right}
    rest_b = {run.source: run for key, run in right.items() if key not in left}
    common = sorted(rest_a.keys() & rest_b.keys())
    return {
        "only_in_a": sorted(rest_a.keys() - rest_b.keys()),
        "only_in_b": sorted(rest_b.keys() - rest_a.keys()),
        "changed": [
            {"source": source, "first_step": _first_difference(rest_a[source], rest_b[source])} for source in common
        ],
    }


def _first_difference(a: ReferenceRun, b: ReferenceRun) -> int | None:
    """Return the first step that one has and the other has not, or has otherwise; None where only the kind differs."""
    steps_a, steps_b = _by_step(a), _by_step(b)
    differing = (place[0] for place in steps_a.keys() | steps_b.keys() if steps_a.get(place) != steps_b.get(place))
    return min(differing, default=None)


def _by_step(run: ReferenceRun) -> dict[tuple[int, int, str], str]:
    # As text, because NaN is not equal to itself.
    return {(r.step, r.attempt, r.kind): repr(sorted(r.metrics.items())) for r in run.readings}


def _compare_maps(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, list[str]]:
    return {
        "only_in_a": sorted(a.keys() - b.keys()),
        "only_in_b": sorted(b.keys() - a.keys()),
        "changed": sorted(key for key in a.keys() & b.keys() if a[key] != b[key]),
    }


def _dump_hashes(material: Material) -> dict[str, str]:
    """Return a hash of each golden dump's statistics, without the paths that msprobe writes beside them."""
    found = {}
    for dump in material.dumps:
        for rank in dump.ranks:
            content = json.loads((Path(dump.path) / rank_folder(rank) / DUMP_FILE).read_bytes())
            statistics = json.dumps(content.get("data"), sort_keys=True)
            found[f"step_{dump.step}/{dump.stage}/rank{rank}"] = hashlib.sha256(statistics.encode()).hexdigest()
    return found


def _rollout_hashes(material: Material) -> dict[str, str]:
    if material.rollouts is None:
        return {}
    files = (path for path in sorted(material.rollouts.rglob("*")) if path.is_file())
    return {
        path.relative_to(material.rollouts).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def _compare_fingerprints(a: Mapping[str, object] | None, b: Mapping[str, object] | None) -> list[dict[str, object]]:
    flat_a, flat_b = flatten(dict(a or {})), flatten(dict(b or {}))
    return [
        {"key": key, "a": flat_a.get(key), "b": flat_b.get(key)}
        for key in sorted(flat_a.keys() | flat_b.keys())
        if flat_a.get(key) != flat_b.get(key)
    ]
