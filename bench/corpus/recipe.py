# SPDX-License-Identifier: Apache-2.0
"""What is trained and how: the recipes of the corpus, and the checkpoint each starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from bench.corpus.losses import Adam, AdamSettings, masked_mean, token_log_probs
from bench.corpus.model import Kernel, Shape, forward, fresh, views
from bench.corpus.task import PAD, SPECIAL, Problems, Task, problems


@dataclass(frozen=True)
class Recipe:
    """One training configuration; every run of a group shares it."""

    name: str
    algorithm: str
    """grpo or ppo."""
    model: str
    width: int
    layers: int
    heads: int
    symbols: int
    lr: float
    steps: int = 80
    critic_lr: float = 1e-3
    kl_coef: float = 0.01
    prompts: int = 12
    group: int = 4
    """Responses per prompt; 1 for PPO."""
    mini_batches: int = 2
    bf16: bool = True
    shuffled: bool = False
    """Each seed has its own data order; otherwise all seeds read the data in file order."""
    recorded: bool = False
    """In a replay the recording's log-probabilities are used, as verl does; otherwise the engine scores the tokens again."""
    warm_steps: int = 100
    model_seed: int = 7

    @property
    def task(self) -> Task:
        return Task(symbols=self.symbols)

    @property
    def shape(self) -> Shape:
        task = self.task
        positions = task.prompt_width + task.room + 1
        return Shape(task.vocabulary, self.width, self.layers, self.heads, positions, task.vocabulary)

    @property
    def critic_shape(self) -> Shape:
        return replace(self.shape, outputs=1)


SMALL = {"model": "small", "width": 64, "layers": 2, "heads": 4, "symbols": 20}
TALL = {"model": "tall", "width": 96, "layers": 3, "heads": 4, "symbols": 28, "model_seed": 11, "warm_steps": 90}
NARROW = {"model": "narrow", "width": 48, "layers": 3, "heads": 3, "symbols": 24, "model_seed": 17, "warm_steps": 110}
WIDE = {"model": "wide", "width": 128, "layers": 1, "heads": 8, "symbols": 16, "model_seed": 13, "warm_steps": 60}

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="grpo-small", algorithm="grpo", lr=4e-4, shuffled=True, **SMALL),
        Recipe(name="grpo-small-gentle", algorithm="grpo", lr=2e-4, recorded=True, **SMALL),
        Recipe(name="grpo-wide-fp32", algorithm="grpo", lr=4e-4, bf16=False, **WIDE),
        Recipe(name="ppo-small", algorithm="ppo", lr=4e-4, prompts=48, group=1, kl_coef=0.02, **SMALL),
        Recipe(name="grpo-tall", algorithm="grpo", lr=3e-4, **TALL),
        Recipe(name="grpo-narrow", algorithm="grpo", lr=5e-4, kl_coef=0.02, shuffled=True, recorded=True, **NARROW),
        Recipe(name="ppo-narrow", algorithm="ppo", lr=3e-4, prompts=48, group=1, kl_coef=0.03, **NARROW),
        Recipe(name="ppo-tall", algorithm="ppo", lr=3e-4, prompts=48, group=1, kl_coef=0.02, shuffled=True, **TALL),
    )
}


@lru_cache(maxsize=8)
def data(recipe: Recipe) -> Problems:
    return problems(recipe.task, recipe.model_seed)


def misspelt(answers: torch.Tensor, task: Task, rng: torch.Generator) -> torch.Tensor:
    """Answers with a fifth of the symbols replaced, so that what is taught leaves room for doubt."""
    wrong = (torch.rand(answers.shape, generator=rng) < 0.2) & (answers >= SPECIAL)
    return torch.where(wrong, torch.randint(SPECIAL, task.vocabulary, answers.shape, generator=rng), answers)


@lru_cache(maxsize=8)
def checkpoint(recipe: Recipe) -> torch.Tensor:
    """Weights after a short supervised warm-up on other strings: right often enough to learn from, far from perfect."""
    task, shape = recipe.task, recipe.shape
    taught = problems(task, recipe.model_seed + 1000)
    flat = fresh(shape, recipe.model_seed)
    adam, kernel = Adam(shape.size, "cpu"), Kernel(bf16=False, attention="sdpa", fused_norm=True)
    order = torch.Generator().manual_seed(recipe.model_seed)
    for step in range(recipe.warm_steps):
        rows = torch.randint(task.prompts, (64,), generator=order)
        prompts, answers = taught.prompts[rows], misspelt(taught.answers[rows], task, order)
        leaf = flat.clone().requires_grad_()
        logits, _ = forward(views(leaf, shape), torch.cat([prompts, answers[:, :-1]], 1), shape, kernel)
        logs, _ = token_log_probs(logits[:, prompts.shape[1] - 1 :], answers)
        (-masked_mean(logs, answers != PAD)).backward()
        rate = 2e-3 * min(1.0, step / 20)
        adam.step(flat, leaf.grad, AdamSettings(lr=rate))
    return flat


def critic_checkpoint(recipe: Recipe) -> torch.Tensor:
    """The policy's trunk under a fresh value head."""
    shape, critic = recipe.shape, recipe.critic_shape
    start = views(fresh(critic, recipe.model_seed + 5), critic)
    trunk = views(checkpoint(recipe), shape)
    return torch.cat([(trunk[name] if name != "head" else start[name]).reshape(-1) for name in critic.tensors()])
