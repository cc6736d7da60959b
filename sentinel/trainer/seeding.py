# SPDX-License-Identifier: Apache-2.0
"""msprobe's `seed_all(mode=True)` at the start of each worker, when SENTINEL_SEED_ALL asks for it.

The guide puts the call at the head of the worker's file. Here it runs right after that file was executed, which is
before any worker is made and before any random number is drawn. What became of it is kept, so that each rank can say
so. Without msprobe, or when it fails, the worker goes on unseeded and says why.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from sentinel.trainer.after_import import AfterImport
from sentinel.trainer.footprint import ProcessFootprint
from sentinel.trainer.fuse import attempt, log

# Read from verl 0.6 to 0.9.1: one of them is imported by every process that holds a model.
WORKER_MODULES = ("verl.workers.engine_workers", "verl.workers.fsdp_workers", "verl.workers.megatron_workers")
SEED = 1234
"""msprobe's default, so that a baseline that was made by hand after the guide has the same."""


class Seeding:
    """Whether this process was seeded; at most once."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {"called": False, "why": "SENTINEL_SEED_ALL is not set"}

    def prepare(self, environment: Mapping[str, str], finder: AfterImport) -> None:
        """Wait for the worker's file, if the environment asks for seeds."""
        if environment.get("SENTINEL_SEED_ALL", "") in ("", "0"):
            return
        self.said = {"called": False, "why": "no worker's file was imported yet"}
        for name in WORKER_MODULES:
            finder.watch(name, self.on_import)

    def on_import(self, _module: ModuleType) -> None:
        """Seed, once; never raises."""
        if self.said.get("called") or "failed" in self.said:
            return
        footprint = ProcessFootprint()
        failure = attempt(_seed_all)
        # The import leaves a stub of tensorflow behind, which other libraries would take for the real one.
        attempt(footprint.restore)
        if failure is None:
            self.said = {"called": True, "mode": True, "seed": SEED}
        else:
            why = f"{type(failure).__name__}: {failure}"
            self.said = {"called": False, "failed": True, "why": why}
            log.warning("Sentinel: seed_all(mode=True) could not be called: %s. Training is not affected.", why)


def _seed_all() -> None:
    from msprobe.pytorch import seed_all

    functools.partial(seed_all, seed=SEED, mode=True)()


SEEDING = Seeding()
