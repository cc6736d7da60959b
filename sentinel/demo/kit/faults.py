# SPDX-License-Identifier: Apache-2.0
"""A fault inside one module of one stage, from a chosen step on, planted in verl's own workers.

The plan comes as JSON in VERL_DEMO_FAULT. For the stage and the steps concerned, `forward` of the module is replaced
on the instance, so that the stage really computes with the fault, and hooks on the module see what hooks would see of
a broken kernel: clean inputs and a wrong output, or a clean gradient of the output and a NaN gradient of the input.
"""

from __future__ import annotations

import functools
import json
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

VARIABLE = "VERL_DEMO_FAULT"
STAGES = {
    # stage: (method of verl's hybrid worker, its training worker that runs the stage)
    "actor_compute_log_prob": ("compute_log_prob", "actor"),
    "ref_compute_log_prob": ("compute_ref_log_prob", "ref"),
    "actor_update": ("update_actor", "actor"),
}
CRITIC_STAGES = {
    # stage: method of the critic's training worker
    "compute_values": "infer_batch",
    "critic_update": "train_mini_batch",
}
ROLLOUT = "rollout"
"""The stage of a fault in the rollout engine's own copy of the model."""
KINDS = ("scale", "bias", "mask", "mantissa", "stale", "nan_grad")
MASK_SEED = 20240229


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What is broken, how much, and since when."""

    stage: str
    module: str
    """Path of `named_modules()`."""
    kind: str
    size: float
    """scale: factor; bias: share of the output's root mean square that is added; mask: share of the output's features
    that is zeroed; mantissa: bits of the fp32 mantissa that are dropped; stale: age of the weights in steps;
    nan_grad: number of steps for which the gradient is NaN."""
    step: int
    """First step with the fault."""
    every: int = 0
    """nan_grad: it comes back after so many steps, for ever; 0: it comes once."""

    def active(self, step: int) -> bool:
        """Whether the fault is there in this step."""
        if self.kind == "nan_grad":
            since = step - self.step
            return since >= 0 and (since % self.every if self.every else since) < int(self.size)
        return step >= self.step

    def to_json(self) -> str:
        """The form of VERL_DEMO_FAULT."""
        return json.dumps(asdict(self))


def from_environment() -> Fault | None:
    """The fault of this run, if there is one."""
    text = os.environ.get(VARIABLE)
    return Fault(**json.loads(text)) if text else None


def install(module: Any) -> None:
    """Wrap the stage of verl's workers that the plan names; nothing without a plan, or with one for the rollouts."""
    fault = from_environment()
    if fault is None or fault.stage == ROLLOUT:
        return
    if fault.stage in CRITIC_STAGES:
        _install_in_critic(module.TrainingWorker, fault)
        return
    worker = module.ActorRolloutRefWorker
    method, part = STAGES[fault.stage]
    setattr(worker, method, _with_fault(getattr(worker, method), part, fault))
    worker.update_weights = _with_clock(worker.update_weights, part, fault)


def _with_fault(stage: Any, part: str, fault: Fault) -> Any:
    """The stage method, computing with the fault when its time has come. verl's marks on the method are copied."""

    @functools.wraps(stage)
    def method(self, *args, **kwargs):
        step = getattr(self, "_demo_step", 1)
        if not fault.active(step):
            return stage(self, *args, **kwargs)
        print(f"demo: fault active in step {step}", flush=True)
        target = _module(self, part, fault)
        old = self._demo_history[0] if fault.kind == "stale" else None
        with planted(target, fault, old):
            return stage(self, *args, **kwargs)

    return method


def _with_clock(update_weights: Any, part: str, fault: Fault) -> Any:
    """The weight sync, which ends step N (N = 0 before the first), and after which weights are remembered."""

    @functools.wraps(update_weights)
    async def method(self, *args, **kwargs):
        result = await update_weights(self, *args, **kwargs)
        done = kwargs.get("global_steps", args[0] if args else None)
        self._demo_step = getattr(self, "_demo_step", 0) + 1 if done is None else done + 1
        if fault.kind == "stale":
            if not hasattr(self, "_demo_history"):
                self._demo_history = deque(maxlen=int(fault.size) + 1)
            self._demo_history.append(_weights(_module(self, part, fault)))
        return result

    return method


def _install_in_critic(worker: Any, fault: Fault) -> None:
    """Wrap both methods of every training worker; in that of the critic the fault is planted in its stage.

    The critic computes values once a step, before its update, so the calls of `infer_batch` count the steps.
    """
    for stage, name in CRITIC_STAGES.items():
        setattr(worker, name, _critic_method(getattr(worker, name), fault, planted_here=stage == fault.stage))


def _critic_method(original: Any, fault: Fault, *, planted_here: bool) -> Any:
    counts = original.__name__ == CRITIC_STAGES["compute_values"]

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        if getattr(self.config, "model_type", None) != "value_model":
            return original(self, *args, **kwargs)
        self._demo_step = getattr(self, "_demo_step", 0) + counts
        if not (planted_here and fault.active(self._demo_step)):
            return original(self, *args, **kwargs)
        print(f"demo: fault active in step {self._demo_step}", flush=True)
        with planted(dict(self.engine.module.named_modules())[fault.module], fault):
            return original(self, *args, **kwargs)

    return method


def _module(worker: Any, part: str, fault: Fault) -> Any:
    return dict(getattr(worker, part).engine.module.named_modules())[fault.module]


def _weights(module: Any) -> dict[str, Any]:
    """Whole copies of a module's parameters, gathered from their shards."""
    from torch.distributed.tensor import DTensor

    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()
        for name, value in module.named_parameters()
    }


@contextmanager
def planted(module: Any, fault: Fault, old: dict[str, Any] | None = None) -> Iterator[None]:
    """Break `module` for the duration of the block."""
    original = module.forward

    @functools.wraps(original)
    def forward(*args, **kwargs):
        if fault.kind == "stale":
            with _older_weights(module, old or {}):
                return original(*args, **kwargs)
        return _on_first_tensor(original(*args, **kwargs), functools.partial(_spoil, fault))

    had_own = "forward" in vars(module)
    module.forward = forward
    try:
        yield
    finally:
        if had_own:
            module.forward = original
        else:
            # The class's own forward was hidden by an attribute of the instance.
            del module.forward


@contextmanager
def _older_weights(module: Any, old: dict[str, Any]) -> Iterator[None]:
    """Compute with older values; gradients go to the parameters all the same."""
    kept = []
    for name, value in old.items():
        path, _, leaf = name.rpartition(".")
        owner = module.get_submodule(path)
        now = owner._parameters[leaf]
        kept.append((owner, leaf, now))
        owner._parameters[leaf] = value.to(now.dtype) + (now - now.detach())
    try:
        yield
    finally:
        for owner, leaf, now in kept:
            owner._parameters[leaf] = now


def _on_first_tensor(output: Any, change: Any) -> Any:
    """The output with its first floating-point tensor changed; tuples, lists and model outputs keep their form."""
    import torch

    if isinstance(output, torch.Tensor):
        return change(output)
    if isinstance(output, tuple | list):
        for place, item in enumerate(output):
            if isinstance(item, torch.Tensor) and item.is_floating_point():
                return type(output)([*output[:place], change(item), *output[place + 1 :]])
        return output
    for key, item in output.items():
        if isinstance(item, torch.Tensor) and item.is_floating_point():
            output[key] = change(item)
            break
    return output


def _spoil(fault: Fault, y: Any) -> Any:
    """One tensor with the fault in it."""
    import torch

    if fault.kind == "scale":
        return y * fault.size
    if fault.kind == "bias":
        return y + fault.size * y.detach().float().square().mean().sqrt().to(y.dtype)
    if fault.kind == "mask":
        order = torch.randperm(y.shape[-1], generator=torch.Generator().manual_seed(MASK_SEED))
        keep = torch.ones(y.shape[-1], dtype=y.dtype)
        keep[order[: max(1, round(fault.size * y.shape[-1]))]] = 0
        return y * keep.to(y.device)
    if fault.kind == "mantissa":
        bits = y.detach().float().contiguous().view(torch.int32)
        cut = (bits & ~((1 << int(fault.size)) - 1)).view(torch.float32).to(y.dtype)
        return y + (cut - y).detach()
    if fault.kind == "nan_grad":
        return nan_gradient()(y)
    message = f"no such fault: {fault.kind}"
    raise ValueError(message)


@functools.cache
def nan_gradient() -> Any:
    """An identity whose gradient holds one NaN."""
    import torch

    class NanGradient(torch.autograd.Function):
        """Forward: unchanged. Backward: the first element of the gradient is NaN."""

        @staticmethod
        def forward(ctx, y):  # noqa: ARG004
            return y.view_as(y)

        @staticmethod
        def backward(ctx, gradient):  # noqa: ARG004
            spoilt = gradient.clone(memory_format=torch.contiguous_format)
            spoilt.view(-1)[0] = float("nan")
            return spoilt

    return NanGradient.apply
