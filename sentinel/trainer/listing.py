# SPDX-License-Identifier: Apache-2.0
"""Which modules msprobe looks at: all of them, or one and what is inside it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

_ENTRY_KINDS = frozenset(
    {"Module", "Cell", "Functional", "Tensor", "Torch", "NPU", "Distributed", "Aten", "VF", "MindSpeed"}
)


def listed(name: str) -> str:
    """Return a module's path as msprobe's `list` finds it and what is inside it, and no namesake; names of dump entries as they are."""
    return name if name.partition(".")[0] in _ENTRY_KINDS else f".{name}."


@contextlib.contextmanager
def every_module_listed(model: Any) -> Iterator[None]:
    """Keep msprobe from leaving modules out: beside verl it skips the first and the last that a model lists.

    It also skips the model itself wherever it is listed, so for the moment both places are given to the model itself.
    """
    chunks = list(model) if isinstance(model, (list, tuple)) else [model]
    for chunk in chunks:
        modules = list(chunk.named_modules())
        around = [modules[0], *modules, modules[0]]
        vars(chunk)["named_modules"] = functools.partial(_again, around)
    try:
        yield
    finally:
        for chunk in chunks:
            del vars(chunk)["named_modules"]


def _again(modules: list[Any], *_: Any, **__: Any) -> Iterator[Any]:
    return iter(modules)
