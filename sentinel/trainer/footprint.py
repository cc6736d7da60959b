# SPDX-License-Identifier: Apache-2.0
"""What msprobe changes in a process, remembered before a capture and put back after it.

Read from mindstudio-probe 26.2.0, and checked by tests against whichever version is installed:

- functions that it replaces and never restores: `BackwardHook.setup_*_hook` and `BackwardHookFunction.apply`
  (wrapped once more at each construction), `Work.wait` (its wrapper loses the return value), `torch.jit.script`,
  dynamo's `convert_frame`, `clip_grad_*`;
- global optimizer hooks, one pair more at each mix dump;
- on every module of the model: a forward pre-hook, a forward hook, a wrapped `forward`, marker attributes;
- on parameters: hooks of their gradient accumulators;
- the wrappers on the torch API (32-46 % slower steps when they are forgotten);
- an exit handler that keeps each data collector alive; a `tensorflow` stub in `sys.modules`.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterable
from typing import Any

_MISSING = object()
# (module, attribute path): what a dump of any level was seen to replace.
_REPLACED = (
    ("torch.utils.hooks", "BackwardHook.setup_input_hook"),
    ("torch.utils.hooks", "BackwardHook.setup_output_hook"),
    ("torch.nn.modules._functions", "BackwardHookFunction.apply"),
    ("torch.distributed", "Work.wait"),
    ("torch.jit", "script"),
    ("torch._dynamo.convert_frame", "convert_frame"),
    ("torch._dynamo.convert_frame", "_compile"),
    ("torch.nn.utils", "clip_grad_norm_"),
    ("torch.nn.utils", "clip_grad_norm"),
    ("torch.nn.utils", "clip_grad_value_"),
)
_HOOK_TABLES = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_pre_hooks",
    "_backward_hooks",
)
_MARKERS = ("msprobe_hook", "msprobe_forward_hook", "msprobe_module_dump", "msprobe_input_kwargs")


def _own(owner: Any, name: str) -> Any:
    """The attribute as the object itself holds it (static and class methods unbound), or _MISSING."""
    return vars(owner).get(name, _MISSING) if hasattr(owner, "__dict__") else getattr(owner, name, _MISSING)


def _put(owner: Any, name: str, value: Any) -> None:
    if value is _MISSING:
        if name in vars(owner):
            delattr(owner, name)
    elif _own(owner, name) is not value:
        setattr(owner, name, value)


class ProcessFootprint:
    """The functions and tables of this process that msprobe replaces. Made before msprobe is used."""

    def __init__(self) -> None:
        self._functions: list[tuple[Any, str, Any]] = []
        for module_name, path in _REPLACED:
            owner: Any = sys.modules.get(module_name)
            *parents, name = path.split(".")
            for parent in parents:
                owner = getattr(owner, parent, None)
            if owner is not None:
                self._functions.append((owner, name, _own(owner, name)))
        self._optimizer_hooks: list[tuple[Any, dict[Any, Any]]] = []
        optimizer = sys.modules.get("torch.optim.optimizer")
        for table_name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
            table = getattr(optimizer, table_name, None)
            if table is not None:
                self._optimizer_hooks.append((table, dict(table)))
        self._tensorflow = sys.modules.get("tensorflow", _MISSING)

    def restore(self) -> None:
        """Put everything back as it was when this footprint was taken."""
        for owner, name, value in self._functions:
            _put(owner, name, value)
        for table, before in self._optimizer_hooks:
            for key in [key for key in table if key not in before]:
                del table[key]
        stub = sys.modules.get("tensorflow")
        # TensorBoard's stub, under its own name or without a file; the real library may have come in the meantime.
        if self._tensorflow is _MISSING and (
            getattr(stub, "__file__", None) is None or "tensorflow_stub" in getattr(stub, "__name__", "")
        ):
            sys.modules.pop("tensorflow", None)


class ModelFootprint:
    """The hooks, `forward` and marker attributes of every module of some models."""

    def __init__(self, models: Iterable[Any]) -> None:
        self._modules: list[tuple[Any, dict[str, dict[Any, Any]], Any, dict[str, Any]]] = []
        seen: set[int] = set()
        for model in models:
            for module in model.modules():
                if id(module) not in seen:
                    seen.add(id(module))
                    self._modules.append(self._look(module))

    @staticmethod
    def _look(module: Any) -> tuple[Any, dict[str, dict[Any, Any]], Any, dict[str, Any]]:
        tables = {name: dict(getattr(module, name)) for name in _HOOK_TABLES if hasattr(module, name)}
        markers = {name: vars(module)[name] for name in _MARKERS if name in vars(module)}
        return module, tables, vars(module).get("forward", _MISSING), markers

    def hide_markers(self) -> None:
        """Let msprobe hook these modules as if for the first time; hooks of the run's own debugger step aside."""
        for module, tables, _, markers in self._modules:
            for name in markers:
                delattr(module, name)
            for name in tables:
                table = getattr(module, name)
                for key in [
                    key for key, hook in table.items() if "ModuleProcessor" in getattr(hook, "__qualname__", "")
                ]:
                    del table[key]

    def restore(self) -> None:
        """Take off what was added since, and put back what stepped aside, in the old order."""
        for module, tables, forward, markers in self._modules:
            for name, before in tables.items():
                table = getattr(module, name)
                if dict(table) != before or list(table) != list(before):
                    table.clear()
                    table.update(before)
            _put(module, "forward", forward)
            for name in _MARKERS:
                _put(module, name, markers.get(name, _MISSING))

    def added_hooks(self) -> int:
        """How many hooks these modules carry beyond those they had. For tests and for the receipt."""
        return sum(
            len([key for key in getattr(module, name) if key not in before])
            for module, tables, _, _ in self._modules
            for name, before in tables.items()
        )


def forget_exit_handler(collector: Any) -> None:
    """Let a data collector go: msprobe registers one exit handler for each and never takes it back."""
    handler = getattr(collector, "write_json_at_exit", None)
    if handler is not None:
        atexit.unregister(handler)
