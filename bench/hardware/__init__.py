# SPDX-License-Identifier: Apache-2.0
"""The whole path across two kinds of hardware: a GPU's baseline, runs elsewhere, what was said of them, and its cost.

`python -m bench hardware` reads what the runs left and writes the tables of docs/hardware.md and docs/safety.md; the runs themselves
are made by deploy/gpu_baseline/record.py (the GPU), `bench.hardware.planted` and `bench.hardware.overhead` (this machine) and
`bench.chaos_training`.
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"


def run() -> list[dict]:
    """Write the tables, and return one row a number."""
    from . import calibration, page, seeds

    found = page.results()
    page.put(DOCS / "hardware.md", "planted", page.planted_table(found))
    page.put(DOCS / "hardware.md", "healthy", page.healthy_table(found))
    again = seeds.judged()
    page.put(DOCS / "hardware.md", "seeds", seeds.table(again))
    rows = calibration.table()
    page.put(DOCS / "hardware.md", "calibration", page.calibration_table(rows))
    (HERE / "data" / "calibration.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    page.put(DOCS / "hardware.md", "noise", page.noise_table())
    page.put(DOCS / "hardware.md", "overhead", page.overhead_table())
    page.put(DOCS / "hardware.md", "captures", page.capture_costs())
    chaos = HERE / "data" / "chaos.json"
    runs = json.loads(chaos.read_text(encoding="utf-8")) if chaos.exists() else []
    page.put(DOCS / "safety.md", "chaos", page.chaos_table(runs))
    return [*page.rows(found), *page.crossed_rows(found, again), *page.overhead_rows(), *page.chaos_rows(runs)]
