# SPDX-License-Identifier: Apache-2.0
"""What a step reports, under verl's names and by verl's formulas."""

from __future__ import annotations

import torch

from bench.corpus.losses import masked_mean
from bench.corpus.task import PAD


def lengths(prompts: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    """prompt_length/*, response_length/*, global_seqlen/* and the token count."""
    prompt, response = (prompts != PAD).sum(1).float(), mask.sum(1).float()
    values: dict[str, float] = {}
    for name, length, room in (
        ("prompt_length", prompt, prompts.shape[1]),
        ("response_length", response, mask.shape[1]),
    ):
        values |= spread(name, length)
        values[f"{name}/clip_ratio"] = float((length == room).float().mean())
    values["response/aborted_ratio"] = float((response == 0).float().mean())
    halves = (prompt + response).view(2, -1).sum(1)
    values |= spread("global_seqlen", halves)
    values["global_seqlen/minmax_diff"] = float(halves.max() - halves.min())
    values["perf/total_num_tokens"] = float((prompt + response).sum())
    return values


def spread(name: str, value: torch.Tensor) -> dict[str, float]:
    return {f"{name}/mean": float(value.mean()), f"{name}/max": float(value.max()), f"{name}/min": float(value.min())}


def over_tokens(name: str, value: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    return spread(name, value[mask])


def mismatch(rollout: torch.Tensor, actor: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    """training/rollout_probs_diff_*, the Pearson coefficient, and rollout_corr/*."""
    ours, theirs = actor[mask].exp(), rollout[mask].exp()
    apart = (ours - theirs).abs()
    values = {
        "training/rollout_probs_diff_valid": 1.0,
        "training/rollout_probs_diff_max": float(apart.max()),
        "training/rollout_probs_diff_mean": float(apart.mean()),
        "training/rollout_probs_diff_std": float(apart.std()),
        "training/rollout_actor_probs_pearson_corr": float(torch.corrcoef(torch.stack([ours, theirs]))[0, 1]),
    }
    ratio = actor - rollout
    per_row = mask.sum(1).clamp_min(1)
    training, engine = (actor * mask).sum(1) / per_row, (rollout * mask).sum(1) / per_row
    gap = engine - training
    token = ratio.clamp(-20, 20).exp() ** 2
    row = (2.0 * (ratio * mask).sum(1).clamp(-20, 20)).exp()
    detail = {
        "kl": masked_mean(-ratio, mask),
        "k3_kl": masked_mean(ratio.exp() - ratio - 1, mask),
        "training_ppl": (-training).exp().mean(),
        "training_log_ppl": (-training).mean(),
        "rollout_ppl": (-engine).exp().mean(),
        "rollout_log_ppl": (-engine).mean(),
        "log_ppl_diff": gap.mean(),
        "log_ppl_abs_diff": gap.abs().mean(),
        "log_ppl_diff_max": gap.max(),
        "log_ppl_diff_min": gap.min(),
        "ppl_ratio": gap.exp().mean(),
        "chi2_token": masked_mean(token, mask) - 1,
        "chi2_seq": row.mean() - 1,
    }
    return values | {f"rollout_corr/{name}": float(value) for name, value in detail.items()}


def explained_variance(values: torch.Tensor, returns: torch.Tensor, mask: torch.Tensor) -> float:
    """1 - var(returns - values) / var(returns), over the valid tokens."""
    wanted, got = returns[mask], values[mask]
    return float(1 - (wanted - got).var() / (wanted.var() + 1e-5))


def mean_of(parts: list[dict[str, float]]) -> dict[str, float]:
    """verl's reduction over micro- and mini-batches: the mean of each key."""
    return {key: sum(part[key] for part in parts) / len(parts) for key in parts[0]}
