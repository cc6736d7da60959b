# SPDX-License-Identifier: Apache-2.0
"""What runs inside verl's workers: find the stages of this process, dump them for one step, put everything back.

`arm` and `disarm` are sent with Ray's `__ray_call__`, so a worker needs no plugin, no profiler setting and no hydra
override. They replace methods on instances, never on classes, and return instead of raising.

Read from verl 0.9.1 (`workers/engine_workers.py`): an actor process holds `worker_dict` (or is the worker itself);
an ActorRolloutRefWorker has `.actor` and `.ref`, which are TrainingWorkers; the critic is a TrainingWorker. A
TrainingWorker runs `infer_batch` for log-probs and values and `train_mini_batch` for an update; its model is
`engine.module`. A reward model is a rollout server there; in verl 0.8 and before (read, not run) it is a worker with
`reward_module`, whose `compute_rm_score` calls its own `_forward_micro_batch`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sentinel.trainer.dump_folder import ProbeError
from sentinel.trainer.footprint import ProcessFootprint
from sentinel.trainer.fuse import attempt
from sentinel.trainer.probe import Probe, import_msprobe

_STATE = "_sentinel_capture"
STAGED = "_sentinel_stages"
"""Where a process that is no verl worker says what its stages are."""


@dataclass(frozen=True)
class Target:
    """One stage of this process: the object and method that run it, and the model inside."""

    stage: str
    holder: Any
    method: str
    model: Any


class Span:
    """A stage that is no call: it begins and ends where a loop says. `run` is what a capture replaces."""

    def __init__(self) -> None:
        self._end: Callable[[], None] | None = None

    def run(self) -> Callable[[], None] | None:
        """Begin; return what ends it, None where nothing is captured."""
        return None

    def begin(self) -> None:
        """The stage begins."""
        self._end = self.run()

    def end(self) -> None:
        """The stage ends; once more does no harm."""
        end, self._end = self._end, None
        if end is not None:
            end()


def _holders(actor: Any) -> list[Any]:
    """The worker objects of an actor process: colocated, fused or the actor itself."""
    for name in ("worker_dict", "fused_worker_dict"):
        workers = getattr(actor, name, None)
        if isinstance(workers, dict) and workers:
            return list(workers.values())
    return [actor]


def _model_of(worker: Any) -> Any:
    """The torch module of a TrainingWorker, or the list of chunks that Megatron keeps; None when there is none."""
    module = getattr(getattr(worker, "engine", None), "module", None)
    if isinstance(module, (list, tuple)):
        chunks = [chunk for chunk in module if hasattr(chunk, "named_modules")]
        return chunks or None
    return module if hasattr(module, "named_modules") else None


def _is_value_model(worker: Any) -> bool:
    return "value" in str(getattr(getattr(worker, "config", None), "model_type", ""))


def targets_of(actor: Any) -> list[Target]:
    """Every stage that this process can dump."""
    staged: list[Target] | None = getattr(actor, STAGED, None)
    if staged is not None:
        return staged
    found = []
    for holder in _holders(actor):
        for part, infer, update in (
            ("actor", "actor_compute_log_prob", "actor_update"),
            ("ref", "ref_compute_log_prob", None),
        ):
            worker = getattr(holder, part, None)
            model = _model_of(worker)
            if model is None:
                continue
            found.append(Target(infer, worker, "infer_batch", model))
            if update:
                found.append(Target(update, worker, "train_mini_batch", model))
        reward = getattr(holder, "reward_module", None)
        if hasattr(reward, "named_modules") and hasattr(holder, "_forward_micro_batch"):
            found.append(Target("compute_rm_score", holder, "_forward_micro_batch", reward))
        model = _model_of(holder)
        if model is not None and _is_value_model(holder):
            # Ray looks methods up on the class of the actor itself, so there the engine is what can be wrapped.
            direct = holder is actor
            found.append(Target("compute_values", holder.engine if direct else holder, "infer_batch", model))
            update = "train_batch" if direct else "train_mini_batch"
            found.append(Target("critic_update", holder.engine if direct else holder, update, model))
    return found


def is_reference_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """With LoRA the reference is the actor without its adapter: same worker, same method, another stage."""
    data = args[0] if args else kwargs.get("data")
    flag = data.get("no_lora_adapter", None) if data is not None and hasattr(data, "get") else None
    return bool(getattr(flag, "data", flag))


def _wrapped(target: Target, probe: Probe, original: Callable[..., Any], wanted: frozenset[str]) -> Callable[..., Any]:
    if isinstance(target.holder, Span):
        return functools.partial(probe.begin, target.stage, target.model)

    @functools.wraps(original)
    def staged(*args: Any, **kwargs: Any) -> Any:
        stage = target.stage
        if stage == "actor_compute_log_prob":
            reference: list[bool] = []
            attempt(lambda: reference.append(is_reference_call(args, kwargs)))
            stage = "ref_compute_log_prob" if reference == [True] else stage
        action = functools.partial(original, *args, **kwargs)
        return probe.around(stage, target.model, action) if stage in wanted else action()

    return staged


def chunks_of(model: Any) -> list[Any]:
    """The torch modules of a target's model."""
    return list(model) if isinstance(model, list) else [model]


def preload(actor: Any) -> dict[str, Any]:
    """Import msprobe, which takes seconds, before a step has to wait for it; leaves nothing else changed."""
    footprint = ProcessFootprint()
    failure = attempt(import_msprobe)
    footprint.restore()
    return {"rank": rank_of(actor), "error": "" if failure is None else f"{type(failure).__name__}: {failure}"}


def arm(actor: Any, plan: dict[str, Any]) -> dict[str, Any]:
    """Make the stages of `plan` dump from now on, until `disarm`.

    Returns:
        `{"rank", "armed": [stage...], "absent": [stage...], "error": text}`.
    """
    disarm(actor)
    answer: dict[str, Any] = {"rank": rank_of(actor), "armed": [], "absent": [], "error": ""}
    wanted = frozenset(plan["stages"])
    targets = [
        target
        for target in targets_of(actor)
        if target.stage in wanted or (target.stage == "actor_compute_log_prob" and "ref_compute_log_prob" in wanted)
    ]
    models = list({id(chunk): chunk for target in targets for chunk in chunks_of(target.model)}.values())
    answer["absent"] = sorted(wanted - {target.stage for target in targets})
    if not targets:
        return answer
    probe = Probe({**plan, "rank": answer["rank"]}, models)
    failure = attempt(probe.open)
    if failure is not None:
        probe.close()
        answer["error"] = str(failure) if isinstance(failure, ProbeError) else f"{type(failure).__name__}: {failure}"
        return answer
    undo = []
    for target in targets:
        original = getattr(target.holder, target.method)
        undo.append((target.holder, target.method, vars(target.holder).get(target.method)))
        setattr(target.holder, target.method, _wrapped(target, probe, original, wanted))
    setattr(actor, _STATE, (probe, undo))
    answer["armed"] = sorted({target.stage for target in targets} & wanted)
    return answer


def disarm(actor: Any) -> dict[str, Any]:
    """Put the worker back as it was; return what was dumped, `{}` when nothing was armed."""
    state = getattr(actor, _STATE, None)
    if state is None:
        return {}
    probe, undo = state
    delattr(actor, _STATE)
    for holder, method, before in reversed(undo):
        if before is None:
            attempt(functools.partial(delattr, holder, method))
        else:
            setattr(holder, method, before)
    return {"rank": rank_of(actor), "pid": os.getpid(), **probe.close()}


def rank_of(actor: Any) -> int:
    """The rank of this process, as its worker or the environment says."""
    for holder in _holders(actor):
        rank = getattr(holder, "rank", None)
        if isinstance(rank, int):
            return rank
    return int(os.environ.get("RANK", "0"))
