# SPDX-License-Identifier: Apache-2.0
"""Faults of known module, kind and size, and the harmless differences that healthy pairs have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Fault:
    """What is broken."""

    module: str
    kind: str
    size: float

    @property
    def direction(self) -> str:
        """Where it shows first."""
        if self.kind.startswith("weight"):
            return "parameters"
        return "backward" if self.kind.startswith("grad") else "forward"

    @property
    def name(self) -> str:
        """A name for tables."""
        return f"{self.module}:{self.kind}={self.size:g}"


@contextlib.contextmanager
def planted(model: nn.Module, fault: Fault | None) -> Iterator[None]:
    """The model with the fault in it."""
    if fault is None:
        yield
        return
    module = model.get_submodule(fault.module)
    if fault.kind.startswith("weight"):
        with _spoilt_weight(module, fault):
            yield
        return
    if fault.kind in {"scaling", "eps"}:
        with _attribute(module, fault):
            yield
        return
    original = module.forward
    change = _gradient(fault) if fault.kind.startswith("grad") else _output(fault)

    def forward(*args, **kwargs):
        return _on_first_tensor(original(*args, **kwargs), change)

    module.forward = forward
    try:
        yield
    finally:
        del module.forward


def _on_first_tensor(output, change):
    if isinstance(output, torch.Tensor):
        return change(output)
    for place, item in enumerate(output):
        if isinstance(item, torch.Tensor) and item.is_floating_point():
            return type(output)([*output[:place], change(item), *output[place + 1 :]])
    raise TypeError(type(output))


def _output(fault: Fault) -> Callable[[torch.Tensor], torch.Tensor]:
    if fault.kind in {"nan", "inf", "ninf"}:
        return lambda y: _with_element(y, float({"nan": "nan", "inf": "inf", "ninf": "-inf"}[fault.kind]))
    change = {
        "scale": lambda y: y * fault.size,
        "bias": lambda y: y + fault.size * y.detach().float().pow(2).mean().sqrt().to(y.dtype),
        "mask": lambda y: y * _kept(y.shape[-1], fault.size).to(y),
        "mantissa": lambda y: y + (_cut(y, int(fault.size)) - y).detach(),
        "noise": lambda y: (
            y * (1 + fault.size * torch.randn(y.shape, generator=torch.Generator().manual_seed(11)).to(y))
        ),
        "row": lambda y: _with_row(y, fault.size),
    }
    return change[fault.kind]


def _with_element(y: torch.Tensor, value: float) -> torch.Tensor:
    changed = y.clone()
    changed.view(-1)[17] = value
    return changed


def _with_row(y: torch.Tensor, factor: float) -> torch.Tensor:
    changed = y.clone()
    changed.view(-1, y.shape[-1])[5] *= factor
    return changed


def _kept(width: int, share: float) -> torch.Tensor:
    keep = torch.ones(width)
    order = torch.randperm(width, generator=torch.Generator().manual_seed(7))
    keep[order[: max(1, round(share * width))]] = 0
    return keep


def _cut(y: torch.Tensor, dropped: int) -> torch.Tensor:
    """The number with its lowest bits (of fp32's 23) dropped."""
    bits = y.detach().float().contiguous().view(torch.int32)
    return (bits & ~((1 << dropped) - 1)).view(torch.float32).to(y.dtype)


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, change):
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.change(gradient), None


def _gradient(fault: Fault) -> Callable[[torch.Tensor], torch.Tensor]:
    inner = _output(Fault(fault.module, fault.kind.removeprefix("grad_"), fault.size))
    return lambda y: _Backward.apply(y, inner)


@contextlib.contextmanager
def _attribute(module: nn.Module, fault: Fault) -> Iterator[None]:
    """A constant of the module's own code: the attention's scale, a norm's epsilon."""
    name = "scaling" if fault.kind == "scaling" else next(n for n in ("variance_epsilon", "eps") if hasattr(module, n))
    before = getattr(module, name)
    setattr(module, name, before * fault.size)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextlib.contextmanager
def _spoilt_weight(module: nn.Module, fault: Fault) -> Iterator[None]:
    weight = module.weight
    before = weight.detach().clone()
    with torch.no_grad():
        if fault.kind == "weight_scale":
            weight.mul_(fault.size)
        elif fault.kind == "weight_nan":
            weight.view(-1)[3] = float("nan")
        elif fault.kind == "weight_round":
            weight.copy_(_cut(weight, int(fault.size)))
        elif fault.kind == "weight_rows":
            weight[: max(1, int(fault.size))] = weight[: max(1, int(fault.size))].flip(-1)
        else:
            raise ValueError(fault.kind)
    try:
        yield
    finally:
        with torch.no_grad():
            weight.copy_(before)


# Harmless differences.

NOISES = ("same", "kernel", "wide", "sdpa", "moved")


@contextlib.contextmanager
def noise(model: nn.Module, kind: str) -> Iterator[None]:
    """The model on other kernels (`kernel`, `wide`), with a coarser matrix unit (`tf32`), or some updates later (`moved`)."""
    if kind == "same":
        yield
    elif kind == "moved":
        with _moved(model):
            yield
    elif kind == "sdpa":
        before = model.config._attn_implementation
        model.set_attn_implementation("sdpa")
        try:
            yield
        finally:
            model.set_attn_implementation(before)
    else:
        linear, addmm = functional.linear, torch.addmm
        product = {"kernel": _split, "wide": _double, "tf32": _coarse}[kind]

        def other(x, weight, bias=None):
            y = product(x, weight)
            return y if bias is None else y + bias

        functional.linear = other
        torch.addmm = lambda bias, x, weight: other(x, weight.t(), bias)
        try:
            yield
        finally:
            functional.linear, torch.addmm = linear, addmm


def _split(x, weight):
    """Another tile order: partial sums over thirds of the inner dimension, in single precision."""
    third = max(1, x.shape[-1] // 3)
    parts = [
        x[..., at : at + third].float() @ weight[:, at : at + third].float().t() for at in range(0, x.shape[-1], third)
    ]
    return torch.stack(parts).sum(0).to(x.dtype)


def _double(x, weight):
    return (x.double() @ weight.double().t()).to(x.dtype)


def _coarse(x, weight):
    def cut(y):
        if y.dtype != torch.float32:
            return y
        bits = (y.detach().contiguous().view(torch.int32) + (1 << 12)) & ~((1 << 13) - 1)
        return y + (bits.view(torch.float32) - y).detach()

    return cut(x) @ cut(weight).t()


@contextlib.contextmanager
def _moved(model: nn.Module) -> Iterator[None]:
    """One Adam step of lr 1e-5 with gradients of its own: every weight by at most 1e-5."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            step = torch.tanh(2 * torch.randn(parameter.shape, generator=random)) * 1e-5
            parameter.copy_((parameter.float() + step).to(parameter.dtype))
    try:
        yield
    finally:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(before[name])
