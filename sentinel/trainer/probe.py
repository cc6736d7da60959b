# SPDX-License-Identifier: Apache-2.0
"""Drives msprobe's PrecisionDebugger in one worker process: one stage, one step, then nothing left of it.

A fresh debugger is constructed for each captured step (30 ms once msprobe is imported) and taken apart afterwards,
because a debugger that stays keeps hooks, wrappers and collectors, and hides every later construction: the run's own
debugger would be ignored. If the run has one, it is set aside and put back untouched.

Failures inside msprobe's hooks would reach the training step. Here they end in the collector: the dump stops, the
step goes on, and the receipt says why.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from sentinel.trainer.backward import QuietBackwardHook
from sentinel.trainer.dump_folder import DEFAULT_MIN_FREE_BYTES, DumpFolder, ProbeError
from sentinel.trainer.footprint import ModelFootprint, ProcessFootprint, forget_exit_handler
from sentinel.trainer.fuse import attempt
from sentinel.trainer.listing import every_module_listed, listed

log = logging.getLogger("sentinel.trainer")

_COLLECTOR_METHODS = (
    "forward_input_data_collect",
    "forward_output_data_collect",
    "forward_data_collect",
    "backward_data_collect",
    "backward_input_data_collect",
    "backward_output_data_collect",
    "params_data_collect",
)


class Probe:
    """One captured step in this process. `open()`, any number of stages, `close()`.

    Args:
        plan: `{"root", "step", "stages", "level", "task", "modules", "min_free_bytes", "expected_bytes"}`.
        models: the torch modules whose stages will be dumped.
    """

    def __init__(self, plan: dict[str, Any], models: list[Any]) -> None:
        self.plan = plan
        self.step = int(plan["step"])
        least = int(plan.get("min_free_bytes") or DEFAULT_MIN_FREE_BYTES)
        self.folder = DumpFolder(
            str(plan["root"]), self.step, least + int(plan.get("expected_bytes") or 0), int(plan.get("rank") or 0)
        )
        self.models = models
        self.stages: dict[str, dict[str, Any]] = {}
        self.broken = ""
        self.opening_seconds = 0.0
        self._inside = False
        self._debugger: Any = None
        self._set_aside: tuple[Any, bool] | None = None
        self._log_levels: list[tuple[Any, int]] = []
        self._process: ProcessFootprint | None = None
        self._hooks: ModelFootprint | None = None
        self._collectors: list[Any] = []
        self._open_hooks: list[QuietBackwardHook] = []
        self._backward_hook: tuple[Any, Any] | None = None

    # ------------------------------------------------------------------ opening

    def open(self) -> None:
        """Construct the debugger.

        Raises:
            ProbeError: the folder is full or cannot be written, msprobe is missing, or the run's own debugger is
                dumping at this moment.
        """
        began = time.perf_counter()
        self.folder.open()
        self._process = ProcessFootprint()
        # torch_npu without CANN raises anything at import, not only ImportError.
        failure = attempt(import_msprobe)
        if failure is not None:
            self._process.restore()
            raise ProbeError(f"msprobe cannot be imported: {type(failure).__name__}: {failure}")
        from msprobe.core.common.runtime import Runtime
        from msprobe.pytorch import PrecisionDebugger

        if Runtime.is_running:
            raise ProbeError("the run's own PrecisionDebugger is dumping in this process")
        self._quieten()
        self._hooks = ModelFootprint(self.models)
        self._set_aside = (PrecisionDebugger._instance, self._take_off_api_wrappers())
        PrecisionDebugger._instance = None
        self._hooks.hide_markers()
        config = os.path.join(self.folder.staging, f"config_{os.getpid()}.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(self._config(), file)
        self._debugger = PrecisionDebugger(config_path=config)
        os.unlink(config)
        self._observe_gradients_quietly()
        self.opening_seconds = time.perf_counter() - began

    def _quieten(self) -> None:
        """Silence the three to five lines that msprobe prints a stage; errors still show."""
        from msprobe.core.common import log as core_log
        from msprobe.core.common.const import MsgConst
        from msprobe.pytorch.common import log as pytorch_log

        for logger in (core_log.logger, pytorch_log.logger):
            self._log_levels.append((logger, logger.level))
            logger.level = max(logger.level, MsgConst.LogLevel.ERROR.value)

    def _observe_gradients_quietly(self) -> None:
        """Keep msprobe's module hooks off the autograd graph; see `backward`."""
        from msprobe.pytorch.dump.module_dump import module_processor

        self._backward_hook = (module_processor, module_processor.BackwardHook)
        module_processor.BackwardHook = functools.partial(
            QuietBackwardHook, self._open_hooks, functools.partial(self._break, "backward")
        )

    def _config(self) -> dict[str, Any]:
        task = str(self.plan.get("task") or "statistics")
        narrowed = [listed(str(name)) for name in self.plan.get("modules") or []]
        options: dict[str, Any] = {"scope": [], "list": narrowed, "data_mode": ["all"]}
        if task == "statistics":
            options["summary_mode"] = "statistics"
        return {
            "task": task,
            "level": str(self.plan.get("level") or "L0"),
            "dump_path": os.path.join(self.folder.staging, "unused"),
            "rank": [],
            "step": [],
            "dump_enable": True,
            task: options,
        }

    @staticmethod
    def _take_off_api_wrappers() -> bool:
        """Return whether the run's own debugger had wrapped the torch API."""
        from msprobe.pytorch.dump.api_dump.api_register import get_api_register

        register = get_api_register()
        if register is None or not getattr(register, "all_api_registered", False):
            return False
        register.restore_all_api()
        return True

    def around(self, stage: str, model: Any, action: Callable[[], Any]) -> Any:
        """Run `action` with the dump of `stage` on; return what it returns, raise only what it raises."""
        end = self.begin(stage, model)
        try:
            return action()
        finally:
            end()

    def begin(self, stage: str, model: Any) -> Callable[[], None]:
        """Switch the dump of `stage` on, and return what switches it off; neither raises."""
        began = time.perf_counter()
        started = self._timed(stage, functools.partial(self._start, stage, model))

        def end() -> None:
            if started:
                self._timed(stage, functools.partial(self._stop, stage))
            entry = self.stages.setdefault(stage, {})
            entry["stage_seconds"] = entry.get("stage_seconds", 0.0) + time.perf_counter() - began

        return end

    def _timed(self, stage: str, action: Callable[[], Any]) -> bool:
        """Do a part of the dump, and count its time as what the dump added to the stage; parts within parts count once."""
        if self._inside:
            return self._guard(stage, action)
        began = time.perf_counter()
        self._inside = True
        try:
            return self._guard(stage, action)
        finally:
            self._inside = False
            entry = self.stages.setdefault(stage, {})
            entry["seconds"] = entry.get("seconds", 0.0) + time.perf_counter() - began

    def _guard(self, stage: str, action: Callable[[], Any]) -> bool:
        if self.broken:
            return False
        failure = attempt(action)
        if failure is not None:
            self._break(stage, failure)
        return failure is None

    def _break(self, stage: str, error: Exception) -> None:
        """Stop dumping for the rest of this capture; say why in the receipt."""
        if not self.broken:
            self.broken = f"{stage}: {type(error).__name__}: {error}"
            log.warning("Sentinel: capture of step %d broke off in %s. Training goes on.", self.step, self.broken)
        runtime = sys.modules.get("msprobe.core.common.runtime")
        if runtime is not None:
            runtime.Runtime.is_running = False

    def _start(self, stage: str, model: Any) -> None:
        path = self.folder.of(stage)
        service = self._debugger.service
        service.config.dump_path = path
        self._contain(service.data_collector, stage)
        with every_module_listed(model):
            self._debugger.start(model)

    def _stop(self, stage: str) -> None:
        for hook in self._open_hooks:
            hook.flush()
        self._open_hooks.clear()
        self._debugger.stop()
        self._debugger.service.reset_status()
        entry = self.stages.setdefault(stage, {})
        entry["calls"] = entry.get("calls", 0) + 1

    def _contain(self, collector: Any, stage: str) -> None:
        """Wrap the collector's methods: what fails inside a hook stops the dump instead of the training step."""
        if collector in self._collectors:
            return
        self._collectors.append(collector)
        for name in _COLLECTOR_METHODS:
            method = getattr(collector, name, None)
            if method is not None:
                setattr(collector, name, self._contained(method, stage))

    def _contained(self, method: Callable[..., Any], stage: str) -> Callable[..., None]:
        @functools.wraps(method)
        def collect(*args: Any, **kwargs: Any) -> None:
            # None of these methods returns anything that msprobe uses.
            self._timed(stage, functools.partial(method, *args, **kwargs))

        return collect

    # ------------------------------------------------------------------ closing

    def close(self) -> dict[str, Any]:
        """Leave the process as found. Return `{"step", "stages", "broken", "bytes", "seconds"}`, seconds added to the step."""
        began = time.perf_counter()
        for action in (self._take_apart, functools.partial(self.folder.place, self.stages)):
            failure = attempt(action)
            if failure is not None:
                modules = self.plan.get("modules") if isinstance(failure, ProbeError) else None
                self._break("closing", ProbeError(f"{failure} of {', '.join(modules)}") if modules else failure)
        return {
            "step": self.step,
            "stages": self.stages,
            "broken": self.broken,
            "bytes": sum(int(entry.get("bytes", 0)) for entry in self.stages.values()),
            "seconds": sum(float(entry.get("seconds", 0.0)) for entry in self.stages.values())
            + self.opening_seconds
            + time.perf_counter()
            - began,
        }

    def _take_apart(self) -> None:
        if self._set_aside is None:
            return
        from msprobe.core.common.runtime import Runtime
        from msprobe.core.dump.hook_manager import BaseHookManager
        from msprobe.pytorch import PrecisionDebugger
        from msprobe.pytorch.dump.api_dump.api_register import get_api_register
        from msprobe.pytorch.dump.module_dump.module_processor import ModuleProcessor

        own, api_was_wrapped = self._set_aside
        self._set_aside = None
        Runtime.is_running = False
        get_api_register().restore_all_api()
        if self._backward_hook is not None:
            module_processor, original = self._backward_hook
            module_processor.BackwardHook = original
        self._open_hooks.clear()
        for handle in BaseHookManager.hook_handle_dict.values():
            if hasattr(handle, "remove"):
                handle.remove()
        BaseHookManager.hook_handle_dict.clear()
        BaseHookManager.reset_status()
        ModuleProcessor.reset_module_stats()
        if self._debugger is not None:
            for collector in {id(c): c for c in (*self._collectors, self._debugger.service.data_collector)}.values():
                forget_exit_handler(collector)
        PrecisionDebugger._instance = own
        if self._hooks is not None:
            self._hooks.restore()
        if self._process is not None:
            self._process.restore()
        if own is not None and api_was_wrapped:
            get_api_register().register_all_api()
        for logger, level in self._log_levels:
            logger.level = level
        self._debugger = None
        self._collectors.clear()


def import_msprobe() -> None:
    """Import it, 2 to 4 s the first time; raises whatever an installation without its device raises."""
    import msprobe.pytorch  # noqa: F401
