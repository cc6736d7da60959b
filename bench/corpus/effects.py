# SPDX-License-Identifier: Apache-2.0
"""What planted faults do: functions from the value of a point and a `Moment` to the value that the run goes on with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from bench.corpus.losses import AdamSettings
from bench.corpus.model import Tweak, round_mantissa, views, with_rng
from bench.corpus.rollout import Sampling
from bench.corpus.task import PAD, SPECIAL, response_mask
from bench.corpus.trainer import Trainer


@dataclass(frozen=True)
class Moment:
    """What an effect may know: its size, the steps since onset, a generator of its own, and the trainer."""

    size: float
    since: int
    rng: torch.Generator
    trainer: Trainer


def rows_hit(count: int, share: float, rng: torch.Generator) -> torch.Tensor:
    """A mask of at least one row."""
    chosen = torch.rand(count, generator=rng) < share
    chosen[int(torch.randint(count, (1,), generator=rng))] = True
    return chosen


# ---------------------------------------------------------------- data and configuration


def other_order(rows, at: Moment):
    """A share of the step's prompts are other ones."""
    hit = rows_hit(len(rows), at.size, at.rng)
    return torch.where(hit, torch.randint(at.trainer.recipe.task.prompts, rows.shape, generator=at.rng), rows)


def repeated(rows, at: Moment):
    """A share of the step's prompts are those of the step before."""
    hit = rows_hit(len(rows), at.size, at.rng)
    order, first = at.trainer.order, (at.trainer.done - 2) * len(rows)
    return torch.where(hit, order[(first + torch.arange(len(rows))) % len(order)], rows)


def cut_prompts(prompts, at: Moment):
    """A share of the prompts lose their first tokens."""
    hit = rows_hit(len(prompts), at.size, at.rng)[:, None]
    kept = (prompts != PAD).int().cumsum(1) > 2
    return torch.where(hit & ~kept, PAD, prompts)


def times(value, at: Moment):
    return value * at.size


# ---------------------------------------------------------------- rollout


def frozen_share(flat, at: Moment):
    """The last share of the weight tensors is never sent again."""
    kept = int(len(flat) * (1 - at.size))
    return torch.cat([flat[:kept], at.trainer.engine[kept:]])


def stale(_flat, at: Moment):
    """The engine runs behind by so many steps."""
    history = at.trainer.history
    return history[max(0, len(history) - 1 - int(at.size))].clone()


def rounded(flat, at: Moment):
    return round_mantissa(flat, int(at.size))


def noisy(flat, at: Moment):
    return flat * (1 + at.size * torch.randn(flat.shape, generator=at.rng).to(flat.device))


def scaled_up(flat, at: Moment):
    return flat * at.size


def crossed(responses, at: Moment):
    """A share of the rows swap their responses with the next row's."""
    hit = rows_hit(len(responses), at.size, at.rng)[:, None].to(responses.device)
    return torch.where(hit, responses.roll(1, 0), responses)


def garbled(responses, at: Moment):
    """A share of the rows become random symbols, as long as before."""
    hit = rows_hit(len(responses), at.size, at.rng)[:, None].to(responses.device)
    vocabulary = at.trainer.recipe.task.vocabulary
    salad = torch.randint(SPECIAL, vocabulary, responses.shape, generator=at.rng).to(responses.device)
    return torch.where(hit & response_mask(responses) & (responses >= SPECIAL), salad, responses)


def hotter(sampling: Sampling, at: Moment):
    return replace(sampling, temperature=at.size)


def endless(sampling: Sampling, at: Moment):
    return replace(sampling, ending=-at.size)


def raw_log_probs(logs, at: Moment):
    """The engine reports log-probabilities of another temperature than the one it sampled at."""
    return logs * at.size


# ---------------------------------------------------------------- reward


def zeroed(scores, at: Moment):
    return torch.where(rows_hit(len(scores), at.size, at.rng).to(scores.device), 0.0, scores)


def raised(value, at: Moment):
    return value + at.size


def capped(value, at: Moment):
    return value.clamp_max(at.size)


def hazy(value, at: Moment):
    """Noise on every entry."""
    return value + at.size * torch.randn(value.shape, generator=at.rng).to(value)


def swapped(scores, at: Moment):
    """A share of the rows get the score of their neighbour."""
    return torch.where(rows_hit(len(scores), at.size, at.rng).to(scores.device), scores.roll(1), scores)


def not_a_number(value, at: Moment):
    """One entry in each of `size` steps."""
    return spoilt(value, at, float("nan"))


def infinite(value, at: Moment):
    return spoilt(value, at, float("inf"))


def spoilt(value, at: Moment, what: float):
    if at.since >= at.size:
        return value
    if value.ndim == 0:
        return value * what
    value = value.clone()
    place = int(torch.randint(value.shape[0], (1,), generator=at.rng))
    value[(place, 0) if value.ndim > 1 else place] = what
    return value


# ---------------------------------------------------------------- forward passes


def dropout(tweak: Tweak, at: Moment):
    return with_rng(replace(tweak, dropout=at.size), at.rng)


def few_bits(tweak: Tweak, at: Moment):
    return replace(tweak, bits=int(at.size))


def layer_off(tweak: Tweak, at: Moment):
    return replace(tweak, layer_scale=1 - at.size)


def warmer(_temperature, at: Moment):
    return at.size


def shifted(value, at: Moment):
    """A share of the rows is off by one token."""
    hit = rows_hit(len(value), at.size, at.rng).to(value.device)
    return torch.where(hit[:, None], value.roll(1, 1), value)


def another_model(flat, at: Moment):
    """The reference is mixed with weights that have nothing to do with it."""
    other = flat[torch.randperm(len(flat), generator=at.rng).to(flat.device)] if at.size >= 1 else None
    noise = torch.randn(flat.shape, generator=torch.Generator().manual_seed(5)).to(flat.device) * flat.std()
    return (1 - at.size) * flat + at.size * (noise if other is None else other)


def moving_reference(flat, at: Moment):
    """The reference follows the actor: a share of the way."""
    return flat + at.size * (at.trainer.actor - flat)


# ---------------------------------------------------------------- advantage


def flipped(advantages, at: Moment):
    sign = 1 - 2 * rows_hit(len(advantages), at.size, at.rng).to(advantages)
    return advantages * sign[:, None]


def rows_forgotten(advantages, at: Moment):
    """A share of the rows has no advantage."""
    return advantages * ~rows_hit(len(advantages), at.size, at.rng).to(advantages.device)[:, None]


def wrong_groups(scores, at: Moment):
    """A share of the rows meets the wrong group when groups are formed."""
    hit = rows_hit(len(scores), at.size, at.rng).to(scores.device)
    return torch.where(hit, scores.roll(at.trainer.recipe.group), scores)


# ---------------------------------------------------------------- updates


def lr_times(settings: AdamSettings, at: Moment):
    return replace(settings, lr=settings.lr * at.size)


def first_beta(settings: AdamSettings, at: Moment):
    return replace(settings, beta1=at.size)


def second_beta(settings: AdamSettings, at: Moment):
    return replace(settings, beta2=at.size)


def large_eps(settings: AdamSettings, at: Moment):
    return replace(settings, eps=at.size)


def decaying(settings: AdamSettings, at: Moment):
    return replace(settings, decay=at.size)


def mask_shifted(mask, at: Moment):
    """A share of the rows has its loss mask one token late."""
    hit = rows_hit(len(mask), at.size, at.rng).to(mask.device)
    return torch.where(hit[:, None], mask.roll(1, 1), mask)


def half_heard(share, at: Moment):
    """Each piece is one rank's; without the all-reduce only a share of them is heard."""
    return share * (torch.rand(1, generator=at.rng).to(share.device) >= at.size)


def pull_apart(gradient, at: Moment):
    """Part of the gradient is lost: a share of the entries is zero."""
    kept = torch.rand(gradient.shape, generator=torch.Generator().manual_seed(3)).to(gradient.device) >= at.size
    return gradient * kept


def drowned(gradient, at: Moment):
    """Noise as large as so many times the gradient."""
    level = at.size * gradient.pow(2).mean().sqrt()
    return gradient + level * torch.randn(gradient.shape, generator=at.rng).to(gradient)


def turned(gradient, at: Moment):
    """A share of the entries has the wrong sign."""
    hit = torch.rand(gradient.shape, generator=torch.Generator().manual_seed(4)).to(gradient.device) < at.size
    return torch.where(hit, -gradient, gradient)


def layer_silent(gradient, at: Moment):
    """The first layers get no gradient."""
    gradient = gradient.clone()
    shape = at.trainer.recipe.shape
    parts = views(gradient, shape)
    for name, part in parts.items():
        if name[0].isdigit() and int(name[0]) < max(1, round(at.size * shape.layers)):
            part.zero_()
    return gradient
