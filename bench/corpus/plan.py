# SPDX-License-Identifier: Apache-2.0
"""Which runs make a corpus.

A group is one recipe in one regime with its reference: in a replay one base run and four twins on its tokens, in free
running five seeds. Clean runs and faulty runs of the group are scored against that reference.

Five splits. `tuning` and `validation` are for choosing constants; `validation` has other seeds, kernels that no twin uses, two
further models and 19 kinds of fault (VALIDATION_KINDS) that `tuning` never shows. It was the held-out split of an earlier engine
and has been looked at since. `test` has other seeds, a further model, kernels that neither has, and TEST_KINDS, of which half of its
faults are made; it was scored once before it was looked at, and measures limits since. `fresh` is the next of its sort, with other
seeds: scored once, then looked at for the e-detector; it sets no limit. `later` is the next after that, free runs alone, scored once. The clean runs of `validation` that ran on a GPU never set a limit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from bench.corpus.faults import KINDS, Fault, Kind
from bench.corpus.model import Kernel
from bench.corpus.recipe import RECIPES, Recipe

VALIDATION_KINDS = frozenset(
    {
        "data_cut",
        "kl_coef_configured",
        "weights_rounded",
        "end_suppressed",
        "reward_swapped",
        "old_layer_off",
        "old_mantissa",
        "ref_moving",
        "ref_temperature",
        "values_dropout",
        "advantage_lambda",
        "advantage_groups",
        "critic_dropout",
        "adam_beta",
        "gradient_holes",
        "layers_frozen",
        "update_dropout",
        "gradient_inf",
        "loss_nan",
    }
)
TEST_KINDS = frozenset(
    {
        "data_repeated",
        "weights_scaled",
        "responses_crossed",
        "rollout_log_probs_nan",
        "reward_raised",
        "reward_capped",
        "old_hazy",
        "ref_mantissa",
        "ref_layer_off",
        "values_hazy",
        "advantage_raised",
        "advantage_forgotten",
        "returns_scaled",
        "critic_mantissa",
        "critic_weights_rounded",
        "gradient_drowned",
        "gradient_turned",
        "update_layer_off",
        "adam_second_beta",
    }
)
ONSETS = (1, 4, 13, 31, 52)
AFTER_ONSET = 32
"""Steps that a faulty run goes on after its onset; what is not found by then is missed."""

FINE_SIZES = {
    "weights_rounded": (7, 6, 4),
    "weights_noisy": (0.001, 0.01, 0.1),
    "temperature_wrong": (1.005, 1.05, 1.5),
    "end_suppressed": (0.05, 0.4, 3.0),
    "log_probs_raw": (0.999, 0.98, 0.7),
    "old_temperature": (1.003, 1.03, 1.4),
    "old_dropout": (0.0005, 0.005, 0.1),
    "old_layer_off": (0.002, 0.02, 0.5),
    "old_mantissa": (7, 6, 4),
    "ref_other": (0.01, 0.1, 1.0),
    "ref_temperature": (1.01, 1.1, 1.6),
    "values_scaled": (1.005, 1.1, 3.0),
    "critic_lr": (1.5, 3.0, 20.0),
    "critic_loss_scaled": (1.15, 2.0, 30.0),
    "lr_used": (1.2, 2.0, 10.0),
    "adam_beta": (0.85, 0.7, 0.0),
    "adam_decay": (0.3, 3.0, 50.0),
    "gradient_scaled": (1.05, 1.5, 100.0),
    "update_dropout": (0.0005, 0.005, 0.1),
    "update_mantissa": (7, 5, 3),
    "loss_mask_shifted": (0.02, 0.15, 0.7),
    "weights_low_precision": (11, 9, 7),
}
"""Finer sizes, of the validation split and half of the test split; other kinds have the sizes of their table."""
SIZE_NAMES = ("small", "middle", "large")


@dataclass(frozen=True)
class Run:
    """One run to be made."""

    id: str
    group: str
    regime: str
    role: str
    """base, seed (free reference), twin, clean, fault."""
    recipe: str
    seed: int
    kernel: Kernel
    replay_of: str | None = None
    score_again: bool = False
    fault: Fault | None = None
    size_name: str = ""

    @property
    def steps(self) -> int:
        """A healthy run goes to the end of its recipe, a faulty one as far as it can teach something."""
        whole = RECIPES[self.recipe].steps
        return whole if self.fault is None else min(whole, self.fault.onset + AFTER_ONSET)


@dataclass(frozen=True)
class Group:
    regime: str
    recipe: str
    seed: int
    clean: int
    faults: int
    fine: bool
    """Faults have the sizes of FINE_SIZES."""


SPLITS = {
    "tuning": (
        Group("replayed", "grpo-small", 1, 8, 22, fine=False),
        Group("replayed", "ppo-small", 2, 8, 26, fine=False),
        Group("replayed", "grpo-small-gentle", 3, 8, 20, fine=False),
        Group("replayed", "ppo-small", 4, 8, 26, fine=False),
        Group("free", "grpo-small", 1, 14, 36, fine=False),
        Group("free", "ppo-small", 2, 14, 42, fine=False),
        Group("free", "grpo-small-gentle", 3, 8, 20, fine=False),
    ),
    "validation": (
        Group("replayed", "grpo-tall", 21, 16, 33, fine=True),
        Group("replayed", "ppo-tall", 22, 16, 36, fine=True),
        Group("replayed", "grpo-small", 23, 16, 33, fine=True),
        Group("replayed", "ppo-small", 24, 16, 36, fine=True),
        Group("replayed", "grpo-wide-fp32", 25, 16, 33, fine=True),
        Group("free", "grpo-small", 26, 26, 54, fine=True),
        Group("free", "ppo-small", 27, 26, 57, fine=True),
        Group("free", "grpo-wide-fp32", 28, 26, 54, fine=True),
        Group("free", "grpo-tall", 29, 26, 54, fine=True),
        Group("free", "ppo-tall", 30, 26, 57, fine=True),
        Group("replayed", "grpo-small-gentle", 31, 16, 30, fine=True),
        Group("replayed", "grpo-small", 32, 16, 33, fine=True),
        Group("replayed", "ppo-small", 33, 16, 36, fine=True),
    ),
    "test": (
        Group("replayed", "grpo-narrow", 41, 16, 26, fine=True),
        Group("replayed", "ppo-narrow", 42, 16, 30, fine=True),
        Group("replayed", "grpo-small", 43, 16, 26, fine=True),
        Group("replayed", "ppo-small", 44, 16, 30, fine=True),
        Group("replayed", "grpo-wide-fp32", 45, 16, 26, fine=True),
        Group("replayed", "grpo-small-gentle", 46, 16, 26, fine=True),
        Group("replayed", "ppo-small", 47, 16, 30, fine=True),
        Group("free", "grpo-narrow", 48, 24, 44, fine=False),
        Group("free", "ppo-narrow", 49, 24, 44, fine=False),
        Group("free", "grpo-small", 50, 24, 44, fine=False),
        Group("free", "ppo-small", 51, 24, 44, fine=False),
        Group("free", "grpo-wide-fp32", 52, 24, 44, fine=False),
    ),
    "fresh": (
        Group("replayed", "grpo-narrow", 61, 16, 24, fine=True),
        Group("replayed", "ppo-narrow", 62, 16, 28, fine=True),
        Group("replayed", "grpo-small", 63, 16, 24, fine=True),
        Group("replayed", "ppo-small", 64, 16, 28, fine=True),
        Group("replayed", "grpo-wide-fp32", 65, 16, 24, fine=True),
        Group("replayed", "grpo-tall", 66, 16, 24, fine=True),
        Group("replayed", "ppo-tall", 67, 16, 28, fine=True),
        Group("replayed", "grpo-small-gentle", 68, 16, 24, fine=True),
        Group("free", "grpo-narrow", 71, 26, 34, fine=False),
        Group("free", "ppo-narrow", 72, 26, 38, fine=False),
        Group("free", "grpo-small", 73, 26, 34, fine=False),
        Group("free", "ppo-tall", 74, 26, 38, fine=False),
        Group("free", "grpo-wide-fp32", 75, 26, 34, fine=False),
    ),
    "later": (
        Group("free", "ppo-narrow", 81, 26, 38, fine=False),
        Group("free", "grpo-narrow", 82, 26, 34, fine=False),
        Group("free", "ppo-small", 83, 26, 38, fine=False),
        Group("free", "grpo-tall", 84, 26, 34, fine=False),
        Group("free", "grpo-small", 85, 26, 34, fine=False),
    ),
}
UNSEEN = ("test", "fresh", "later")
"""Splits with kernels and kinds of fault that no constant was chosen on."""
SALT = {"validation": "held_out"}
"""What seeds a split's draws, where that is not its name: the validation split had another one when it was made."""


def runs(split: str, *, gpu: bool = False) -> list[Run]:
    """Every run of a split; with `gpu`, two clean runs of each group are made on the first CUDA device."""
    made: list[Run] = []
    for group in SPLITS[split]:
        made += of_group(group, split, gpu=gpu)
    return made


def of_group(group: Group, split: str, *, gpu: bool) -> list[Run]:
    recipe = RECIPES[group.recipe]
    name = f"{group.regime}-{group.recipe}-{group.seed}"
    rng = random.Random(f"{SALT.get(split, split)} {name}")
    common = {"group": name, "regime": group.regime, "recipe": group.recipe}
    plain = Kernel(bf16=recipe.bf16)
    replayed = group.regime == "replayed"
    seeds = iter(range(group.seed * 1000, group.seed * 1000 + 999))
    made: list[Run] = []

    def add(role: str, number: int, kernel: Kernel, **more) -> None:
        own = (
            {"seed": group.seed, "replay_of": f"{name}-base-0"}
            if replayed and role != "base"
            else {"seed": next(seeds)}
        )
        if role == "base":
            own = {"seed": group.seed, "score_again": not recipe.recorded}
        made.append(Run(id=f"{name}-{role}-{number}", role=role, kernel=kernel, **common, **own, **more))

    if replayed:
        add("base", 0, plain)
        for number, kernel in enumerate(twin_kernels(plain, rng)):
            add("twin", number, kernel)
    else:
        for number in range(5):
            add("seed", number, plain)
    for number in range(group.clean):
        kernel = other_kernel(plain, rng, split)
        add("clean", number, replace(kernel, device="cuda") if gpu and number < 2 else kernel)
    for number, (fault, size) in enumerate(planted(recipe, group, split, rng)):
        add("fault", number, other_kernel(plain, rng, split), fault=fault, size_name=size)
    return made


def twin_kernels(plain: Kernel, rng: random.Random) -> list[Kernel]:
    """Four repeats as someone with a GPU would make them: another attention kernel, another split of the batch."""
    return [
        replace(plain, attention=attention, micro_batches=rng.choice((1, 2, 4)), fused_norm=rng.random() < 0.5)
        for attention in ("sdpa", "sdpa", "online", "eager")
    ]


def other_kernel(plain: Kernel, rng: random.Random, split: str) -> Kernel:
    """What the candidate runs on: any kernel, also ones that no twin uses; in the test split also ones that no other split has."""
    if split in UNSEEN:
        return replace(
            plain,
            attention=rng.choice(("exp2", "exp2", "sdpa", "eager", "online", "half")),
            fused_norm=rng.random() < 0.5,
            splits=rng.choice((1, 1, 2, 3, 6)),
            micro_batches=rng.choice((1, 2, 3, 6)),
        )
    return replace(
        plain,
        attention=rng.choice(("sdpa", "eager", "online", "half")),
        fused_norm=rng.random() < 0.5,
        splits=rng.choice((1, 2, 4)),
        micro_batches=rng.choice((1, 2, 3, 4)),
        threads=rng.choice((1, 1, 1, 1, 1, 1, 1, 2)),
    )


def planted(recipe: Recipe, group: Group, split: str, rng: random.Random) -> list[tuple[Fault, str]]:
    """`group.faults` different (kind, size) pairs, kinds in turn so that every kind appears, onsets drawn."""
    kinds = [
        kind
        for kind in KINDS.values()
        if recipe.algorithm in kind.algorithms
        and group.regime in kind.regimes
        and (split != "tuning" or kind.name not in VALIDATION_KINDS)
    ]
    new = in_turn([kind for kind in kinds if kind.name in TEST_KINDS], rng) if split in UNSEEN else []
    old = in_turn([kind for kind in kinds if kind.name not in TEST_KINDS], rng)
    half = min(len(new), group.faults // 2)
    chosen = []
    for number, (kind, size) in enumerate([*new[:half], *old[: group.faults - half]]):
        sizes = FINE_SIZES.get(kind.name, kind.sizes) if group.fine else kind.sizes
        fault = Fault(kind.name, sizes[size], rng.choice(ONSETS), seed=group.seed * 100 + number)
        chosen.append((fault, SIZE_NAMES[size]))
    return chosen


def in_turn(kinds: list[Kind], rng: random.Random) -> list[tuple[Kind, int]]:
    """Every kind at every size, each kind once before any comes again."""
    rng.shuffle(kinds)
    return [(kind, (place + turn) % 3) for turn in range(3) for place, kind in enumerate(kinds)]
