# SPDX-License-Identifier: Apache-2.0
"""The script that computes dumped calls again from their own inputs and weights; run by `rerun`, never imported by it.

Reads the path of a dump.json from JSON on standard input, prints one JSON line a call that could be computed:
[name, position, gap, expected, norm, again, place].
"""

from __future__ import annotations

import json
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import torch

# What cannot be computed again: random numbers, memory that was not written yet, in-place changes, copies between places.
SKIPPED = re.compile(
    r"rand|drop|bernoulli|multinomial|normal_?$|uniform|empty|_$|^__i|^(to|copy|cpu|cuda|npu|type|item|tolist|numpy)$"
)
FACTORS = {torch.bfloat16: 2**-9, torch.float16: 2**-12, torch.float32: 2**-13}
"""Rounding of one result in the dump's own dtype, as a share of its norm; fp32 with room for TF32 and HF32 products."""
NAMESPACES = {"Functional": torch.nn.functional, "Tensor": torch.Tensor, "Torch": torch}


class CannotError(Exception):
    """A call that cannot be computed again here."""


class Dump:
    """One dump.json with its tensors."""

    def __init__(self, path: str) -> None:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        self.entries: dict[str, Any] = document["data"]
        self.folder = Path(path).parent / "dump_tensor_data"

    def load(self, about: dict[str, Any]) -> torch.Tensor:
        """The tensor of an entry's row."""
        name = about.get("data_name")
        if not name or "/" in name:
            raise CannotError("not dumped")
        tensor: torch.Tensor = torch.load(self.folder / name, map_location="cpu", weights_only=True)
        return tensor.detach()

    def argument(self, about: Any) -> Any:
        """A call's argument, as the dump describes it."""
        if isinstance(about, list):
            return [self.argument(item) for item in about]
        if about is None:
            return None
        kind = about.get("type")
        if kind == "torch.Tensor":
            return self.load(about)
        if kind in ("int", "float", "bool", "str"):
            return about["value"]
        if kind == "NoneType":
            return None
        raise CannotError(f"an argument of type {kind}")


def widened(value: Any) -> Any:
    """The same in fp32, where it is a floating-point tensor of less."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() and value.dtype != torch.float64 else value
    if isinstance(value, list):
        return [widened(item) for item in value]
    return value


def first_tensor(value: Any) -> torch.Tensor:
    """The first floating-point tensor of a result."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value
    for item in value if isinstance(value, (list, tuple)) else ():
        if isinstance(item, torch.Tensor) and item.is_floating_point():
            return item
    raise CannotError("no floating-point result")


def operation(dump: Dump, name: str, entry: dict[str, Any]) -> tuple[Any, list[Any], dict[str, Any]]:
    """The function of an operation's entry, and its arguments."""
    space, _, rest = name.partition(".")
    call = rest.rsplit(".", 2)[0]
    function = getattr(NAMESPACES.get(space), call, None)
    if function is None or SKIPPED.search(call):
        raise CannotError("not computed again")
    kwargs = {key: dump.argument(value) for key, value in (entry.get("input_kwargs") or {}).items()}
    return function, [dump.argument(value) for value in entry.get("input_args") or []], kwargs


def module(dump: Dump, name: str, entry: dict[str, Any]) -> tuple[Any, list[Any], dict[str, Any]]:
    """What a module of a known class computes, and from what; its weights as the call inside it was given them."""
    kind = name.rsplit(".", 3)[1]
    weights = {key: dump.load(value) for key, value in (entry.get("parameters") or {}).items()}
    x = dump.argument((entry.get("input_args") or [None])[0])
    weight, bias = weights.get("weight"), weights.get("bias")
    if x is None or weight is None or set(weights) - {"weight", "bias"}:
        raise CannotError("a module of unknown form")
    if kind.endswith("Linear") and weight.dim() == 2 and weight.shape[1] == x.shape[-1]:
        return torch.nn.functional.linear, [x, weight, bias], {}
    if kind.endswith("Embedding") and weight.dim() == 2 and not x.is_floating_point():
        return torch.nn.functional.embedding, [x, weight], {}
    if kind.endswith("RMSNorm") and weight.shape == x.shape[-1:] and bias is None:
        return rms_norm, [x, weight], {}
    raise CannotError(f"a module of class {kind}")


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Root mean square norm with the usual epsilon; in fp32 inside, as every implementation does."""
    wide = x.float()
    return (weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)).to(x.dtype)


def compared(dumped: torch.Tensor, again: torch.Tensor, own: torch.Tensor) -> list[Any]:
    """[gap, expected, norm, again, place]: relative difference from fp32, and that of the same in the dump's dtype."""
    if dumped.shape != again.shape:
        raise CannotError("another shape")
    a, b, c = (t.double().flatten() for t in (dumped, again, own))
    scale = max(b.norm().item(), 1e-30)
    expected = max((c - b).norm().item() / scale, FACTORS.get(dumped.dtype, 2**-13))
    gap = (a - b).norm().item() / scale
    return [gap, expected, a.norm().item(), b.norm().item(), int((a - b).abs().argmax()) if a.numel() else 0]


def forward(dump: Dump, name: str, entry: dict[str, Any]) -> list[Any]:
    """One call's output against the same computed again."""
    function, args, kwargs = (module if name.startswith("Module.") else operation)(dump, name, entry)
    dumped = first_tensor([dump.argument(about) for about in entry["output"]])
    again = first_tensor(function(*(widened(arg) for arg in args), **{k: widened(v) for k, v in kwargs.items()}))
    own = first_tensor(function(*args, **kwargs))
    return ["output.0", *compared(dumped, again, own)]


def backward(dump: Dump, name: str, entry: dict[str, Any]) -> list[Any]:
    """The gradient that a module hands on against the same computed again from what it was given."""
    call = name.replace(".backward.", ".forward.")
    if call not in dump.entries:
        raise CannotError("its forward call was not dumped")
    function, args, kwargs = module(dump, call, dump.entries[call])
    given, dumped = dump.argument(entry["input"][0]), dump.argument(entry["output"][0])
    results = []
    for wide in (True, False):
        inputs = [widened(arg) for arg in args] if wide else list(args)
        inputs[0] = inputs[0].clone().requires_grad_()
        out = function(*inputs, **kwargs)
        results.append(torch.autograd.grad(out, inputs[0], given.to(out.dtype))[0])
    return ["output.0", *compared(dumped, *results)]


def main() -> None:
    """Compute every call of the dump again that can be."""
    dump = Dump(json.load(sys.stdin))
    for name, entry in dump.entries.items():
        is_module = name.startswith("Module.")
        try:
            if name.endswith(".forward") or (is_module and ".forward." in name):
                print(json.dumps([name, *forward(dump, name, entry)]), flush=True)
            elif is_module and ".backward." in name:
                print(json.dumps([name, *backward(dump, name, entry)]), flush=True)
        except (
            CannotError,
            LookupError,
            TypeError,
            ValueError,
            RuntimeError,
            AttributeError,
            OSError,
            EOFError,
            pickle.PickleError,
        ):
            continue


if __name__ == "__main__":
    main()
