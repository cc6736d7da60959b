# SPDX-License-Identifier: Apache-2.0
"""What is known of clean pairs of dumps: the calibration that comes with Sentinel."""

from __future__ import annotations

import importlib.resources
import json
from functools import cache

from sentinel.core.triage.calibration import Calibration, calibration_from_plain


@cache
def shipped() -> Calibration:
    """The calibration that `bench/triage_calibration.py` measured; docs/triage.md states the procedure."""
    text = importlib.resources.files("sentinel").joinpath("data/triage_calibration.json").read_text(encoding="utf-8")
    return calibration_from_plain(json.loads(text))
