# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of single things as they were found: an answer, a recording on disk, a tensor of a dump.

Part of `sentinel.records`, which is where others import them from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One answer of a rollout, as the run wrote it."""

    prompt: str
    output: str
    score: float | None = None
    """None where the row has none; NaN is a value."""
    step: int | None = None


@dataclass(frozen=True, slots=True)
class RolloutRecording:
    """A recording of verl's rollouts for replays, as it lies on disk; its pickles are not opened."""

    path: str
    """The folder of steps `<dump_dir>/<names>/<shape>`."""
    names: str
    """`<experiment>_<project>`."""
    shape: str
    """`GBS<batch>_N<n>_in<prompt length>_out<response length>`."""
    layout: str
    """v0 (which the fully async trainer writes, too) or v1; empty where no step is complete."""
    steps: tuple[int, ...]
    """Complete ones."""
    broken: Mapping[int, str] = field(default_factory=dict)
    """Step -> what is wrong with it."""
    inner: int = 1
    """V1: most mini-batches of a step."""
    bytes: int = 0


class LayerStat(NamedTuple):
    """The statistics of one tensor of one module or operation in a dump.

    A tuple, because a dump holds hundreds of thousands: it is made in a fifth of a frozen dataclass's time.
    """

    name: str
    """Key of the dump entry, e.g. `Module.model.layers.0.mlp.Qwen2MLP.forward.0`."""
    module: str
    """Path of `named_modules()`; for an operation, its API name."""
    direction: str
    """forward, backward or parameters (also parameters_grad, told by `position`)."""
    position: str
    """input.0, output.0, kwarg.attention_mask, parameters.weight, parameters_grad.weight."""
    order: int
    """Place in the order of execution within the stage."""
    norm: float | None
    mean: float | None
    max: float | None
    min: float | None
    dtype: str
    shape: tuple[int, ...]
    checksum: str | None = None
    parent: str = ""
    """Key of the entry that this one ran inside, where the dump says so."""
    data: str | None = None
    """File of the tensor itself, where the dump kept it."""
