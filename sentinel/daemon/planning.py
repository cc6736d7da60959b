# SPDX-License-Identifier: Apache-2.0
"""From a run's own settings to what watches it: plan, engine and baseline.

Whatever is wrong with the settings or the baseline is a remark that people see; the run is watched all the same, by
the rules that need none. It is then never called healthy.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping  # the journal reads these annotations at run time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel import settings as settings_module
from sentinel.core.engine import Engine, EngineSettings
from sentinel.errors import SentinelError, SettingsError
from sentinel.settings import Settings
from sentinel.storage.run_folders import run_slug

if TYPE_CHECKING:
    from sentinel.core.catalogue import Catalogue
    from sentinel.core.engine import WatchState
    from sentinel.records import Reference

ATTACHED = "the run is followed by its log: no trainer listens, nothing can be dumped"
_READY_KEPT = 2
BASELINE_SECONDS = 8.0
"""How long reading a baseline may take; the trainer's side gives an answer up after 10 s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The settings of one run, as its trainer sent them: the daemon reads nothing of a run from its own environment."""

    path: str | None = None
    text: str | None = None
    attached: bool = False
    """True: a log is followed, no trainer listens, nothing can be dumped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How a run is watched."""

    config: Config = field(default_factory=Config)
    baseline: str | None = None
    """Absolute path of the baseline; None where the settings name none."""
    regime: str = "auto"
    engine: EngineSettings = field(default_factory=EngineSettings)
    wait_seconds: float = 0.05
    dump_root: str = ""
    """Absolute folder that the run's dumps go to."""
    min_free_bytes: int = 268435456
    flight_recorder_bytes: int = 0
    keep_dump_bytes: int = 53687091200
    signature: str = ""
    """Changes when the settings or the baseline's file change."""
    remarks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """Everything that one attempt of a run is watched with."""

    plan: Plan
    engine: Engine
    reference: Reference | None
    remarks: Mapping[str, str]
    """Code -> sentence."""
    blank: WatchState
    """The engine's state before the first step; of no run in particular."""


class Planner:
    """Turns settings into what watches a run.

    Args:
        defaults: the daemon's own settings, for a run that brings none.
        catalogue: what metric keys mean.
    """

    def __init__(self, defaults: Settings, catalogue: Catalogue) -> None:
        self._defaults = defaults
        self._catalogue = catalogue
        self._ready: dict[object, tuple[Engine, Reference, WatchState]] = {}
        """The newest baselines that were read, for further runs of the same recipe, and for a restart with many."""

    def renew(self, defaults: Settings) -> None:
        """Take other settings of the daemon for runs that begin from now on and bring none."""
        self._defaults = defaults

    def plan(self, run: str, config: Config) -> Plan:
        """Return how `run` is to be watched; never raises for what users wrote. Cheap: the baseline is not read."""
        remarks: dict[str, str] = {}
        chosen = self._settings(config, remarks)
        if chosen.baseline is None:
            remarks["no_baseline"] = "no baseline is named: only the rules that need none apply"
        return Plan(
            config=config,
            baseline=chosen.baseline,
            regime=chosen.regime,
            engine=_obeyed(chosen.engine, config),
            wait_seconds=chosen.trainer.wait_seconds,
            dump_root=self._dump_root(run, chosen),
            min_free_bytes=chosen.trainer.min_free_bytes,
            flight_recorder_bytes=chosen.trainer.flight_recorder_bytes,
            keep_dump_bytes=chosen.trainer.keep_dump_bytes,
            signature=_signature(config, chosen.baseline),
            remarks=remarks,
        )

    def prepare(self, plan: Plan, *, read: bool = True) -> Prepared:
        """Return what watches by `plan`; reads the baseline, unless nothing is to be judged (`read` is false)."""
        question = (plan.signature, plan.baseline, plan.regime, repr(plan.engine))
        if read and question in self._ready:
            engine, known, blank = self._ready[question]
            return Prepared(plan=plan, engine=engine, reference=known, remarks=plan.remarks, blank=blank)
        remarks = dict(plan.remarks)
        engine = Engine(plan.engine, self._catalogue)
        reference = _read_baseline(plan.baseline, remarks) if read and plan.baseline is not None else None
        try:
            blank = engine.initial("", reference, plan.regime)
        except Exception as error:  # noqa: BLE001  # a baseline that breaks the engine must not end the daemon
            remarks["baseline_unreadable"] = f"the run is watched WITHOUT a baseline: {type(error).__name__}: {error}"
            reference, blank = None, engine.initial("", None, plan.regime)
        if reference is not None:
            self._ready[question] = (engine, reference, blank)
            while len(self._ready) > _READY_KEPT:
                self._ready.pop(next(iter(self._ready)))
        return Prepared(plan=plan, engine=engine, reference=reference, remarks=remarks, blank=blank)

    def _settings(self, config: Config, remarks: dict[str, str]) -> Settings:
        if config.text is None:
            return self._defaults
        where = config.path or "the run's settings"
        try:
            return settings_module.parse(config.text, where)
        except SettingsError as error:
            remarks["settings"] = f"the run's settings are not used: {error}"
            return Settings()

    def _dump_root(self, run: str, chosen: Settings) -> str:
        root = chosen.trainer.dump_root or str(self._defaults.home_folder / "dumps")
        return str(Path(root).expanduser().absolute() / run_slug(run))


def _obeyed(settings: EngineSettings, config: Config) -> EngineSettings:
    """Return the engine's settings, without captures where nobody could obey an order."""
    if not config.attached:
        return settings
    return replace(settings, capture=replace(settings.capture, enabled=False, why_not=ATTACHED))


def _signature(config: Config, baseline: str | None) -> str:
    try:
        about = os.stat(baseline) if baseline else None  # noqa: PTH116
    except (OSError, ValueError):
        about = None
    stamp = (about.st_mtime_ns, about.st_size) if about else ()
    return hashlib.sha256(repr((config, stamp)).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _read_baseline(path: str, remarks: dict[str, str]) -> Reference | None:
    """Read the baseline on a thread of its own: a file system that hangs must not hold up the other runs."""
    found: list[Reference | str] = []

    def read() -> None:
        try:
            # Here, because bundles need a library of 30 MB, and an idle daemon none.
            from sentinel.daemon.references import load_reference

            found.append(load_reference(path))
        except (SentinelError, OSError) as error:
            found.append(str(error))
        except Exception as error:  # noqa: BLE001  # a damaged file of any kind must not end the daemon
            found.append(f"{path}: {type(error).__name__}: {error}")

    thread = threading.Thread(target=read, name="sentinel-baseline", daemon=True)
    thread.start()
    thread.join(BASELINE_SECONDS)
    result: Any = found[0] if found else f"{path}: it could not be read within {BASELINE_SECONDS:.0f} s"
    if isinstance(result, str):
        remarks["baseline_unreadable"] = f"the run is watched WITHOUT a baseline: {' '.join(result.split())}"
        return None
    reference: Reference = result
    return reference
