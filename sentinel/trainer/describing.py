# SPDX-License-Identifier: Apache-2.0
"""What the processes of a run say of themselves, for the checklist: launcher, configuration in force, each worker.

`describe_worker` is sent with Ray's `__ray_call__`. Nothing here runs on the trainer's thread, nothing raises, and
credentials are cut out before anything leaves the process.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from sentinel.trainer import reach
from sentinel.trainer.arming import chunks_of, rank_of, targets_of
from sentinel.trainer.fuse import attempt
from sentinel.trainer.seeding import SEEDING

_MODEL_FILES = ("config.json", "generation_config.json")
LOOK_SECONDS = 20.0
"""Two small files are read that often."""
WORKERS_SECONDS = 600.0
"""A worker answers between two stages; the first one may last minutes."""


def describe_worker(actor: Any) -> dict[str, Any]:
    """Return rank, host, versions, variables and seeds of a worker process."""
    answer: dict[str, Any] = {"rank": -1, "host": socket.gethostname(), "seeds": dict(SEEDING.said)}
    failure = attempt(lambda: answer.update(rank=rank_of(actor)))
    attempt(lambda: answer.update(parameters=parameters_of(actor), dtypes=dtypes_of(actor)))
    failure = attempt(lambda: answer.update(_of_process())) or failure
    return answer if failure is None else {**answer, "error": f"{type(failure).__name__}: {failure}"}


def parameters_of(actor: Any) -> int:
    """Return the parameters of this process's largest model; a sharded one counts whole where its parameters know it."""
    sizes = [sum(int(p.numel()) for chunk in chunks_of(t.model) for p in chunk.parameters()) for t in targets_of(actor)]
    return max(sizes, default=0)


def dtypes_of(actor: Any) -> dict[str, str]:
    """Return the dtype and device of each stage's parameters, as `bfloat16 on npu:0`; several with commas between."""
    found: dict[str, str] = {}
    for target in targets_of(actor):
        kinds = {
            f"{str(p.dtype).removeprefix('torch.')} on {p.device}"
            for c in chunks_of(target.model)
            for p in c.parameters()
        }
        found[target.stage] = ", ".join(sorted(kinds))
    return found


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


class ModelConfigWatch:
    """The configuration files of a model folder: whether their values changed since this was made.

    Some loaders write config.json anew while the run goes, and overwrite the end-of-sequence id with it.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known = {name: self._values(name) for name in _MODEL_FILES}

    def look(self) -> list[str]:
        """Return a sentence for each file whose values changed since the last look; another layout is no change."""
        said = []
        for name, before in self._known.items():
            now = self._values(name)
            if now is None or before is None or now == before:
                continue
            keys = sorted(key for key in {*now, *before} if now.get(key) != before.get(key))
            parts = [f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in keys[:3]]
            said.append(f"{name} of the model was rewritten while the run goes: {'; '.join(parts)}")
            self._known[name] = now
        return said

    def _values(self, name: str) -> dict[str, Any] | None:
        """Return the content of a file; None where it cannot be read, or is being written at this moment."""
        found: list[Any] = []

        def read() -> None:
            with open(os.path.join(self._folder, name), encoding="utf-8") as file:
                found.append(json.load(file))

        attempt(read)
        return found[0] if found and isinstance(found[0], dict) else None


def watch_model(trainer: Any, said: Callable[[str], None], over: threading.Event) -> None:
    """Look after the model's configuration files until `over` is set. On a background thread only."""
    folder = str(trainer.config.actor_rollout_ref.model.path)
    if not os.path.isdir(folder):
        return
    watch = ModelConfigWatch(folder)
    while not over.wait(LOOK_SECONDS):
        for text in watch.look():
            said(text)


def _config(config: Any) -> Any:
    from omegaconf import OmegaConf

    from sentinel.facts.secrets import clean_plain

    return clean_plain(OmegaConf.to_container(config, resolve=True))
