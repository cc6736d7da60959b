# SPDX-License-Identifier: Apache-2.0
"""The rollout engine: its own copy of the weights, bf16, its own kernels, a cache; synced after each update."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from bench.corpus.losses import token_log_probs
from bench.corpus.model import Kernel, Shape, forward, views
from bench.corpus.task import EOS, PAD


@dataclass(frozen=True)
class Sampling:
    """What the engine was told; `ending` is added to the logit of EOS by a fault."""

    temperature: float = 1.0
    ending: float = 0.0


def engine_kernel(trainer: Kernel) -> Kernel:
    """The engine never runs the trainer's kernels: bf16, another attention, no split."""
    other = {"eager": "sdpa", "sdpa": "eager", "half": "sdpa", "online": "half", "exp2": "online"}[trainer.attention]
    return replace(trainer, bf16=True, attention=other, fused_norm=not trainer.fused_norm, splits=1)


def shaped(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    if sampling.ending:
        logits = logits.clone()
        logits[..., EOS] += sampling.ending
    return logits / sampling.temperature


def generate(
    flat: torch.Tensor,
    prompts: torch.Tensor,
    shape: Shape,
    kernel: Kernel,
    *,
    sampling: Sampling,
    noise: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Responses [rows, room] padded after EOS and their log-probabilities; `noise` [room, rows, vocabulary] in (0, 1)
    makes samples by the Gumbel trick, None decodes greedily over as many tokens as prompts are wide."""
    weights = views(flat, shape)
    room = prompts.shape[1] + 1 if noise is None else noise.shape[0]
    logits, cache = forward(weights, prompts, shape, kernel)
    open_rows = torch.ones(len(prompts), dtype=torch.bool, device=prompts.device)
    tokens, logs = [], []
    for position in range(room):
        scaled = shaped(logits[:, -1], sampling)
        scaled[:, PAD] = -1e4
        chosen = (scaled if noise is None else scaled - (-noise[position].log()).log()).argmax(-1)
        log_prob, _ = token_log_probs(scaled, chosen)
        tokens.append(torch.where(open_rows, chosen, PAD))
        logs.append(log_prob * open_rows)
        open_rows = open_rows & (chosen != EOS)
        if position + 1 < room:
            fed = torch.where(open_rows, chosen, EOS)
            logits, cache = forward(weights, fed[:, None], shape, kernel, cache=cache)
    return torch.stack(tokens, 1), torch.stack(logs, 1)


def rescore(
    flat: torch.Tensor,
    prompts: torch.Tensor,
    responses: torch.Tensor,
    shape: Shape,
    kernel: Kernel,
    *,
    sampling: Sampling,
) -> torch.Tensor:
    """Log-probabilities of given responses under the engine's weights, in one pass."""
    inputs = torch.cat([prompts, responses[:, :-1]], 1)
    logits, _ = forward(views(flat, shape), inputs, shape, kernel)
    scaled = shaped(logits[:, prompts.shape[1] - 1 :], sampling)
    scaled[..., PAD] = -1e4
    return token_log_probs(scaled, responses)[0]
