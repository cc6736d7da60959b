# SPDX-License-Identifier: Apache-2.0
"""A small decoder whose arithmetic can be done by different kernels.

Weights are one flat vector (one gradient, one optimizer state, one norm) with named views. The kernels compute the same
function in another order or precision, as another attention kernel, another tensor-parallel degree or another device does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch.nn import functional

from bench.corpus.task import PAD


@dataclass(frozen=True)
class Shape:
    """Sizes of the decoder; `outputs` is the vocabulary, or 1 for a critic."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    positions: int
    outputs: int

    def tensors(self) -> dict[str, tuple[int, ...]]:
        width = self.width
        sizes: dict[str, tuple[int, ...]] = {"embed": (self.vocabulary, width), "position": (self.positions, width)}
        for layer in range(self.layers):
            sizes[f"{layer}.norm1"] = (width,)
            sizes[f"{layer}.qkv"] = (3 * width, width)
            sizes[f"{layer}.out"] = (width, width)
            sizes[f"{layer}.norm2"] = (width,)
            sizes[f"{layer}.up"] = (4 * width, width)
            sizes[f"{layer}.down"] = (width, 4 * width)
        sizes["norm"] = (width,)
        sizes["head"] = (self.outputs, width)
        return sizes

    @property
    def size(self) -> int:
        return sum(math.prod(size) for size in self.tensors().values())


@dataclass(frozen=True)
class Kernel:
    """How the arithmetic is done: the differences between two healthy installations."""

    bf16: bool = True
    """Matrix products in bf16 with fp32 accumulation and fp32 residual stream."""
    attention: str = "eager"
    """eager, sdpa, half (softmax in bf16), online (two blocks of keys, rescaled), exp2 (powers of two, divided at the end)."""
    fused_norm: bool = False
    splits: int = 1
    """Inner dimension of each product split in so many parts that are summed, as tensor parallelism does."""
    micro_batches: int = 2
    """Pieces of one mini-batch whose gradients are added."""
    threads: int = 1
    device: str = "cpu"


@dataclass(frozen=True)
class Tweak:
    """Departures from the right forward pass, planted by faults; the default is none."""

    dropout: float = 0.0
    bits: int = 0
    """Mantissa bits kept in the hidden states; 0: all."""
    layer_scale: float = 1.0
    """Factor on what the last layer adds."""
    rng: torch.Generator | None = field(default=None, compare=False)


NO_TWEAK = Tweak()


def views(flat: torch.Tensor, shape: Shape) -> dict[str, torch.Tensor]:
    sizes = shape.tensors()
    parts = flat.split([math.prod(size) for size in sizes.values()])
    return {name: part.view(size) for (name, size), part in zip(sizes.items(), parts, strict=True)}


def fresh(shape: Shape, seed: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    parts = []
    for name, size in shape.tensors().items():
        if "norm" in name:
            parts.append(torch.ones(size))
            continue
        deviation = 0.02 if name in ("embed", "position", "head") else size[-1] ** -0.5
        if name.endswith((".out", ".down")):
            deviation /= math.sqrt(2 * shape.layers)
        parts.append(torch.randn(size, generator=rng) * deviation)
    return torch.cat([part.reshape(-1) for part in parts])


def round_mantissa(value: torch.Tensor, bits: int) -> torch.Tensor:
    """The value with `bits` bits of mantissa kept, rounded to nearest; gradients pass as if nothing happened."""
    mantissa, exponent = torch.frexp(value.detach())
    coarse = torch.ldexp(torch.round(mantissa * 2.0**bits) / 2.0**bits, exponent)
    return value + (coarse - value.detach())


def product(x: torch.Tensor, weight: torch.Tensor, kernel: Kernel) -> torch.Tensor:
    if kernel.bf16:
        x, weight = x.bfloat16(), weight.bfloat16()
    if kernel.splits == 1:
        return functional.linear(x, weight).float()
    pieces = zip(x.chunk(kernel.splits, -1), weight.chunk(kernel.splits, -1), strict=True)
    return sum(functional.linear(part, columns).float() for part, columns in pieces)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, kernel: Kernel) -> torch.Tensor:
    if kernel.fused_norm:
        return functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, allowed: torch.Tensor, kernel: Kernel):
    if kernel.bf16:
        query, key, value = query.bfloat16(), key.bfloat16(), value.bfloat16()
    if kernel.attention == "sdpa":
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed).float()
    scores = (query @ key.transpose(-1, -2)) * query.shape[-1] ** -0.5
    if kernel.attention == "half":
        weights = scores.masked_fill(~allowed, -1e4).softmax(-1)
        return (weights @ value).float()
    scores = scores.float().masked_fill(~allowed, -1e4)
    if kernel.attention == "eager":
        return (scores.softmax(-1).to(value.dtype) @ value).float()
    if kernel.attention == "exp2":
        weights = torch.exp2((scores - scores.amax(-1, keepdim=True).detach()) * math.log2(math.e))
        return (weights.to(value.dtype) @ value).float() / weights.sum(-1, keepdim=True)
    half = scores.shape[-1] // 2
    top = scores.amax(-1, keepdim=True).detach()
    total, mixed = 0.0, 0.0
    for part in (slice(None, half), slice(half, None)):
        weights = (scores[..., part] - top).exp()
        total = total + weights.sum(-1, keepdim=True)
        mixed = mixed + (weights.to(value.dtype) @ value[..., part, :]).float()
    return mixed / total


@dataclass
class Cache:
    """Keys and values of each layer, and which of them may be seen."""

    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    seen: torch.Tensor


def forward(
    weights: dict[str, torch.Tensor],
    tokens: torch.Tensor,
    shape: Shape,
    kernel: Kernel,
    *,
    tweak: Tweak = NO_TWEAK,
    cache: Cache | None = None,
) -> tuple[torch.Tensor, Cache]:
    """Outputs [rows, tokens, outputs] in fp32, and the cache to go on from."""
    seen = tokens != PAD
    past = 0
    if cache is not None:
        seen, past = torch.cat([cache.seen, torch.ones_like(seen)], 1), cache.seen.shape[1]
    place = (seen.int().cumsum(1) - 1).clamp_min(0)[:, past:]
    total = seen.shape[1]
    causal = torch.ones(total, total, dtype=torch.bool, device=tokens.device).tril()[past:]
    diagonal = torch.eye(total, dtype=torch.bool, device=tokens.device)[past:]
    allowed = ((causal & seen[:, None, :]) | diagonal)[:, None]

    x = weights["embed"][tokens] + weights["position"][place]
    kept = Cache([], [], seen)
    rows, count, width = x.shape
    for layer in range(shape.layers):
        h = product(rms_norm(x, weights[f"{layer}.norm1"], kernel), weights[f"{layer}.qkv"], kernel)
        query, key, value = h.view(rows, count, 3, shape.heads, width // shape.heads).permute(2, 0, 3, 1, 4)
        if cache is not None:
            key, value = torch.cat([cache.keys[layer], key], 2), torch.cat([cache.values[layer], value], 2)
        kept.keys.append(key)
        kept.values.append(value)
        mixed = attend(query, key, value, allowed, kernel).transpose(1, 2).reshape(rows, count, width)
        scale = tweak.layer_scale if layer == shape.layers - 1 else 1.0
        x = x + scale * tweaked(product(mixed, weights[f"{layer}.out"], kernel), tweak)
        h = functional.gelu(product(rms_norm(x, weights[f"{layer}.norm2"], kernel), weights[f"{layer}.up"], kernel))
        x = x + scale * tweaked(product(h, weights[f"{layer}.down"], kernel), tweak)
    return product(rms_norm(x, weights["norm"], kernel), weights["head"], kernel), kept


def tweaked(x: torch.Tensor, tweak: Tweak) -> torch.Tensor:
    if tweak.dropout:
        keep = torch.rand(x.shape, generator=tweak.rng).to(x.device) >= tweak.dropout
        x = x * keep / (1 - tweak.dropout)
    return round_mantissa(x, tweak.bits) if tweak.bits else x


def with_rng(tweak: Tweak, rng: torch.Generator) -> Tweak:
    return replace(tweak, rng=rng)
