# SPDX-License-Identifier: Apache-2.0
"""The overrides that make verl record its rollouts or train on recorded ones, and what stands in the way of it.

What verl does silently is said here: it acts only on steps that are listed, in the section of `skip` that its trainer
obeys, and on a folder whose name holds names, batch, n and lengths of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentinel.core.rollout.place import Place
from sentinel.core.rollout.replayed import SWITCHES
from sentinel.records import RolloutRecording

TRAINERS = tuple(SWITCHES)
LAYOUTS: Mapping[str, str] = {"v0": "v0", "v1": "v1", "async": "v0"}
"""Trainer -> the layout that it writes and reads."""
_SHOWN = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class StubPlan:
    """The answer of `sentinel stub`."""

    action: str
    verl: str | None
    trainer: str
    overrides: tuple[str, ...]
    problems: tuple[str, ...]
    recording: RolloutRecording | None = None
    missing: tuple[int, ...] = ()

    @property
    def ready(self) -> bool:
        """Nothing stands in the way."""
        return not self.problems


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is known of verl and of the run."""

    verl: str | None
    """Version; None where it is not installed."""
    sections: tuple[str, ...]
    """Sections of `skip` that this verl has."""
    trainer: str
    place: Place | None
    """Where the run looks; None where its configuration is not known."""
    why_no_place: str = ""
    skip: Mapping[str, Any] | None = None
    """The `skip` part of the run's configuration."""
    shuffled: bool | None = None
    """data.shuffle; None where not known."""


def record(setting: Setting, folder: str, steps: Sequence[int], there: Sequence[RolloutRecording]) -> StubPlan:
    """How a run is made to record.

    Args:
        setting: verl and the run.
        folder: dump_dir of the recording.
        steps: steps to record.
        there: what lies in the folder already.
    """
    problems = _common(
        setting, steps, "trainer.total_training_steps of --launch was not found: give --steps, e.g. 1-20"
    )
    for found in there:
        done = sorted({*found.steps} & {*steps})
        if done and (setting.place is None or _key(found) == setting.place.folder):
            problems.append(
                f"{found.path} holds steps {listed(done)} already: verl would load them instead of recording; take another --dump-dir"
            )
    return StubPlan(
        action="record",
        verl=setting.verl,
        trainer=setting.trainer,
        overrides=_overrides(setting, folder, steps),
        problems=tuple(problems),
    )


def replay(setting: Setting, folder: str, steps: Sequence[int], there: Sequence[RolloutRecording]) -> StubPlan:
    """How a run is made to train on a recording.

    Args:
        setting: verl and the run.
        folder: dump_dir that holds the recording.
        steps: steps to replay; empty: all that are recorded.
        there: the recordings below the folder.
    """
    found, problems = _chosen(setting, folder, there)
    steps = tuple(steps) or (found.steps if found else ())
    problems += _common(setting, steps, f"{folder} holds no complete step")
    missing: tuple[int, ...] = ()
    if found is not None:
        missing = tuple(step for step in steps if step not in found.steps)
        problems += _of_recording(setting, found, missing)
    if setting.place is None:
        problems.append(
            f"whether the run will look there was not checked: {setting.why_no_place or 'give --launch SCRIPT'}"
        )
    return StubPlan(
        action="replay",
        verl=setting.verl,
        trainer=setting.trainer,
        overrides=_overrides(setting, folder, steps),
        problems=tuple(problems),
        recording=found,
        missing=missing,
    )


def listed(steps: Sequence[int]) -> str:
    """Steps for people: `1-8, 12`."""
    parts: list[str] = []
    ordered = sorted(set(steps))
    start = 0
    for place, step in enumerate(ordered):
        if place + 1 == len(ordered) or ordered[place + 1] != step + 1:
            first = ordered[start]
            parts.append(str(first) if first == step else f"{first}-{step}")
            start = place + 1
    return ", ".join(parts[:_SHOWN]) + (", ..." if len(parts) > _SHOWN else "")


def _common(setting: Setting, steps: Sequence[int], no_steps: str) -> list[str]:
    problems = []
    section = SWITCHES[setting.trainer]
    if setting.verl is None:
        problems.append("verl is not installed here: the overrides are those of verl 0.9")
    elif section not in setting.sections:
        problems.append(f"verl {setting.verl} has no skip.{section}; verl 0.9.0 and newer have it")
    if not steps:
        problems.append(no_steps)
    if setting.shuffled:
        problems.append(
            "data.shuffle is True: the prompts of a step must be the same on both sides (data.shuffle=False)"
        )
    for name, part in (setting.skip or {}).items():
        if not isinstance(part, Mapping) or str(part.get("enable")).lower() != "true":
            continue
        if name != section:
            problems.append(f"the launch sets skip.{name}.enable=True, which the {setting.trainer} trainer ignores")
        elif str(part.get("action")) == "repeat":
            problems.append(
                f"the launch sets skip.{name}.action=repeat: a missing step is replaced by another one; `cache` is wanted"
            )
    return problems


def _overrides(setting: Setting, folder: str, steps: Sequence[int]) -> tuple[str, ...]:
    section = f"skip.{SWITCHES[setting.trainer]}"
    return (
        f"{section}.enable=True",
        f"{section}.dump_dir={folder}",
        f"{section}.steps=[{','.join(map(str, steps))}]",
        "data.shuffle=False",
    )


def _key(found: RolloutRecording) -> str:
    return f"{found.names}/{found.shape}"


def _chosen(
    setting: Setting, folder: str, there: Sequence[RolloutRecording]
) -> tuple[RolloutRecording | None, list[str]]:
    """The recording that the run would find, or the one that comes nearest, and why it will not be found."""
    if not there:
        return None, [f"{folder} holds no recording (no folder GBS<batch>_N<n>_in<length>_out<length>)"]
    place = setting.place
    if place is None:
        return max(there, key=lambda found: len(found.steps)), []
    for found in there:
        if _key(found) == place.folder:
            return found, []
    same_shape = [found for found in there if found.shape == place.shape]
    if same_shape:
        found = same_shape[0]
        why = (
            f"the run looks for {place.names}, the recording is {found.names}: --into DIR lays it out under the run's names "
            "(or override trainer.experiment_name and trainer.project_name)"
        )
        return found, [why]
    found = max(there, key=lambda found: len(found.steps))
    return found, [
        f"the run looks for {place.shape}, the recording is {found.shape}: batch, n and lengths must be the recorded ones"
    ]


def _of_recording(setting: Setting, found: RolloutRecording, missing: Sequence[int]) -> list[str]:
    problems = []
    if missing:
        told = "; ".join(f"step {step}: {found.broken[step]}" for step in missing if step in found.broken)
        problems.append(
            f"steps {listed(missing)} are not in the recording, or not whole: verl would generate them"
            + (f" ({told})" if told else "")
        )
    wanted = LAYOUTS[setting.trainer]
    if found.layout and found.layout != wanted:
        problems.append(
            f"the recording is one of the {found.layout} trainer, and the {setting.trainer} trainer cannot read it: "
            "record and replay with the same trainer"
        )
    elif setting.place is not None and wanted == "v1" and found.inner != setting.place.inner:
        problems.append(
            f"the recording has {found.inner} mini-batches a step, the run samples {setting.place.inner} (parameter_sync_step)"
        )
    return problems
