# SPDX-License-Identifier: Apache-2.0
"""What the processes of a run say of themselves, for the checklist: launcher, configuration in force, each worker.

`describe_worker` is sent with Ray's `__ray_call__`. Nothing here runs on the trainer's thread, nothing raises, and
credentials are cut out before anything leaves the process.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from sentinel.trainer import reach
from sentinel.trainer.arming import rank_of
from sentinel.trainer.fuse import attempt
from sentinel.trainer.seeding import SEEDING

WORKERS_SECONDS = 600.0
"""A worker answers between two stages; the first one may last minutes."""


def describe_worker(actor: Any) -> dict[str, Any]:
    """Return rank, host, versions, variables and seeds of a worker process."""
    answer: dict[str, Any] = {"rank": -1, "host": socket.gethostname(), "seeds": dict(SEEDING.said)}
    failure = attempt(lambda: answer.update(rank=rank_of(actor)))
    failure = attempt(lambda: answer.update(_of_process())) or failure
    return answer if failure is None else {**answer, "error": f"{type(failure).__name__}: {failure}"}


def _of_process() -> dict[str, Any]:
    from sentinel.facts import process_facts

    facts = process_facts()
    return {name: facts[name] for name in ("python", "packages", "variables", "hardware")}


def describe_run(trainer: Any, emit: Callable[[dict[str, Any]], None]) -> None:
    """Emit the facts of this process and of the configuration at once, those of the workers once they answered.

    On a background thread only.
    """
    facts: dict[str, Any] = {"process": _of_process()}
    failure = attempt(lambda: facts.update(config={"effective": _config(trainer.config), "source": "the live trainer"}))
    if failure is not None:
        facts["config"] = {"why": {"effective": f"the live configuration: {type(failure).__name__}: {failure}"}}
    emit(facts)
    workers = reach.ask(trainer, describe_worker, WORKERS_SECONDS)
    if workers:
        emit({"workers": workers})


def _config(config: Any) -> Any:
    from omegaconf import OmegaConf

    from sentinel.facts.secrets import clean_plain

    return clean_plain(OmegaConf.to_container(config, resolve=True))
