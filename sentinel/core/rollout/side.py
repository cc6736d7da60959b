# SPDX-License-Identifier: Apache-2.0
"""Why rollout text broke, from when it broke: at the first rollout, after an update, or after a NaN."""

from __future__ import annotations

from dataclasses import dataclass

from sentinel.records import Suspect

NAN_REACH = 3
"""Steps after a NaN within which broken text is put down to it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Circumstances:
    """What is known of the run beside its text."""

    first_step: int
    """The first step of this attempt whose text was judged."""
    healthy_steps: tuple[int, ...] = ()
    """Steps of this attempt that were judged healthy."""
    non_finite_step: int | None = None
    """Last step before this one with NaN or Inf."""
    load_format: str | None = None
    """actor_rollout_ref.rollout.load_format; None where not known."""
    folder: str = "ROLLOUT_DATA_DIR"
    replayed: bool = False
    """True: the text is the baseline's recording, and not this run's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """The verdict: suspects, most likely first, and what to compare."""

    suspects: tuple[Suspect, ...]
    compare: str
    notes: tuple[str, ...] = ()


def side_of(step: int, kind: str, around: Circumstances) -> Side:
    """The stage that broken text of `step` points at."""
    smaller = f"A smaller reproduction: sentinel rollout check {around.folder} --reproduce repro.py"
    nan = around.non_finite_step
    if nan is not None and 0 <= step - nan <= NAN_REACH and nan < step:
        return Side(
            suspects=(
                Suspect("actor_update", 0.75, f"the text is {kind} after NaN or Inf at step {nan}: the update before"),
                Suspect("rollout", 0.2, "unless the weights were synchronised wrongly as well"),
            ),
            compare=f"the update of step {nan} (gradients, optimizer state), then the weights that were sent after it.",
            notes=(smaller,),
        )
    if not around.healthy_steps:
        return _from_the_first(step, kind, around, smaller)
    return Side(
        suspects=(
            Suspect(
                "rollout",
                0.8,
                f"the text was sound up to step {max(around.healthy_steps)} and is {kind} after an update: weight sync",
            ),
            Suspect("actor_update", 0.15, "unless the update itself broke the policy"),
        ),
        compare=(
            "the weights that the trainer sent after the last update with those that the engine received, name by name; "
            "then one forward pass of the same tokens on both sides."
        ),
        notes=(smaller,),
    )


def _from_the_first(step: int, kind: str, around: Circumstances, smaller: str) -> Side:
    began = f"the text is {kind} from the first rollout on (step {step})"
    if around.load_format is None:
        how, more = (
            f"{began}: weight load or resharding, or the engine's forward pass",
            (
                "load_format is not known; with `dummy` the first weights come from the trainer (resharding), otherwise from disk.",
            ),
        )
    elif around.load_format.startswith("dummy"):
        how, more = (
            f"{began} with load_format={around.load_format}: resharding or weight load",
            (
                "load_format=safetensors may cure it; resharding stays suspicious all the same: every later sync takes that way.",
            ),
        )
    else:
        how, more = (
            f"{began} with load_format={around.load_format}: weights come from disk, so the engine's forward pass",
            (
                "compare tokenizer, chat template and the model's files (sentinel preflight), then the engine's kernels.",
            ),
        )
    return Side(
        suspects=(Suspect("rollout", 0.9, how), Suspect("config", 0.05, "unless tokenizer or template differ")),
        compare=(
            "the weights: on disk, as exported, as sent, as received; equal weights leave the engine's forward pass: compare "
            "its log-probs of the same tokens with the trainer's."
        ),
        notes=(*more, smaller),
    )
