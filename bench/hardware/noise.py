# SPDX-License-Identifier: Apache-2.0
"""How far the norms of two healthy dumps part, by class of module and direction: the GPU's golden one and one of this CPU.

`python -m bench.hardware.noise NAME TARGET GOLDEN [--steps 4,5]` reads two trees `step_<N>/<stage>/step0/rank0` and adds a table to
data/noise.json. Give only steps whose rows agree, as `sentinel triage` says.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from pathlib import Path

from sentinel.sources.msprobe_dump import read_dump

RESULT = Path(__file__).parent / "data" / "noise.json"


def class_of(name: str) -> str:
    """`Module.model.layers.0.mlp.Qwen2MLP.forward.0` -> `Qwen2MLP`; sharded engines prefix it with FSDP."""
    parts = name.split(".")
    return parts[-3].removeprefix("FSDP") if len(parts) > 3 else name


def noise(target: Path, golden: Path, steps: list[int]) -> list[dict]:
    """One row for each stage, direction and class of module."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for step in steps:
        one, other = read_dump(target, step=step), read_dump(golden, step=step)
        for stage in sorted(set(one.stages) & set(other.stages)):
            mine = {(row.name, row.position): row for row in one.stages[stage][0]}
            theirs = {(row.name, row.position): row for row in other.stages[stage][0]}
            for key in mine.keys() & theirs.keys():
                a, b = mine[key].norm, theirs[key].norm
                if a is None or b is None or not b or not math.isfinite(a - b) or mine[key].shape != theirs[key].shape:
                    continue
                found[stage, mine[key].direction, class_of(key[0])].append(abs(a - b) / abs(b))
    return [
        {
            "stage": stage, "direction": direction, "class": kind, "rows": len(values),
            "median": statistics.median(values), "p99": sorted(values)[min(len(values) - 1, int(0.99 * len(values)))],
            "largest": max(values), "equal": sum(v == 0 for v in values) / len(values),
        }
        for (stage, direction, kind), values in sorted(found.items())
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("target", type=Path)
    parser.add_argument("golden", type=Path)
    parser.add_argument("--steps", required=True)
    args = parser.parse_args()
    known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    known[args.name] = noise(args.target, args.golden, [int(step) for step in args.steps.split(",")])
    RESULT.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    for row in known[args.name]:
        print(row)


if __name__ == "__main__":
    main()
