# SPDX-License-Identifier: Apache-2.0
"""The rows of an msprobe dump's entries: one for each tensor or plain number, at its place in the arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sentinel.records import LayerStat

_DIRECTIONS = frozenset({"forward", "backward"})
_KINDS = _DIRECTIONS | {"parameters_grad"}
_FIELDS = {
    "input_args": "input",
    "input": "input",
    "input_kwargs": "kwarg",
    "output": "output",
    "parameters": "parameters",
}
_NUMBERS = ("int", "float")  # no set: what stands there in a broken dump may have no hash
_Call = tuple[str, str, str, int, str]
"""Name, module, direction, order and parent of the rows of one entry."""


def split_name(name: str) -> tuple[str, str, int] | None:
    """The module path or API name, the kind of entry and the call number of a dump key; None for another thing.

    >>> split_name("Module.model.layers.0.mlp.Qwen2MLP.forward.1")
    ('model.layers.0.mlp', 'forward', 1)
    >>> split_name("Functional.linear.3.backward")
    ('Functional.linear', 'backward', 3)
    """
    head, _, last = name.rpartition(".")
    head, _, before = head.rpartition(".")
    if before in _KINDS and last.isdecimal():
        kind, call = before, int(last)
    elif last in _DIRECTIONS and before.isdecimal():
        kind, call = last, int(before)
    else:
        return None
    if head.startswith("Module."):
        head = head[len("Module.") :].rpartition(".")[0]
    return (head, kind, call) if head else None


class Rows:
    """Makes rows out of entries; equal dtypes, shapes and positions are one object each, for there are hundreds of thousands."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._shapes: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._dtypes: dict[str, str] = {}
        self._places: dict[tuple[str, int | str], str] = {}

    def of(self, name: str, entry: Mapping[str, object], order: int, parent: str) -> list[LayerStat]:
        """The rows of one entry; none where its name is no call's."""
        split = split_name(name)
        rows: list[LayerStat] = []
        if split is None:
            return rows
        module, kind, _ = split
        for field, value in entry.items():
            if kind == "parameters_grad":
                # A gradient is a list of one; its place is the parameter's name alone.
                position, values = self._place("parameters_grad", field), value if isinstance(value, list) else [value]
                for one in values:
                    self._collect(rows, (name, module, "parameters", order, parent), position, one)
            elif field in _FIELDS and value:
                direction = "parameters" if field == "parameters" else kind
                self._collect(rows, (name, module, direction, order, parent), _FIELDS[field], value)
        return rows

    def _collect(self, rows: list[LayerStat], call: _Call, position: str, value: object) -> None:
        """Add every tensor or plain number below `value`, with its place in the arguments."""
        if isinstance(value, dict):
            listed, dtype = value.get("shape"), value.get("dtype")
            if isinstance(listed, list) and isinstance(dtype, str):
                shape = self._shape(listed)
                if shape is not None:
                    rows.append(self._tensor(call, position, dtype, shape, value))
            elif value.get("type") in _NUMBERS and isinstance(value.get("value"), (int, float)):
                name, module, direction, order, parent = call
                alone = _number(value["value"])
                numbers = (alone, alone, alone, alone, "number", ())
                rows.append(LayerStat(name, module, direction, position, order, *numbers, None, parent))
            elif "type" not in value:
                for key, item in value.items():
                    self._collect(rows, call, self._place(position, key), item)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if item is not None:
                    self._collect(rows, call, self._place(position, index), item)

    def _tensor(  # called for each of hundreds of thousands of tensors
        self, call: _Call, position: str, dtype: str, shape: tuple[int, ...], tensor: Mapping[str, object]
    ) -> LayerStat:
        name, module, direction, order, parent = call
        get = tensor.get
        norm, mean, high, low, checksum, data = (
            get("Norm"),
            get("Mean"),
            get("Max"),
            get("Min"),
            get("md5"),
            get("data_name"),
        )
        return LayerStat(
            name,
            module,
            direction,
            position,
            order,
            norm if type(norm) is float else _number(norm),
            mean if type(mean) is float else _number(mean),
            high if type(high) is float else _number(high),
            low if type(low) is float else _number(low),
            self._dtype(dtype),
            shape,
            checksum if isinstance(checksum, str) else None,
            parent,
            f"{self._folder}/{data}" if data and isinstance(data, str) else None,
        )

    def _shape(self, listed: list[object]) -> tuple[int, ...] | None:
        """The shape; None where it is none."""
        try:
            return self._shapes[tuple(listed)]
        except (KeyError, TypeError):
            sizes = tuple(size for size in listed if isinstance(size, int))
            return self._shapes.setdefault(sizes, sizes) if len(sizes) == len(listed) else None

    def _dtype(self, written: str) -> str:
        known = self._dtypes.get(written)
        if known is None:
            known = self._dtypes[written] = written.removeprefix("torch.")
        return known

    def _place(self, above: str, key: int | str) -> str:
        known = self._places.get((above, key))
        if known is None:
            known = self._places[above, key] = f"{above}.{key}"
        return known


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return math.inf if isinstance(value, int) and value > 0 else -math.inf
