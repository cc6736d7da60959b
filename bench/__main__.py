# SPDX-License-Identifier: Apache-2.0
"""`python -m bench [NAME...] [--json FILE]`: run the benchmarks and print every number beside its limit or peer.

Exit code 1 when a number misses its limit. Timings depend on the machine and on what else it does: compare rows of
one run, not rows of two.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

# In order of cost; `live` runs real verl jobs and takes most of the time.
PARTS = (
    "trainer",
    "wakeups",
    "verdict",
    "engine",
    "parsing",
    "storage",
    "fingerprint",
    "daemon",
    "chaos",
    "rollout",
    "triage",
    "triage_speed",
    "cycles",
    "hardware",
    "live",
    "captures",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="NAME", help=f"which of {', '.join(PARTS)}; all by default")
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    args = parser.parse_args()
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    rows, failed = [], []
    for part in args.parts or PARTS:
        if importlib.util.find_spec(f"bench.{part}") is None:
            print(f"{part}: not there", file=sys.stderr)
            continue
        print(f"... {part}", file=sys.stderr, flush=True)
        began = time.monotonic()
        made = [{"part": part, **row} for row in importlib.import_module(f"bench.{part}").run()]
        rows += made
        show(made)
        failed += [row for row in made if missed(row)]
        print(f"... {part} took {time.monotonic() - began:.0f} s\n", file=sys.stderr, flush=True)
    if args.json:
        machine = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "python": sys.version.split()[0]}
        Path(args.json).write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    for row in failed:
        print(f"MISSED {row['part']}: {row['name']}: {row['value']} {row['unit']}, limit {row['limit']}")
    return 1 if failed else 0


def missed(row: dict) -> bool:
    """A row misses its limit when it lies above it; rows that are better the larger say `at_least`."""
    value, limit = row.get("value"), row.get("limit")
    if limit is None or value is None:
        return False
    return value < limit if row.get("at_least") else value > limit


def show(rows: list[dict]) -> None:
    for row in rows:
        value = "not measured" if row.get("value") is None else f"{row['value']:.4g} {row['unit']}"
        limit = "" if row.get("limit") is None else f"  limit {'>=' if row.get('at_least') else '<='} {row['limit']:g}"
        mark = "MISSED" if missed(row) else ""
        peer = f"  ({row['peer']})" if row.get("peer") else ""
        print(f"{row['part']:9} {row['name']:72} {value:>16}{limit} {mark}{peer}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
