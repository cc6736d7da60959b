# SPDX-License-Identifier: Apache-2.0
"""What is known of clean pairs of dumps: the calibration that comes with Sentinel, and that of a baseline's own twins."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sentinel.core.triage.calibration import (
    Calibration,
    calibrate,
    calibration_from_plain,
    calibration_to_plain,
    together,
)
from sentinel.errors import BaselineError
from sentinel.records import GoldenDump
from sentinel.sources.msprobe_dump import read_dump


@cache
def shipped() -> Calibration:
    """The calibration that `bench/triage_calibration.py` measured; docs/triage.md states the procedure."""
    text = importlib.resources.files("sentinel").joinpath("data/triage_calibration.json").read_text(encoding="utf-8")
    return calibration_from_plain(json.loads(text))


def learnt(golden: Sequence[GoldenDump], twins: Sequence[GoldenDump]) -> Calibration | None:
    """What the dumps of twins teach beside the golden ones of the same step and stage; None where no two meet.

    Raises:
        UnreadableDump: one of them cannot be read.
    """
    places = {(dump.step, dump.stage): dump.path for dump in golden}
    pairs = [(twin.path, places[twin.step, twin.stage]) for twin in twins if (twin.step, twin.stage) in places]
    if not pairs:
        return None
    return together(calibrate((read_dump(twin).stages, read_dump(other).stages)) for twin, other in pairs)


def stored(calibration: Calibration) -> bytes:
    """The calibration as a bundle holds it."""
    return json.dumps(calibration_to_plain(calibration), separators=(",", ":")).encode()


def restored(content: bytes, path: object) -> Calibration:
    """The calibration that a bundle holds.

    Raises:
        BaselineError: it is none.
    """
    try:
        return calibration_from_plain(json.loads(content))
    except (TypeError, ValueError, RecursionError) as error:
        raise BaselineError(path, f"its calibration of triage is at fault: {error}") from error


def of_baseline(path: Path | str | None) -> Calibration:
    """The shipped calibration, and that of the baseline's own twins where it has one.

    Raises:
        BaselineError: the bundle cannot be used.
    """
    if path is None:
        return shipped()
    from sentinel.storage.bundle import is_bundle, open_bundle  # costs a second, and most pairs need none

    if not Path(path).is_file() or not is_bundle(Path(path)):
        return shipped()
    content = open_bundle(path).calibration()
    return shipped() if content is None else shipped().merged(restored(content, path))
