# SPDX-License-Identifier: Apache-2.0
"""Runs a callback right after a named module was executed, without importing it.

The plugin is loaded in the middle of `import verl`, so it must not import any verl module itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

Callback = Callable[[ModuleType], None]


class _Loader(importlib.abc.Loader):
    """The module's own loader, and a callback behind it."""

    def __init__(self, loader: importlib.abc.Loader, callback: Callback) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._callback(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


class AfterImport(importlib.abc.MetaPathFinder):
    """A finder that only decorates what the finders behind it find."""

    def __init__(self) -> None:
        self._callbacks: dict[str, Callback] = {}
        self._busy: set[str] = set()

    def watch(self, name: str, callback: Callback) -> None:
        """Call `callback(module)` once the module `name` was executed; at once if it already was."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            callback(module)
            return
        self._callbacks[name] = callback
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Leave the import system as it was."""
        self._callbacks.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module as the others do, and hang the callback behind its execution."""
        del path, target
        if name not in self._callbacks or name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._callbacks.pop(name))
        return spec
