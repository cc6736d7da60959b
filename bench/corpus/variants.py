# SPDX-License-Identifier: Apache-2.0
"""The engine without one of its parts, or with wider limits, on the same runs: what each part is worth, and what was tried instead."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from bench.corpus import crossed, limits
from sentinel.cli.evaluation import to_plain
from sentinel.cli.scoring import Options, evaluated, judged
from sentinel.core.engine import EngineSettings
from sentinel.daemon.metric_catalogue import load_catalogue
from sentinel.sinks.json_text import to_text

SHIPPED = "as shipped"
WITHOUT = {
    SHIPPED: (),
    "without the e-detector": ("e_detector",),
    "the e-detector instead of windows of several steps": ("departure", "drift"),
    "without both: hard rules, spikes and single limits": ("departure", "drift", "e_detector"),
}
"""Variant -> detectors that do not look."""
WIDER = {"limits of windows 0.8 times": 0.8, "limits of windows 1.3 times": 1.3, "limits of windows 1.6 times": 1.6}


def score(corpora: list[Path], processes: int) -> dict[str, list[dict[str, object]]]:
    """Variant -> rows of the score, each group with limits that were measured without it."""
    groups = limits.measured(corpora, load_catalogue())
    plain = EngineSettings()
    found = {}
    for name in (*WITHOUT, *WIDER):
        jobs = crossed.jobs(corpora, groups, Options(), wider=WIDER.get(name, 1.0))
        looking = tuple(one for one in plain.detectors if one not in WITHOUT.get(name, ()))
        everything = judged(jobs, processes, settings=replace(plain, detectors=looking))
        document = json.loads(to_text(to_plain(evaluated(name, everything), details=False)))
        found[name] = document["rows"]
    return found
