# SPDX-License-Identifier: Apache-2.0
"""Orders for a run that is followed by its log and dumps by PrecisionDebugger: its config.json is switched, its dumps are taken over."""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.core.report.plain import receipt_to_plain
from sentinel.core.report.revive import order_from_plain
from sentinel.errors import SettingsError
from sentinel.records import CaptureReceipt
from sentinel.storage.run_folders import run_slug

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sentinel.records import CaptureOrder
    from sentinel.sinks.msprobe_config import MsprobeSwitch

STEPS_WAITED = 10
"""Steps of the log within which a dump must appear; msprobe looks at its file every 3 s."""
SECONDS_WAITED = 30.0
"""And so many seconds, for runs whose steps are short."""
_STEP = re.compile(r"^step(\d+)$")
_RANK = re.compile(r"^(?:rank(\d+)|proc\d+)$")


@dataclass
class _Going:
    """The order that is being obeyed."""

    order: CaptureOrder
    folder: Path
    since_step: int
    since: float
    off: bool = False


class AttachedCaptures:
    """Obeys one order at a time; the others wait in the daemon's replies.

    Args:
        switch: of the script's debugger.
        stage: what its dumps are dumps of.
        first_step: training step that msprobe's step 0 is.
    """

    def __init__(self, switch: MsprobeSwitch, stage: str, first_step: int = 1) -> None:
        self.stage = stage
        self._switch = switch
        self._first = first_step
        self._going: _Going | None = None
        self._done: set[str] = set()

    def take(self, reply: Mapping[str, Any], step: int) -> list[dict[str, Any]]:
        """Obey what a reply orders, at `step`; return the records that tell of it."""
        told = self.look(step)
        cancelled = set(reply.get("cancelled") or ())
        if self._going is not None and self._going.order.id in cancelled:
            told += self._end(self._going, "cancelled", "taken back")
        root = str((reply.get("settings") or {}).get("dump_root") or "")
        for plain in reply.get("orders") or ():
            order = order_from_plain(plain)
            if self._going is None and order.id not in self._done and root:
                told += self._begin(order, Path(root), step)
        return told

    def look(self, step: int, *, last: bool = False) -> list[dict[str, Any]]:
        """Take over what was dumped; give up after a while. `last`: nothing more will come."""
        going = self._going
        if going is None:
            return []
        wanted = going.order.last_step - going.order.first_step + 1
        there = _steps(going.folder)
        # The newest folder may still be written to.
        whole = there if last or going.off else there[:-1]
        if len(whole) >= wanted and not going.off:
            self._switch.off()
            going.off = True
        if len(whole) >= wanted or last:
            return self._finished(going, whole[:wanted])
        if step - going.since_step > STEPS_WAITED and time.monotonic() - going.since > SECONDS_WAITED:
            return self._finished(going, whole)
        return []

    def close(self, step: int) -> list[dict[str, Any]]:
        """Leave the script's file as it was found, dumping off; return what is still to be told."""
        return self.look(step, last=True)

    def _begin(self, order: CaptureOrder, root: Path, step: int) -> list[dict[str, Any]]:
        if self.stage not in order.stages:
            self._done.add(order.id)
            return [_receipt(order, "refused", f"this run dumps {self.stage} only")]
        folder = root / f".msprobe_{run_slug(order.id)}"
        going = self._going = _Going(order, folder, step, time.monotonic())
        try:
            self._switch.on(folder, level=order.level, task=order.task, modules=order.modules)
        except SettingsError as error:
            return self._end(going, "failed", str(error))
        return []

    def _finished(self, going: _Going, steps: list[tuple[int, Path]]) -> list[dict[str, Any]]:
        if not steps:
            why = f"nothing was dumped: does the running debugger use {self._switch.path}, and call start(), stop() and step()?"
            return self._end(going, "failed", why)
        root = going.folder.parent
        paths, ranks, size = [], set(), 0
        for number, folder in steps:
            target = root / f"step_{number + self._first}" / self.stage
            for rank in sorted(folder.iterdir()):
                match = _RANK.match(rank.name)
                if match is None:
                    continue
                place = target / "step0" / f"rank{match[1] or 0}"
                shutil.rmtree(place, ignore_errors=True)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(rank, place)
                ranks.add(int(match[1] or 0))
                size += sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
            paths.append(str(target))
        numbers = [number + self._first for number, _ in steps]
        why = f"steps as msprobe counts them, its step 0 taken for step {self._first}; what they cost in time is not known"
        wanted = going.order.last_step - going.order.first_step + 1
        outcome = "complete" if len(steps) == wanted else "partial"
        more = {"first_step": numbers[0], "last_step": numbers[-1], "stages": [self.stage], "ranks": sorted(ranks)}
        return self._end(going, outcome, why, paths=paths, bytes=size, **more)

    def _end(self, going: _Going, outcome: str, why: str, **more: Any) -> list[dict[str, Any]]:
        self._done.add(going.order.id)
        self._going = None
        if not going.off:
            try:
                self._switch.off()
            except SettingsError as error:
                why = f"{why}; {error}"
        shutil.rmtree(going.folder, ignore_errors=True)
        return [_receipt(going.order, outcome, why, **more)]


def _steps(folder: Path) -> list[tuple[int, Path]]:
    """Return (msprobe's step, folder) of what holds a readable dump, in order."""
    found = []
    for place in folder.iterdir() if folder.is_dir() else ():
        match = _STEP.match(place.name)
        if match is not None and any(_readable(file) for file in place.glob("*/dump.json")):
            found.append((int(match[1]), place))
    return sorted(found)


def _readable(file: Path) -> bool:
    try:
        return bool(json.loads(file.read_text(encoding="utf-8")).get("data"))
    except (OSError, ValueError, AttributeError):
        return False


def _receipt(order: CaptureOrder, outcome: str, why: str, **more: Any) -> dict[str, Any]:
    nothing = CaptureReceipt(order.first_step, order.last_step, (), (), (), 0, 0.0, outcome, why)
    return {
        "t": "receipt",
        "at": time.time(),
        "capture": order.id,
        "receipt": receipt_to_plain(replace(nothing, **more)),
    }
