# SPDX-License-Identifier: Apache-2.0
"""From the trainer to its workers: arm, disarm and collect, without ever waiting on the trainer's thread.

Calls are queued on each worker before the stage calls of the step; an actor runs its calls in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sentinel.trainer import arming
from sentinel.trainer.fuse import attempt
from sentinel.trainer.orders import Order

_GROUPS = ("actor_rollout_wg", "ref_policy_wg", "critic_wg", "rm_wg")


class Done:
    """The answer to a call that was made in this process."""

    def __init__(self, value: Any) -> None:
        self.value = value


class InThisProcess:
    """`__ray_call__` of a worker that is this process: done at once."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def remote(self, function: Callable[..., Any], *args: Any) -> Done:
        """Call it now; what it raises is the answer's, as with a worker elsewhere."""
        answers: list[Any] = []
        failure = attempt(lambda: answers.append(function(self._worker, *args)))
        return Done(answers[0] if failure is None else {"error": f"{type(failure).__name__}: {failure}"})


def _value(call: Any, timeout_seconds: float) -> Any:
    if isinstance(call, Done):
        return call.value
    import ray

    if not ray.is_initialized():  # where it is not, ray.get would begin a cluster in the training process
        raise RuntimeError("this process has no Ray cluster")
    return ray.get(call, timeout=timeout_seconds)


@dataclass
class Armed:
    """One step of the orders that share it, on its way through the workers."""

    orders: list[Order]
    step: int
    plan: dict[str, Any]
    workers: list[Any]
    arm_calls: list[Any]
    disarm_calls: list[Any]


def workers_of(trainer: Any) -> list[Any]:
    """Every distinct worker actor of a verl trainer: worker groups often alias the same processes."""
    seen: dict[Any, Any] = {}
    for name in _GROUPS:
        for worker in getattr(getattr(trainer, name, None), "workers", None) or ():
            seen.setdefault(getattr(worker, "_actor_id", id(worker)), worker)
    return list(seen.values())


def stages_of(trainer: Any) -> list[str]:
    """The dumpable stages that this trainer runs, from its own switches."""
    stages = ["actor_compute_log_prob"]
    if getattr(trainer, "use_reference_policy", False):
        stages.append("ref_compute_log_prob")
    if getattr(trainer, "use_critic", False):
        stages += ["compute_values", "critic_update"]
    return [*stages, "actor_update"]


def plan_of(orders: list[Order], step: int, root: str, min_free_bytes: int | None) -> dict[str, Any]:
    """The plan that a worker's probe obeys for orders of one manner."""
    level, task, modules = orders[0].manner
    return {
        "root": root,
        "step": step,
        "stages": list(dict.fromkeys(stage for order in orders for stage in order.stages)),
        "level": level,
        "task": task,
        "modules": list(modules),
        "min_free_bytes": min_free_bytes,
        "expected_bytes": sum(order.expected_bytes for order in orders),
    }


def arm(trainer: Any, orders: list[Order], step: int, root: str, min_free_bytes: int | None = None) -> Armed:
    """Queue the arming of one step on every rank that one of the orders wants."""
    plan = plan_of(orders, step, root, min_free_bytes)
    chosen = [w for rank, w in _ranked(trainer) if any(o.ranks is None or rank in o.ranks for o in orders)]
    calls = [worker.__ray_call__.remote(arming.arm, plan) for worker in chosen]
    return Armed(orders, step, plan, chosen, calls, [])


def preload(trainer: Any) -> None:
    """Queue the import of msprobe on every worker, so that the first captured step does not wait for it."""
    for worker in workers_of(trainer):
        attempt(lambda worker=worker: worker.__ray_call__.remote(arming.preload))  # type: ignore[misc]


def disarm(armed: Armed) -> None:
    """Queue the disarming; the answers are collected elsewhere."""
    armed.disarm_calls = [worker.__ray_call__.remote(arming.disarm) for worker in armed.workers]


def ask(trainer: Any, question: Callable[[Any], dict[str, Any]], timeout_seconds: float) -> list[dict[str, Any]]:
    """Put one question to every worker and return the answers that came. On a background thread only."""
    workers = workers_of(trainer)
    if not workers:
        return []
    answers: list[dict[str, Any]] = []
    for call in [worker.__ray_call__.remote(question) for worker in workers]:
        # A worker that does not answer says nothing: unknown, not absent.
        attempt(lambda call=call: answers.append(_value(call, timeout_seconds)))  # type: ignore[misc]
    return answers


def _ranked(trainer: Any) -> Iterable[tuple[int, Any]]:
    """Workers with their rank inside their own group."""
    seen: set[Any] = set()
    for name in _GROUPS:
        for rank, worker in enumerate(getattr(getattr(trainer, name, None), "workers", None) or ()):
            key = getattr(worker, "_actor_id", id(worker))
            if key not in seen:
                seen.add(key)
                yield rank, worker


def collect(armed: Armed, timeout_seconds: float) -> tuple[list[dict[str, Any]], list[str]]:
    """Wait for the workers' answers. On a background thread only.

    Returns:
        What each rank dumped, and what went wrong.
    """
    answers, problems = [], []
    for calls in (armed.arm_calls, armed.disarm_calls):
        for call in calls:
            got: list[Any] = []
            failure = attempt(lambda call=call, got=got: got.append(_value(call, timeout_seconds)))  # type: ignore[misc]
            if failure is not None:
                problems.append(f"worker did not answer: {type(failure).__name__}")
                continue
            answer = got[0]
            if answer.get("error"):
                problems.append(f"rank {answer.get('rank')}: {answer['error']}")
            if answer.get("broken"):
                problems.append(f"rank {answer.get('rank')}: {answer['broken']}")
            if calls is armed.disarm_calls and answer:
                answers.append(answer)
    return answers, problems
