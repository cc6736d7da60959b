# SPDX-License-Identifier: Apache-2.0
"""Keeps the last inputs of stages without side effects in each worker, and runs such a stage again on exactly those, dumped.

Opt-in and bounded. `keep`, `held` and `again` are sent with Ray's `__ray_call__`; they return instead of raising. A stage runs
again only where every rank holds the inputs of the same call: the stage has collectives, and one rank alone would wait for ever.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sentinel.trainer.arming import Target, chunks_of, is_reference_call, rank_of, targets_of
from sentinel.trainer.fuse import attempt
from sentinel.trainer.probe import Probe

RERUNNABLE = ("actor_compute_log_prob", "ref_compute_log_prob", "compute_values", "compute_rm_score")
_STATE = "_sentinel_flight"
_SAMPLES = 8


@dataclass
class Kept:
    """The last call of one stage."""

    call: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    weights: str
    target: Target
    original: Callable[..., Any]


@dataclass
class _Recorder:
    most_bytes: int
    kept: dict[str, Kept] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    why_not: dict[str, str] = field(default_factory=dict)
    undo: list[tuple[Any, str, Any]] = field(default_factory=list)


def keep(actor: Any, most_bytes: int) -> dict[str, Any]:
    """Begin to keep the last inputs of every rerunnable stage of this process; 0 bytes ends it and lets go of them.

    Args:
        actor: the worker process.
        most_bytes: of all kept inputs together; a call whose inputs do not fit is not kept.

    Returns:
        `{"rank", "stages", "error"}`.
    """
    forget(actor)
    answer: dict[str, Any] = {"rank": rank_of(actor), "stages": [], "error": ""}
    if most_bytes <= 0:
        return answer
    recorder = _Recorder(most_bytes)
    failure = attempt(functools.partial(_wrap, actor, recorder))
    setattr(actor, _STATE, recorder)
    if failure is not None:
        forget(actor)
        answer["error"] = f"{type(failure).__name__}: {failure}"
    answer["stages"] = (
        sorted({target.stage for target in targets_of(actor)} & set(RERUNNABLE)) if failure is None else []
    )
    return answer


def forget(actor: Any) -> None:
    """Let go of everything that is kept, and put the methods back."""
    recorder = getattr(actor, _STATE, None)
    if recorder is None:
        return
    delattr(actor, _STATE)
    # A capture that is armed right now puts back the method that it found, which is the recorder's: from here on that one only passes on.
    recorder.most_bytes = -1
    recorder.kept.clear()
    for holder, method, before in reversed(recorder.undo):
        if before is None:
            attempt(functools.partial(delattr, holder, method))
        else:
            setattr(holder, method, before)


def _wrap(actor: Any, recorder: _Recorder) -> None:
    for target in targets_of(actor):
        if target.stage in RERUNNABLE:
            original = getattr(target.holder, target.method)
            recorder.undo.append((target.holder, target.method, vars(target.holder).get(target.method)))
            setattr(target.holder, target.method, _keeping(recorder, target, original))


def _keeping(recorder: _Recorder, target: Target, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def staged(*args: Any, **kwargs: Any) -> Any:
        failure = attempt(functools.partial(_note, recorder, target, original, args, kwargs))
        if failure is not None:
            recorder.kept.pop(target.stage, None)
            recorder.why_not[target.stage] = f"{type(failure).__name__}: {failure}"
        return original(*args, **kwargs)

    return staged


def _note(
    recorder: _Recorder, target: Target, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    if recorder.most_bytes < 0:
        return
    stage = target.stage
    if stage == "actor_compute_log_prob" and is_reference_call(args, kwargs):
        stage = "ref_compute_log_prob"
    recorder.calls[stage] = recorder.calls.get(stage, 0) + 1
    recorder.kept.pop(stage, None)
    others = sum(_size_of((kept.args, kept.kwargs)) for kept in recorder.kept.values())
    size = _size_of((args, kwargs))
    if others + size > recorder.most_bytes:
        recorder.why_not[stage] = f"its inputs take {size} bytes, {recorder.most_bytes - others} of the bound are left"
        return
    # Shallow: the stage adds and removes keys of what it is given; it does not write into tensors.
    kept = tuple(_shallow(arg) for arg in args), {name: _shallow(value) for name, value in kwargs.items()}
    recorder.why_not.pop(stage, None)
    recorder.kept[stage] = Kept(recorder.calls[stage], *kept, weights_mark(target.model), target, original)


def _shallow(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return copy.copy(value)
    if hasattr(value, "batch_size") and hasattr(value, "clone"):
        return value.clone(recurse=False)
    return value


def _size_of(value: Any) -> int:
    """Bytes of the tensors in nested containers."""
    if hasattr(value, "element_size") and hasattr(value, "numel"):
        inner = value.values() if getattr(value, "is_nested", False) and hasattr(value, "offsets") else value
        return int(inner.element_size() * inner.numel())
    if hasattr(value, "values") and hasattr(value, "keys"):
        return sum(_size_of(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_size_of(item) for item in value)
    return 0


def weights_mark(model: Any) -> str:
    """A mark that changes when an optimizer or a weight sync changes the weights: a few elements of every parameter, hashed."""
    import torch

    picked = []
    with torch.no_grad():
        for chunk in chunks_of(model):
            for parameter in chunk.parameters():
                local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                flat = local.detach().reshape(-1)
                if flat.numel():
                    picked.append(flat[:: max(1, flat.numel() // _SAMPLES)][:_SAMPLES].double().cpu())
    return hashlib.sha256(torch.cat(picked).numpy().tobytes()).hexdigest() if picked else ""


def held(actor: Any) -> dict[str, Any]:
    """Return `{"rank", "calls": {stage: number of its kept call, or None}, "why": {stage: reason}}`."""
    recorder = getattr(actor, _STATE, None)
    stages = sorted({target.stage for target in targets_of(actor)} & set(RERUNNABLE))
    if recorder is None:
        return {"rank": rank_of(actor), "calls": dict.fromkeys(stages), "why": dict.fromkeys(stages, "nothing is kept")}
    calls = {stage: recorder.kept[stage].call if stage in recorder.kept else None for stage in stages}
    return {"rank": rank_of(actor), "calls": calls, "why": dict(recorder.why_not)}


def again(actor: Any, plan: dict[str, Any]) -> dict[str, Any]:
    """Run stages again on their kept inputs, under the debugger; leaves results, random numbers and gradients as they were.

    Args:
        actor: the worker process.
        plan: a probe's, with `"calls": {stage: number of the call that is meant}`.

    Returns:
        As `disarm`, with `"weights": {stage: "same" or "changed"}` and `"error"`.
    """
    recorder = getattr(actor, _STATE, None)
    wanted = [
        kept
        for stage, call in plan["calls"].items()
        if recorder is not None and (kept := recorder.kept.get(stage)) is not None and kept.call == call
    ]
    answer: dict[str, Any] = {"rank": rank_of(actor), "stages": {}, "weights": {}, "error": ""}
    if len(wanted) != len(plan["calls"]):
        return {**answer, "error": "the inputs of that step are not kept any more"}
    probe = Probe(
        {**plan, "rank": answer["rank"]},
        list({id(c): c for kept in wanted for c in chunks_of(kept.target.model)}.values()),
    )
    # Whether or not the debugger opens, every rank runs the stage: its collectives need all of them.
    opened = attempt(probe.open)
    failures = []
    for stage, kept in zip(plan["calls"], wanted, strict=True):
        # Nothing on the way may keep this rank from running the stage: the others would wait for it in a collective.
        marks: list[str] = []
        attempt(lambda kept=kept, marks=marks: marks.append(weights_mark(kept.target.model)))  # type: ignore[misc]
        answer["weights"][stage] = "unknown" if not marks else "same" if marks[0] == kept.weights else "changed"
        failures.append(attempt(functools.partial(_run, probe if opened is None else None, stage, kept)))
    told = probe.close()
    said = [f"{type(failure).__name__}: {failure}" for failure in (opened, *failures) if failure is not None]
    return {**told, **answer, "stages": told["stages"], "error": "; ".join(said)}


def _run(probe: Probe | None, stage: str, kept: Kept) -> None:
    import torch

    args = tuple(_shallow(arg) for arg in kept.args)
    kwargs = {name: _shallow(value) for name, value in kept.kwargs.items()}
    # An engine is entered by its worker, which is not called here.
    mode = getattr(kept.target.holder, "eval_mode", None)
    kinds = {parameter.device for chunk in chunks_of(kept.target.model) for parameter in chunk.parameters()}
    kinds = {device for device in kinds if device.type not in ("cpu", "meta")}
    kind = next(iter(kinds)).type if kinds else "cuda"
    with (
        torch.random.fork_rng(devices=sorted(device.index or 0 for device in kinds), device_type=kind),
        torch.no_grad(),
        mode() if mode is not None else contextlib.nullcontext(),
    ):
        action = functools.partial(kept.original, *args, **kwargs)
        probe.around(stage, kept.target.model, action) if probe is not None else action()
