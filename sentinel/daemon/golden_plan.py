# SPDX-License-Identifier: Apache-2.0
"""The order for a golden made to order: what the reference side has to dump so that an incident can be compared.

A golden dump proves something only where step, rows and starting weights agree. A run that has drifted shares none of
its weights with the reference any more, so the reference has to start from the run's own checkpoint and rollouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentinel.errors import DaemonError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sentinel.records import Incident


def plan(incident: Incident, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of `sentinel captures plan`.

    Args:
        incident: the incident whose dump has no golden one that compares.
        facts: what the run's trainer said of itself.

    Raises:
        DaemonError: nothing was dumped or ordered for this incident, so there is nothing to compare with.
    """
    order, receipt = incident.capture, incident.receipt
    if order is None:
        raise DaemonError(f"incident {incident.id} has no capture: there is nothing to compare a golden dump with")
    dumped = receipt if receipt is not None and receipt.paths else None
    first, last = (dumped.first_step, dumped.last_step) if dumped else (order.first_step, order.last_step)
    stages = list(dumped.stages if dumped else order.stages)
    wanted = {
        "id": f"{incident.id}/golden",
        "first_step": first,
        "last_step": last,
        "stages": stages,
        "level": order.level,
        "ranks": "all",
        "why": f"golden dump for incident {incident.id}",
        "modules": list(order.modules),
        "task": order.task,
    }
    step = saved_step(first, facts.get("save_freq"))
    folder = facts.get("checkpoint_dir")
    return {
        "incident": incident.id,
        "checkpoint": f"{folder}/global_step_{step}" if folder and step is not None else None,
        "rollouts": facts.get("replay_dir") or facts.get("rollout_data_dir") or None,
        "orders": [wanted],
        "how": how(first, step),
    }


def saved_step(first: int, save_freq: object) -> int | None:
    """Return the newest step before `first` whose checkpoint the run saved; None where it saves none that is known."""
    if not isinstance(save_freq, int) or isinstance(save_freq, bool) or save_freq <= 0:
        return None
    return (first - 1) // save_freq * save_freq or None


def how(first: int, saved: int | None) -> str:
    """Return what to do with the file, as a person would be told.

    Args:
        first: the first step that is dumped.
        saved: step of the checkpoint to start from; None where none is known.
    """
    begin = first - 1 if saved is None else saved
    between = (
        "Without that checkpoint the starting weights differ, and triage will say so."
        if begin == first - 1
        else f"Steps {begin + 1} to {first - 1} are trained again there: the starting weights of step {first} agree only if the "
        "fault had not moved them by then, and triage will say whether they do."
    )
    return (
        f"On the reference machine: resume from the run's checkpoint of step {begin}, replay the run's own rollouts "
        f"from step {begin + 1} on, and start with SENTINEL_ORDERS=<this file> and SENTINEL_RECORD=<golden file>; then "
        f"`sentinel baseline add` the golden file, or `sentinel triage` the two dumps. {between}"
    )
