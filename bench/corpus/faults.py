# SPDX-License-Identifier: Apache-2.0
"""What can be planted: kinds of fault, the stage that holds each, and three sizes, small to large.

Effects act from the onset to the end, except those whose size is a number of steps (values that are not finite).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from bench.corpus import effects
from bench.corpus.trainer import Trainer

BOTH = ("grpo", "ppo")
REGIMES = ("replayed", "free")


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
        return effect(value, effects.Moment(self.size, step - self.onset, rng, trainer))


ONCE = (1, 3, 10_000)
SHARES = (0.05, 0.25, 1.0)

KINDS = {
    kind.name: kind
    for kind in (
        Kind("data_order", "data", SHARES, {"data.rows": effects.other_order}),
        Kind("data_cut", "data", (0.02, 0.2, 1.0), {"data.prompts": effects.cut_prompts}),
        Kind("lr_configured", "config", (1.2, 3.0, 10.0), {"config.lr": effects.times}),
        Kind("kl_coef_configured", "config", (1.5, 5.0, 50.0), {"config.kl_coef": effects.times}),
        Kind("weight_sync_missing", "rollout", (0.1, 0.5, 1.0), {"rollout.weights": effects.frozen_share}),
        Kind("weights_stale", "rollout", (1, 4, 15), {"rollout.weights": effects.stale}),
        Kind("weights_rounded", "rollout", (6, 4, 3), {"rollout.weights": effects.rounded}),
        Kind("weights_noisy", "rollout", (0.003, 0.03, 0.2), {"rollout.weights": effects.noisy}),
        Kind("rows_garbled", "rollout", (0.02, 0.1, 0.5), {"rollout.responses": effects.garbled}),
        Kind("temperature_wrong", "rollout", (1.05, 1.25, 2.0), {"rollout.sampling": effects.hotter}),
        Kind("end_suppressed", "rollout", (0.3, 1.5, 6.0), {"rollout.sampling": effects.endless}),
        Kind("log_probs_raw", "rollout", (0.99, 0.9, 0.6), {"rollout.log_probs": effects.raw_log_probs}),
        Kind("reward_zeroed", "compute_rm_score", (0.03, 0.2, 0.7), {"reward.scores": effects.zeroed}),
        Kind("reward_scaled", "compute_rm_score", (1.03, 1.3, 5.0), {"reward.scores": effects.times}),
        Kind("reward_swapped", "compute_rm_score", SHARES, {"reward.scores": effects.swapped}),
        Kind("reward_nan", "compute_rm_score", ONCE, {"reward.scores": effects.not_a_number}),
        Kind("old_temperature", "actor_compute_log_prob", (1.02, 1.15, 1.7), {"old.temperature": effects.warmer}),
        Kind("old_shifted", "actor_compute_log_prob", (0.02, 0.2, 1.0), {"old.log_probs": effects.shifted}),
        Kind("old_dropout", "actor_compute_log_prob", (0.005, 0.05, 0.2), {"old.tweak": effects.dropout}),
        Kind("old_layer_off", "actor_compute_log_prob", (0.02, 0.2, 0.9), {"old.tweak": effects.layer_off}),
        Kind("old_mantissa", "actor_compute_log_prob", (6, 4, 2), {"old.tweak": effects.few_bits}),
        Kind("old_nan", "actor_compute_log_prob", ONCE, {"old.log_probs": effects.not_a_number}),
        Kind("ref_noisy", "ref_compute_log_prob", (0.02, 0.15, 0.6), {"ref.weights": effects.noisy}),
        Kind("ref_other", "ref_compute_log_prob", (0.05, 0.25, 1.0), {"ref.weights": effects.another_model}),
        Kind("ref_moving", "ref_compute_log_prob", (0.1, 0.5, 1.0), {"ref.weights": effects.moving_reference}),
        Kind("ref_temperature", "ref_compute_log_prob", (1.05, 1.3, 2.0), {"ref.temperature": effects.warmer}),
        Kind("ref_nan", "ref_compute_log_prob", ONCE, {"ref.log_probs": effects.not_a_number}),
        Kind("values_scaled", "compute_values", (1.03, 1.5, 5.0), {"values.values": effects.times}, ("ppo",)),
        Kind("values_shifted", "compute_values", (0.05, 0.3, 1.0), {"values.values": effects.shifted}, ("ppo",)),
        Kind("values_dropout", "compute_values", (0.01, 0.1, 0.4), {"values.tweak": effects.dropout}, ("ppo",)),
        Kind("values_nan", "compute_values", ONCE, {"values.values": effects.not_a_number}, ("ppo",)),
        Kind("advantage_sign", "advantage", (0.1, 0.4, 1.0), {"advantage.advantages": effects.flipped}),
        Kind("advantage_scaled", "advantage", (1.05, 2.0, 10.0), {"advantage.advantages": effects.times}),
        Kind("advantage_groups", "advantage", SHARES, {"advantage.scores": effects.wrong_groups}, ("grpo",)),
        Kind("advantage_lambda", "advantage", (0.9, 0.5, 0.0), {"advantage.lam": effects.warmer}, ("ppo",)),
        Kind("critic_lr", "critic_update", (2.0, 8.0, 40.0), {"critic.adam": effects.lr_times}, ("ppo",)),
        Kind("critic_loss_scaled", "critic_update", (1.5, 4.0, 100.0), {"critic.loss": effects.times}, ("ppo",)),
        Kind("critic_dropout", "critic_update", (0.02, 0.1, 0.4), {"critic.tweak": effects.dropout}, ("ppo",)),
        Kind("critic_gradient_nan", "critic_update", ONCE, {"critic.gradient": effects.not_a_number}, ("ppo",)),
        Kind("all_reduce_missing", "actor_update", (0.25, 0.5, 0.8), {"actor.heard": effects.half_heard}),
        Kind("lr_used", "actor_update", (1.5, 4.0, 20.0), {"actor.adam": effects.lr_times}),
        Kind("adam_beta", "actor_update", (0.8, 0.5, 0.0), {"actor.adam": effects.first_beta}),
        Kind("adam_eps", "actor_update", (1e-5, 1e-3, 1e-1), {"actor.adam": effects.large_eps}),
        Kind("adam_decay", "actor_update", (1.0, 10.0, 100.0), {"actor.adam": effects.decaying}),
        Kind("gradient_scaled", "actor_update", (1.1, 3.0, 1e9), {"actor.gradient": effects.times}),
        Kind("gradient_holes", "actor_update", (0.02, 0.3, 0.9), {"actor.gradient": effects.pull_apart}),
        Kind("layers_frozen", "actor_update", (0.3, 0.6, 1.0), {"actor.gradient": effects.layer_silent}),
        Kind("loss_mask_shifted", "actor_update", SHARES, {"actor.mask": effects.mask_shifted}),
        Kind("update_dropout", "actor_update", (0.005, 0.05, 0.2), {"actor.tweak": effects.dropout}),
        Kind("update_mantissa", "actor_update", (6, 4, 2), {"actor.tweak": effects.few_bits}),
        Kind("weights_low_precision", "actor_update", (10, 8, 6), {"actor.weights": effects.rounded}),
        Kind("gradient_nan", "actor_update", ONCE, {"actor.gradient": effects.not_a_number}),
        Kind("gradient_inf", "actor_update", ONCE, {"actor.gradient": effects.infinite}),
        Kind("loss_nan", "actor_update", ONCE, {"actor.loss": effects.not_a_number}),
        # Kinds of the test split alone.
        Kind("data_repeated", "data", SHARES, {"data.rows": effects.repeated}),
        Kind("weights_scaled", "rollout", (1.001, 1.01, 1.1), {"rollout.weights": effects.scaled_up}),
        Kind("responses_crossed", "rollout", SHARES, {"rollout.responses": effects.crossed}),
        Kind("rollout_log_probs_nan", "rollout", ONCE, {"rollout.log_probs": effects.not_a_number}),
        Kind("reward_raised", "compute_rm_score", (0.01, 0.1, 0.5), {"reward.scores": effects.raised}),
        Kind("reward_capped", "compute_rm_score", (0.9, 0.6, 0.2), {"reward.scores": effects.capped}),
        Kind("old_hazy", "actor_compute_log_prob", (0.01, 0.1, 0.5), {"old.log_probs": effects.hazy}),
        Kind("ref_mantissa", "ref_compute_log_prob", (6, 4, 2), {"ref.tweak": effects.few_bits}),
        Kind("ref_layer_off", "ref_compute_log_prob", (0.02, 0.2, 0.9), {"ref.tweak": effects.layer_off}),
        Kind("values_hazy", "compute_values", (0.03, 0.2, 1.0), {"values.values": effects.hazy}, ("ppo",)),
        Kind("advantage_raised", "advantage", (0.02, 0.2, 1.0), {"advantage.advantages": effects.raised}),
        Kind("advantage_forgotten", "advantage", SHARES, {"advantage.advantages": effects.rows_forgotten}),
        Kind("returns_scaled", "advantage", (1.05, 1.5, 5.0), {"advantage.returns": effects.times}, ("ppo",)),
        Kind("critic_mantissa", "critic_update", (5, 3, 2), {"critic.tweak": effects.few_bits}, ("ppo",)),
        Kind("critic_weights_rounded", "critic_update", (9, 7, 5), {"critic.weights": effects.rounded}, ("ppo",)),
        Kind("gradient_drowned", "actor_update", (0.2, 1.0, 5.0), {"actor.gradient": effects.drowned}),
        Kind("gradient_turned", "actor_update", (0.03, 0.2, 1.0), {"actor.gradient": effects.turned}),
        Kind("update_layer_off", "actor_update", (0.03, 0.2, 0.9), {"actor.tweak": effects.layer_off}),
        Kind("adam_second_beta", "actor_update", (0.99, 0.9, 0.0), {"actor.adam": effects.second_beta}),
    )
}
