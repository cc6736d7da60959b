# SPDX-License-Identifier: Apache-2.0
"""Small language models with weights that are the same numbers on every machine, for the triage fault sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

VOCABULARY, HIDDEN, LAYERS, HEADS, BATCH, LENGTH = 199, 64, 4, 4, 4, 24


@dataclass(frozen=True)
class Plan:
    """One model of the fault sets."""

    name: str
    family: str
    dtype: str


PLANS = tuple(
    Plan(f"{family}-{short}", family, dtype)
    for family in ("dense", "tied", "gpt2", "moe", "experts")
    for short, dtype in (("fp32", "float32"), ("bf16", "bfloat16"))
)
# Only clean pairs are made of these: their tolerances are counted in units of the last place, as those of bf16 are.
HALF_PLANS = tuple(Plan(f"{family}-fp16", family, "float16") for family in ("dense", "moe", "experts"))


def build(plan: Plan, seed: int, device: str = "cpu", *, layers: int = LAYERS, attention: str = "eager") -> nn.Module:
    """The model of a plan, its weights drawn by numpy so that torch's version and device do not matter."""
    model = _bare(plan.family, layers, attention)
    draw = np.random.RandomState(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            values = draw.standard_normal(tuple(parameter.shape)).astype(np.float32)
            if "norm" in name or "ln_" in name:
                values = (1 + 0.1 * values) if name.endswith("weight") else 0.05 * values
            else:
                values = values * (0.05 if name.endswith("bias") else 0.09)
            parameter.copy_(torch.from_numpy(values))
    return model.to(getattr(torch, plan.dtype)).to(device).train()


def batch(seed: int, device: str = "cpu") -> dict[str, torch.Tensor]:
    """Token ids with padding on the right, and an advantage for each token.

    Padding on the left would leave rows that attend to nothing, which kernels fill as they please.
    """
    draw = np.random.RandomState(1000 + seed)
    ids = draw.randint(1, VOCABULARY, (BATCH, LENGTH))
    mask = np.ones((BATCH, LENGTH), dtype=np.int64)
    for row, pad in enumerate(draw.randint(0, 6, BATCH)):
        mask[row, LENGTH - pad :] = 0
        ids[row, LENGTH - pad :] = 0
    advantages = draw.standard_normal((BATCH, LENGTH - 1)).astype(np.float32)
    return {
        "input_ids": torch.from_numpy(ids).to(device),
        "attention_mask": torch.from_numpy(mask).to(device),
        "advantages": torch.from_numpy(advantages).to(device),
    }


def loss(model: nn.Module, given: dict[str, torch.Tensor]) -> torch.Tensor:
    """A policy gradient loss, as an RL update has it."""
    output = model(input_ids=given["input_ids"], attention_mask=given["attention_mask"], use_cache=False)
    logits = output.logits[:, :-1].float()
    chosen = torch.log_softmax(logits, dim=-1).gather(-1, given["input_ids"][:, 1:, None])[..., 0]
    weight = given["advantages"] * given["attention_mask"][:, 1:]
    return -(chosen * weight).sum() / given["attention_mask"].sum()


def _bare(family: str, layers: int, attention: str) -> nn.Module:
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen2MoeConfig,
        Qwen2MoeForCausalLM,
    )

    shared = {"vocab_size": VOCABULARY, "max_position_embeddings": 64, "attn_implementation": attention}
    qwen = {
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2,
    }
    if family == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                **shared,
                n_positions=64,
                n_embd=HIDDEN,
                n_layer=layers,
                n_head=HEADS,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
            )
        )
    if family in {"dense", "tied"}:
        return Qwen2ForCausalLM(Qwen2Config(**shared, **qwen, tie_word_embeddings=family == "tied"))
    moe = Qwen2MoeForCausalLM(
        Qwen2MoeConfig(
            **shared,
            **qwen,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=HIDDEN,
            shared_expert_intermediate_size=HIDDEN,
            decoder_sparse_step=1,
            mlp_only_layers=[],
        )
    )
    if family == "experts":
        for layer in moe.model.layers:
            layer.mlp = ExpertList(HIDDEN, HIDDEN, 6, 2)
    return moe


class Expert(nn.Module):
    """One feed-forward expert."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.act_fn = nn.SiLU()
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.up_proj(x)))


class ExpertList(nn.Module):
    """A mixture whose experts are modules of their own, called only when a token is routed to them."""

    def __init__(self, hidden: int, inner: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(Expert(hidden, inner) for _ in range(experts))
        self.chosen = chosen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        weights, places = torch.topk(torch.softmax(self.gate(flat), dim=-1, dtype=torch.float), self.chosen, dim=-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, slot = torch.where(places == number)
            if len(rows):
                out = out.index_add(0, rows, expert(flat[rows]) * weights[rows, slot, None].to(flat.dtype))
        return out.reshape(x.shape)
