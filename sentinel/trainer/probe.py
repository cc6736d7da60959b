# SPDX-License-Identifier: Apache-2.0
"""Drives msprobe's PrecisionDebugger in one worker process: one stage, one step, then nothing left of it.

A fresh debugger is constructed for each captured step (30 ms once msprobe is imported) and taken apart afterwards,
because a debugger that stays keeps hooks, wrappers and collectors, and hides every later construction: the run's own
debugger would be ignored. If the run has one, it is set aside and put back untouched.

Failures inside msprobe's hooks would reach the training step. Here they end in the collector: the dump stops, the
step goes on, and the receipt says why.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from sentinel.trainer.backward import QuietBackwardHook
from sentinel.trainer.footprint import ModelFootprint, ProcessFootprint, forget_exit_handler
from sentinel.trainer.fuse import attempt

log = logging.getLogger("sentinel.trainer")

# msprobe refuses every other character, often with an empty message.
_SAFE_PATH = re.compile(r"[a-zA-Z0-9_.:/-]+")
DEFAULT_MIN_FREE_BYTES = 256 * 1024 * 1024
_COLLECTOR_METHODS = (
    "forward_input_data_collect",
    "forward_output_data_collect",
    "forward_data_collect",
    "backward_data_collect",
    "backward_input_data_collect",
    "backward_output_data_collect",
    "params_data_collect",
)


class ProbeError(Exception):
    """A capture cannot be made here; the text says why, for the receipt."""


@contextlib.contextmanager
def _every_module_listed(model: Any) -> Iterator[None]:
    """Keep msprobe from leaving modules out: beside verl it skips the first and the last that a model lists.

    It also skips the model itself wherever it is listed, so for the moment both places are given to the model itself.
    """
    chunks = list(model) if isinstance(model, (list, tuple)) else [model]
    for chunk in chunks:
        listed = list(chunk.named_modules())
        around = [listed[0], *listed, listed[0]]
        vars(chunk)["named_modules"] = functools.partial(_again, around)
    try:
        yield
    finally:
        for chunk in chunks:
            del vars(chunk)["named_modules"]


def _again(listed: list[Any], *_: Any, **__: Any) -> Iterator[Any]:
    return iter(listed)


class Probe:
    """One captured step in this process. `open()`, any number of stages, `close()`.

    Args:
        plan: `{"root", "step", "stages", "level", "task", "modules", "min_free_bytes"}`.
        models: the torch modules whose stages will be dumped.
    """

    def __init__(self, plan: dict[str, Any], models: list[Any]) -> None:
        self.plan = plan
        self.root = str(plan["root"])
        self.step = int(plan["step"])
        self.models = models
        self.stages: dict[str, dict[str, Any]] = {}
        self.broken = ""
        self._debugger: Any = None
        self._set_aside: tuple[Any, bool] | None = None
        self._log_levels: list[tuple[Any, int]] = []
        self._process: ProcessFootprint | None = None
        self._hooks: ModelFootprint | None = None
        self._staging = ""
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
        self._check_folder()
        self._process = ProcessFootprint()
        # torch_npu without CANN raises anything at import, not only ImportError.
        failure = attempt(_import_msprobe)
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
        self._staging = self._writable_root()
        config = os.path.join(self._staging, f"config_{os.getpid()}.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(self._config(), file)
        self._debugger = PrecisionDebugger(config_path=config)
        os.unlink(config)
        self._observe_gradients_quietly()

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
        options: dict[str, Any] = {"scope": [], "list": list(self.plan.get("modules") or []), "data_mode": ["all"]}
        if task == "statistics":
            options["summary_mode"] = "statistics"
        return {
            "task": task,
            "level": str(self.plan.get("level") or "L0"),
            "dump_path": os.path.join(self._staging, "unused"),
            "rank": [],
            "step": [],
            "dump_enable": True,
            task: options,
        }

    def _check_folder(self) -> None:
        try:
            os.makedirs(self.root, exist_ok=True)
            free = shutil.disk_usage(self.root).free
        except OSError as error:
            raise ProbeError(f"dump folder {self.root}: {error.strerror or error}") from error
        needed = int(self.plan.get("min_free_bytes") or DEFAULT_MIN_FREE_BYTES)
        if free < needed:
            raise ProbeError(f"dump folder {self.root}: {free} bytes free, {needed} are asked for")
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise ProbeError(f"dump folder {self.root}: not writable")

    def _writable_root(self) -> str:
        """A folder that msprobe accepts: the wanted one, or a temporary one when a character forbids it."""
        if _SAFE_PATH.fullmatch(self.root):
            folder = os.path.join(self.root, f".sentinel_{os.getpid()}_{self.step}")
            os.makedirs(folder, exist_ok=True)
            return folder
        folder = tempfile.mkdtemp(prefix="sentinel_")
        if not _SAFE_PATH.fullmatch(folder):
            raise ProbeError(
                f"neither {self.root} nor {folder} is a path that msprobe accepts (letters, digits, _.:/-)"
            )
        return folder

    @staticmethod
    def _take_off_api_wrappers() -> bool:
        """Return whether the run's own debugger had wrapped the torch API."""
        from msprobe.pytorch.dump.api_dump.api_register import get_api_register

        register = get_api_register()
        if register is None or not getattr(register, "all_api_registered", False):
            return False
        register.restore_all_api()
        return True

    # ------------------------------------------------------------------ one stage

    def around(self, stage: str, model: Any, action: Callable[[], Any]) -> Any:
        """Run `action` with the dump of `stage` on; return what it returns, raise only what it raises."""
        began = time.perf_counter()
        started = self._guard(stage, functools.partial(self._start, stage, model))
        try:
            return action()
        finally:
            if started:
                self._guard(stage, functools.partial(self._stop, stage))
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
        path = os.path.join(self._staging, f"step_{self.step}", stage)
        os.makedirs(path, exist_ok=True)
        service = self._debugger.service
        service.config.dump_path = path
        self._contain(service.data_collector, stage)
        with _every_module_listed(model):
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
            self._guard(stage, functools.partial(method, *args, **kwargs))

        return collect

    # ------------------------------------------------------------------ closing

    def close(self) -> dict[str, Any]:
        """Leave the process as it was found. Return `{"stages", "broken", "bytes", "seconds"}`."""
        for action in (self._take_apart, self._move_into_place):
            failure = attempt(action)
            if failure is not None:
                self._break("closing", failure)
        return {
            "step": self.step,
            "stages": self.stages,
            "broken": self.broken,
            "bytes": sum(int(entry.get("bytes", 0)) for entry in self.stages.values()),
            "seconds": sum(float(entry.get("seconds", 0.0)) for entry in self.stages.values()),
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

    def _move_into_place(self) -> None:
        """Let the finished stages appear under the root at once, whole; note their sizes."""
        if not self._staging:
            return
        staged_step = os.path.join(self._staging, f"step_{self.step}")
        for stage, entry in self.stages.items():
            source = os.path.join(staged_step, stage, "step0")
            if not entry.get("calls") or not os.path.isdir(source):
                continue
            target = os.path.join(self.root, f"step_{self.step}", stage)
            for rank in sorted(os.listdir(source)):
                place = os.path.join(target, "step0", rank)
                shutil.rmtree(place, ignore_errors=True)
                os.makedirs(os.path.dirname(place), exist_ok=True)
                shutil.move(os.path.join(source, rank), place)
                entry["bytes"] = int(entry.get("bytes", 0)) + _size_of(place)
            entry["path"] = target
        shutil.rmtree(self._staging, ignore_errors=True)


def _import_msprobe() -> None:
    import msprobe.pytorch  # noqa: F401


def _size_of(folder: str) -> int:
    return sum(os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(folder) for name in names)
