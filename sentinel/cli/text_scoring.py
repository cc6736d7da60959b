# SPDX-License-Identifier: Apache-2.0
"""`sentinel evaluate SET` of labelled rollout text: rows that are judged right, by split and kind, and files called broken."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console

    from sentinel.storage.text_set import LabelledText

FILE_ROWS = 25
"""Rows of one kind that are judged as one file."""


def score_texts(rows: Iterable[LabelledText]) -> dict[str, Any]:
    """The part `text` of the document of `sentinel evaluate`."""
    from sentinel.core.rollout.text import OK, judge_text

    kinds: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for row in rows:
        kinds[row.split, row.kind].append((row.label, judge_text(row.output).label))
    splits = sorted({split for split, _ in kinds})
    by_split = {
        split: _share([pair for (its, _), pairs in kinds.items() if its == split for pair in pairs]) for split in splits
    }
    healthy = {key: pairs for key, pairs in kinds.items() if pairs[0][0] == OK}
    files = [verdict for pairs in healthy.values() for verdict in _file_verdicts([found for _, found in pairs])]
    return {
        "rows": sum(map(len, kinds.values())),
        "right": by_split,
        "healthy_files": len(files),
        "healthy_files_called_broken": sum(verdict != "healthy" for verdict in files),
        "kinds": [
            {
                "split": split,
                "kind": kind,
                "label": pairs[0][0],
                "rows": len(pairs),
                "right": sum(wanted == found for wanted, found in pairs),
                "found": dict(Counter(found for _, found in pairs)),
            }
            for (split, kind), pairs in kinds.items()
        ],
    }


def _share(pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    from sentinel.core.detect.evaluate import share

    found = share(sum(wanted == label for wanted, label in pairs), len(pairs))
    return {"value": found.value, "low": found.low, "high": found.high}


def _file_verdicts(labels: Sequence[str]) -> list[str]:
    from sentinel.core.rollout.rows import Tally

    parts = [labels[at : at + FILE_ROWS] for at in range(0, len(labels), FILE_ROWS)]
    return [Tally(counts=Counter(part)).verdict() for part in parts]


def show_texts(text: Mapping[str, Any], console: Console) -> None:
    """The same for people."""
    from rich.table import Table

    for split, found in text["right"].items():
        console.print(f"{split}: {found['value']:.2%} of rows right ({found['low']:.2%} to {found['high']:.2%})")
    broken, files = text["healthy_files_called_broken"], text["healthy_files"]
    console.print(f"{broken} of {files} healthy files of {FILE_ROWS} rows called broken")
    table = Table()
    for name in ("kind", "label", *text["right"]):
        table.add_column(name)
    kinds: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for row in text["kinds"]:
        kinds[row["kind"]][row["split"]] = row
    for kind, splits in kinds.items():
        label = next(iter(splits.values()))["label"]
        cells = [f"{splits[s]['right']}/{splits[s]['rows']}" if s in splits else "" for s in text["right"]]
        table.add_row(kind, label, *cells)
    console.print(table)
