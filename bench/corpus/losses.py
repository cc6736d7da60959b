# SPDX-License-Identifier: Apache-2.0
"""Advantages, losses and the optimizer, as verl's GRPO and PPO define them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

CLIP = 0.2
VALUE_CLIP = 0.5


def masked_mean(value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (value * mask).sum() / mask.sum().clamp_min(1)


def token_log_probs(logits: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each token and entropy of its distribution; logits are already divided by the temperature."""
    logs = logits.log_softmax(-1)
    return logs.gather(-1, tokens[..., None]).squeeze(-1), -(logs.exp() * logs).sum(-1)


def group_advantages(rewards: torch.Tensor, mask: torch.Tensor, group: int) -> torch.Tensor:
    """GRPO: a row's reward against its group's mean, in the group's standard deviations, on every token."""
    grouped = rewards.view(-1, group)
    scaled = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-6)
    return scaled.view(-1, 1) * mask


def gae(rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, lam: float = 0.95):
    """Generalised advantages (gamma 1), whitened, and returns; all [rows, tokens]."""
    advantages = torch.zeros_like(values)
    last = torch.zeros_like(values[:, 0])
    following = torch.zeros_like(last)
    for position in reversed(range(values.shape[1])):
        inside = mask[:, position].float()
        delta = rewards[:, position] + following - values[:, position]
        last = (delta + lam * last) * inside + last * (1 - inside)
        following = values[:, position] * inside + following * (1 - inside)
        advantages[:, position] = last
    returns = (advantages + values) * mask
    centre = masked_mean(advantages, mask)
    spread = masked_mean((advantages - centre) ** 2, mask)
    return (advantages - centre) * torch.rsqrt(spread + 1e-8) * mask, returns


@dataclass(frozen=True)
class PolicyLoss:
    loss: torch.Tensor
    kl: float
    clipped: float
    clipped_low: float


def policy_loss(new: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor) -> PolicyLoss:
    """PPO's clipped objective with the dual clip (c = 3), mean over the tokens of `mask`."""
    difference = (new - old).clamp(-20, 20)
    ratio = difference.exp()
    plain, clipped = -advantages * ratio, -advantages * ratio.clamp(1 - CLIP, 1 + CLIP)
    upper = torch.maximum(plain, clipped)
    lower = torch.minimum(-advantages * 3.0, upper)
    loss = torch.where(advantages < 0, lower, upper)
    return PolicyLoss(
        masked_mean(loss, mask),
        float(masked_mean(-difference.detach(), mask)),
        float(masked_mean((clipped > plain).float(), mask)),
        float(masked_mean((upper > -advantages * 3.0).float() * (advantages < 0), mask)),
    )


def low_variance_kl(new: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    difference = (reference - new).clamp(-20, 20)
    return (difference.exp() - difference - 1).clamp(-10, 10)


def value_loss(predicted: torch.Tensor, values: torch.Tensor, returns: torch.Tensor, mask: torch.Tensor):
    """Clipped value loss and the share of clipped tokens."""
    clipped = values + (predicted - values).clamp(-VALUE_CLIP, VALUE_CLIP)
    plain, held = (predicted - returns) ** 2, (clipped - returns) ** 2
    return 0.5 * masked_mean(torch.maximum(plain, held), mask), float(masked_mean((held > plain).float(), mask))


@dataclass(frozen=True)
class AdamSettings:
    """The constants of Adam; `lr` is what is used, whatever is reported."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.01


class Adam:
    """AdamW over one flat vector, with clipping by norm and verl's guard: a gradient that is not finite is skipped."""

    def __init__(self, size: int, device: str) -> None:
        self.first = torch.zeros(size, device=device)
        self.second = torch.zeros(size, device=device)
        self.count = 0

    def step(self, weights: torch.Tensor, gradient: torch.Tensor, settings: AdamSettings, limit: float = 1.0) -> float:
        """Update `weights` in place; the norm before clipping."""
        norm = float(gradient.norm())
        if not norm < float("inf"):
            return norm
        gradient = gradient * min(1.0, limit / (norm + 1e-6))
        self.count += 1
        self.first.lerp_(gradient, 1 - settings.beta1)
        self.second.lerp_(gradient * gradient, 1 - settings.beta2)
        first = self.first / (1 - settings.beta1**self.count)
        second = self.second / (1 - settings.beta2**self.count)
        weights.mul_(1 - settings.lr * settings.decay).sub_(settings.lr * first / (second.sqrt() + settings.eps))
        return norm
