# SPDX-License-Identifier: Apache-2.0
"""Sentinel's trainer side switched on and off step by step in one verl run, and the time of every step.

Loaded in a run's processes by VERL_USE_EXTERNAL_MODULES. Writes to BENCH_TOGGLE_FILE one line a step:
`{"step", "at", "on", "inside"}`: when the step's metrics were logged (seconds of a steady clock, before Sentinel saw them),
whether Sentinel took them, and the seconds that the trainer's thread spent inside Sentinel until the next step's log.
Steps of one run, rather than runs in turn: start-up, clocks and memory layout differ from run to run by more than 1 %. Steps
differ too, by the length of their texts: so two runs replay the same rollouts, and what one watches the other does not (BENCH_TOGGLE_PHASE is 0 or 1).
"""

from __future__ import annotations

import functools
import json
import os
import time

import wrapt

SAVED = 25
"""The rows are written every so many steps, in watched and in unwatched steps alike, and at the end."""
FIRST = 6
"""Steps before this one are always watched and not counted: connecting, warming up."""


def watched(step: int, phase: int) -> bool:
    """Whether Sentinel sees this step."""
    return step < FIRST or (step - FIRST) % 2 == phase


class Clock:
    """The times of one trainer process."""

    def __init__(self, phase: int) -> None:
        self.phase = phase
        self.rows: list[dict] = []
        self.inside = 0.0

    @property
    def on(self) -> bool:
        """Whether Sentinel sees the step that was logged last."""
        return not self.rows or self.rows[-1]["on"]

    def logged(self, step: int) -> None:
        """A new row; the one before gets what was spent inside."""
        if self.rows:
            self.rows[-1]["inside"] = self.inside
        self.inside = 0.0
        row = {"step": step, "at": time.perf_counter(), "on": watched(step, self.phase), "inside": 0.0}
        self.rows.append(row)
        if step % SAVED == 0:
            self.write()

    def write(self) -> None:
        """Write all rows, the last one without its time inside."""
        with open(os.environ["BENCH_TOGGLE_FILE"], "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in self.rows)


def install(module) -> None:
    """Wrap the three calls that a trainer makes of `Session`."""
    clock = Clock(int(os.environ.get("BENCH_TOGGLE_PHASE", "0")))
    session = module.Session

    def timed(method):
        @functools.wraps(method)
        def call(self, *args):
            if method.__name__ == "step_logged":
                clock.logged(args[0])
            if not clock.on:
                return None
            began = time.perf_counter()
            try:
                return method(self, *args)
            finally:
                clock.inside += time.perf_counter() - began

        return call

    for name in ("step_logged", "boundary", "step_over"):
        setattr(session, name, timed(getattr(session, name)))
    finished = session.finished

    def finish(self):
        clock.write()
        return finished(self)

    session.finished = finish


if os.environ.get("BENCH_TOGGLE_FILE"):
    wrapt.register_post_import_hook(install, "sentinel.trainer.session")
