# SPDX-License-Identifier: Apache-2.0
"""What can be planted: kinds of fault, the stage that holds each, and three sizes, small to large.

An effect gets the value of its point and a `Moment`, and returns the value that the run goes on with. Effects act from
the onset to the end, except those whose size is a number of steps (values that are not finite).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from bench.corpus.losses import AdamSettings
from bench.corpus.model import Tweak, round_mantissa, views, with_rng
from bench.corpus.rollout import Sampling
from bench.corpus.task import PAD, SPECIAL, response_mask
from bench.corpus.trainer import Trainer

BOTH = ("grpo", "ppo")
REGIMES = ("replayed", "free")


@dataclass(frozen=True)
class Moment:
    """What an effect may know: its size, the steps since onset, a generator of its own, and the trainer."""

    size: float
    since: int
    rng: torch.Generator
    trainer: Trainer


@dataclass(frozen=True)
class Kind:
    """One kind of fault; `effects` maps each point it acts on to what it does there."""

    name: str
    stage: str
    sizes: tuple[float, float, float]
    effects: dict[str, Callable]
    algorithms: tuple[str, ...] = BOTH
    regimes: tuple[str, ...] = REGIMES


@dataclass(frozen=True)
class Fault:
    """A kind at a size from a step on."""

    kind: str
    size: float
    onset: int
    seed: int = 0

    def __call__(self, point: str, value: object, trainer: Trainer) -> object:
        kind = KINDS[self.kind]
        # The weights that the engine gets at the end of a step serve the next one.
        step = trainer.done + 1 if point == "rollout.weights" else trainer.done
        effect = kind.effects.get(point)
        if effect is None or step < self.onset:
            return value
        rng = torch.Generator().manual_seed(self.seed * 7919 + step)
        return effect(value, Moment(self.size, step - self.onset, rng, trainer))


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


def wrong_groups(scores, at: Moment):
    """A share of the rows meets the wrong group when groups are formed."""
    hit = rows_hit(len(scores), at.size, at.rng).to(scores.device)
    return torch.where(hit, scores.roll(at.trainer.recipe.group), scores)


# ---------------------------------------------------------------- updates


def lr_times(settings: AdamSettings, at: Moment):
    return replace(settings, lr=settings.lr * at.size)


def first_beta(settings: AdamSettings, at: Moment):
    return replace(settings, beta1=at.size)


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


def layer_silent(gradient, at: Moment):
    """The first layers get no gradient."""
    gradient = gradient.clone()
    shape = at.trainer.recipe.shape
    parts = views(gradient, shape)
    for name, part in parts.items():
        if name[0].isdigit() and int(name[0]) < max(1, round(at.size * shape.layers)):
            part.zero_()
    return gradient


ONCE = (1, 3, 10_000)
SHARES = (0.05, 0.25, 1.0)

KINDS = {
    kind.name: kind
    for kind in (
        Kind("data_order", "data", SHARES, {"data.rows": other_order}),
        Kind("data_cut", "data", (0.02, 0.2, 1.0), {"data.prompts": cut_prompts}),
        Kind("lr_configured", "config", (1.2, 3.0, 10.0), {"config.lr": times}),
        Kind("kl_coef_configured", "config", (1.5, 5.0, 50.0), {"config.kl_coef": times}),
        Kind("weight_sync_missing", "rollout", (0.1, 0.5, 1.0), {"rollout.weights": frozen_share}),
        Kind("weights_stale", "rollout", (1, 4, 15), {"rollout.weights": stale}),
        Kind("weights_rounded", "rollout", (6, 4, 3), {"rollout.weights": rounded}),
        Kind("weights_noisy", "rollout", (0.003, 0.03, 0.2), {"rollout.weights": noisy}),
        Kind("rows_garbled", "rollout", (0.02, 0.1, 0.5), {"rollout.responses": garbled}),
        Kind("temperature_wrong", "rollout", (1.05, 1.25, 2.0), {"rollout.sampling": hotter}),
        Kind("end_suppressed", "rollout", (0.3, 1.5, 6.0), {"rollout.sampling": endless}),
        Kind("log_probs_raw", "rollout", (0.99, 0.9, 0.6), {"rollout.log_probs": raw_log_probs}),
        Kind("reward_zeroed", "compute_rm_score", (0.03, 0.2, 0.7), {"reward.scores": zeroed}),
        Kind("reward_scaled", "compute_rm_score", (1.03, 1.3, 5.0), {"reward.scores": times}),
        Kind("reward_swapped", "compute_rm_score", SHARES, {"reward.scores": swapped}),
        Kind("reward_nan", "compute_rm_score", ONCE, {"reward.scores": not_a_number}),
        Kind("old_temperature", "actor_compute_log_prob", (1.02, 1.15, 1.7), {"old.temperature": warmer}),
        Kind("old_shifted", "actor_compute_log_prob", (0.02, 0.2, 1.0), {"old.log_probs": shifted}),
        Kind("old_dropout", "actor_compute_log_prob", (0.005, 0.05, 0.2), {"old.tweak": dropout}),
        Kind("old_layer_off", "actor_compute_log_prob", (0.02, 0.2, 0.9), {"old.tweak": layer_off}),
        Kind("old_mantissa", "actor_compute_log_prob", (6, 4, 2), {"old.tweak": few_bits}),
        Kind("old_nan", "actor_compute_log_prob", ONCE, {"old.log_probs": not_a_number}),
        Kind("ref_noisy", "ref_compute_log_prob", (0.02, 0.15, 0.6), {"ref.weights": noisy}),
        Kind("ref_other", "ref_compute_log_prob", (0.05, 0.25, 1.0), {"ref.weights": another_model}),
        Kind("ref_moving", "ref_compute_log_prob", (0.1, 0.5, 1.0), {"ref.weights": moving_reference}),
        Kind("ref_temperature", "ref_compute_log_prob", (1.05, 1.3, 2.0), {"ref.temperature": warmer}),
        Kind("ref_nan", "ref_compute_log_prob", ONCE, {"ref.log_probs": not_a_number}),
        Kind("values_scaled", "compute_values", (1.03, 1.5, 5.0), {"values.values": times}, ("ppo",)),
        Kind("values_shifted", "compute_values", (0.05, 0.3, 1.0), {"values.values": shifted}, ("ppo",)),
        Kind("values_dropout", "compute_values", (0.01, 0.1, 0.4), {"values.tweak": dropout}, ("ppo",)),
        Kind("values_nan", "compute_values", ONCE, {"values.values": not_a_number}, ("ppo",)),
        Kind("advantage_sign", "advantage", (0.1, 0.4, 1.0), {"advantage.advantages": flipped}),
        Kind("advantage_scaled", "advantage", (1.05, 2.0, 10.0), {"advantage.advantages": times}),
        Kind("advantage_groups", "advantage", SHARES, {"advantage.scores": wrong_groups}, ("grpo",)),
        Kind("advantage_lambda", "advantage", (0.9, 0.5, 0.0), {"advantage.lam": warmer}, ("ppo",)),
        Kind("critic_lr", "critic_update", (2.0, 8.0, 40.0), {"critic.adam": lr_times}, ("ppo",)),
        Kind("critic_loss_scaled", "critic_update", (1.5, 4.0, 100.0), {"critic.loss": times}, ("ppo",)),
        Kind("critic_dropout", "critic_update", (0.02, 0.1, 0.4), {"critic.tweak": dropout}, ("ppo",)),
        Kind("critic_gradient_nan", "critic_update", ONCE, {"critic.gradient": not_a_number}, ("ppo",)),
        Kind("all_reduce_missing", "actor_update", (0.25, 0.5, 0.8), {"actor.heard": half_heard}),
        Kind("lr_used", "actor_update", (1.5, 4.0, 20.0), {"actor.adam": lr_times}),
        Kind("adam_beta", "actor_update", (0.8, 0.5, 0.0), {"actor.adam": first_beta}),
        Kind("adam_eps", "actor_update", (1e-5, 1e-3, 1e-1), {"actor.adam": large_eps}),
        Kind("adam_decay", "actor_update", (1.0, 10.0, 100.0), {"actor.adam": decaying}),
        Kind("gradient_scaled", "actor_update", (1.1, 3.0, 1e9), {"actor.gradient": times}),
        Kind("gradient_holes", "actor_update", (0.02, 0.3, 0.9), {"actor.gradient": pull_apart}),
        Kind("layers_frozen", "actor_update", (0.3, 0.6, 1.0), {"actor.gradient": layer_silent}),
        Kind("loss_mask_shifted", "actor_update", SHARES, {"actor.mask": mask_shifted}),
        Kind("update_dropout", "actor_update", (0.005, 0.05, 0.2), {"actor.tweak": dropout}),
        Kind("update_mantissa", "actor_update", (6, 4, 2), {"actor.tweak": few_bits}),
        Kind("weights_low_precision", "actor_update", (10, 8, 6), {"actor.weights": rounded}),
        Kind("gradient_nan", "actor_update", ONCE, {"actor.gradient": not_a_number}),
        Kind("gradient_inf", "actor_update", ONCE, {"actor.gradient": infinite}),
        Kind("loss_nan", "actor_update", ONCE, {"actor.loss": not_a_number}),
    )
}
