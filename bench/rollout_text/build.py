# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.rollout_text.build MODEL -o FILE`: the labelled set of rollout text, the same for the same seed.

A row: `{"split": "tune" | "held", "kind", "label", "output"}`. Generated rows of the two splits share no word list and
no seed; rows of the tiny model (MODEL is its folder, `sentinel.demo.assets` makes it) differ in prompts and seed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

from bench.rollout_text.kinds import BROKEN, HEALTHY, Maker
from bench.rollout_text.model_rows import model_rows
from bench.rollout_text.words import HELD, TUNE, Vocabulary

SPLITS: dict[str, tuple[Vocabulary, int]] = {"tune": (TUNE, 20261129), "held": (HELD, 77)}
ROWS = 50
"""Of each kind and split; four times as many of the tiny model's kinds together."""
MODEL_LABELS = {"": "ok", "rolled": "garbled", "random": "garbled", "nan": "empty"}
"""Token 0 of the tiny model is an end marker, so that its NaN is an empty answer."""


def rows(model: Path | None) -> Iterator[dict[str, str]]:
    """Every row of the set."""
    kinds: dict[str, tuple[str, Maker]] = {**{name: ("ok", maker) for name, maker in HEALTHY.items()}, **BROKEN}
    for split, (vocabulary, seed) in SPLITS.items():
        for name, (label, maker) in kinds.items():
            rng = random.Random(f"{seed} {name}")
            for _ in range(ROWS):
                yield {"split": split, "kind": name, "label": label, "output": maker(rng, vocabulary)}
        for kind, output in model_rows(model, ROWS, seed) if model else ():
            name = f"model_{kind or 'sound'}"
            yield {"split": split, "kind": name, "label": MODEL_LABELS[kind], "output": output}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    lines = "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows(args.model))
    args.output.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
    print(f"{lines.count(chr(10))} rows, {len(lines)} bytes, {args.output.stat().st_size} packed")


if __name__ == "__main__":
    main()
