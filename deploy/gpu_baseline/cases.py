# SPDX-License-Identifier: Apache-2.0
"""What is run for the GPU baseline: recipes, their seeds and twins, and the steps whose golden dumps are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

TINY, LARGE = "tiny", "large"
REFERENCE_SEED = 42


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One recipe of training, of which several runs are made."""

    name: str
    trainer: str = "v0"
    critic: bool = False
    precision: str = "fp32"
    model: str = TINY
    prompts: int = 8
    """Prompts a step; each is answered four times."""
    steps: int = 60
    other_seeds: tuple[int, ...] = (43, 44)
    """Seeds of the free runs beside the reference."""
    golden: int = 24
    """Every stage of the steps 2 to this one is dumped in the reference run."""


CASES = (
    Case(name="tiny-grpo-fp32", steps=120, other_seeds=(43, 44, 45, 46)),
    Case(name="tiny-grpo-bf16", precision="bf16"),
    Case(name="tiny-gae-fp32", critic=True),
    Case(name="tiny-gae-bf16", critic=True, precision="bf16", steps=40, other_seeds=(43,)),
    Case(name="tiny-v1-grpo-fp32", trainer="v1", steps=30, other_seeds=(43,), golden=12),
    Case(name="large-grpo-bf16", model=LARGE, precision="bf16", prompts=2, steps=24, other_seeds=(43,), golden=10),
    Case(name="large-grpo-fp32", model=LARGE, prompts=2, steps=24, other_seeds=(43,), golden=10),
)


def chosen(names: list[str], most_steps: int | None) -> list[Case]:
    """The cases of these names (all without one), cut to at most so many steps: for a rehearsal."""
    unknown = set(names) - {case.name for case in CASES}
    if unknown:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in CASES)}")
    cases = [case for case in CASES if not names or case.name in names]
    if most_steps is None:
        return cases
    return [replace(case, steps=min(case.steps, most_steps), golden=min(case.golden, most_steps)) for case in cases]
