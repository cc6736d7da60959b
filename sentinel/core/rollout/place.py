# SPDX-License-Identifier: Apache-2.0
"""Where a run looks for its recorded rollouts: names, batch, answers a prompt and lengths are part of verl's path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """What of a run's configuration is part of the path."""

    experiment: str
    project: str
    batch: int
    n: int
    prompt_length: int
    response_length: int
    inner: int = 1
    """V1: mini-batches that one step samples (parameter_sync_step)."""

    @property
    def names(self) -> str:
        """First folder."""
        return f"{self.experiment}_{self.project}"

    @property
    def shape(self) -> str:
        """Second folder."""
        return f"GBS{self.batch}_N{self.n}_in{self.prompt_length}_out{self.response_length}"

    @property
    def folder(self) -> str:
        """Both."""
        return f"{self.names}/{self.shape}"


def place_of(config: Mapping[str, Any]) -> Place | None:
    """Where a run of this configuration looks; None where the configuration does not say everything."""
    data, rollout = _at(config, "data"), _at(config, "actor_rollout_ref.rollout")
    trainer = _at(config, "trainer")
    batch = data.get("gen_batch_size") or data.get("train_batch_size")
    numbers = (batch, rollout.get("n"), data.get("max_prompt_length"), data.get("max_response_length"))
    names = trainer.get("experiment_name"), trainer.get("project_name")
    if not all(str(number).isdecimal() for number in numbers) or not all(names):
        return None
    mode = _at(trainer, "v1").get("trainer_mode")
    inner = _at(trainer, f"v1.{mode}").get("parameter_sync_step") if mode else 1
    return Place(
        experiment=str(names[0]),
        project=str(names[1]),
        batch=int(str(numbers[0])),
        n=int(str(numbers[1])),
        prompt_length=int(str(numbers[2])),
        response_length=int(str(numbers[3])),
        inner=int(str(inner)) if str(inner).isdecimal() else 1,
    )


def _at(config: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    for name in path.split("."):
        inner = config.get(name)
        if not isinstance(inner, dict):
            return {}
        config = inner
    return config
