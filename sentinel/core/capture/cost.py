# SPDX-License-Identifier: Apache-2.0
"""What a capture will cost, from earlier captures of the run, or from the size of its model: and the budgets it must fit.

Predictions from earlier captures err to the high side; a first one, from the model's size, is rough. What came out stands in the receipt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sentinel.records import Capture, CaptureOrder

DAY_SECONDS = 86400.0
LEAST_TRAINING_SECONDS = 3600.0
"""A run younger than this counts as this old when dump time is set against training time."""

FACTORS = {
    ("L0", "statistics"): (1.0, 1.0),
    ("L1", "statistics"): (4.8, 5.3),
    ("mix", "statistics"): (6.1, 6.4),
    ("L0", "tensor"): (1700.0, 8.0),
    ("L1", "tensor"): (4600.0, 36.0),
    ("mix", "tensor"): (6300.0, 44.0),
}
"""(bytes, added seconds) of a whole-model dump over those of L0 statistics: medians of an 8-layer model, msprobe 26.2.0."""
NARROWED = {"statistics": (0.1, 0.6), "tensor": (0.08, 0.03)}
"""What is left of both where one module is dumped: an MLP block of eight layers, the same measurement."""

# What L0 statistics cost where nothing was captured yet. verl's own documentation: 4.4 MB and about three times the stages' time
# for Qwen2-0.5B (24 layers, three stages). Layers grow with about the fourth root of the parameters (0.5 B: 24, 7 B: 28, 72 B: 80).
_ENTRY_BYTES = 1.6e6
_ENTRY_PARAMETERS = 5e8
_SECONDS_A_TOKEN_AND_PARAMETER = 2e-14
"""Statistics read every activation once more; 0.5 B parameters and 10,000 tokens of a rank: 0.1 s on an accelerator."""
_LEAST_SECONDS = 0.5
_MOST = 2**60


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a capture costs, predicted or spent."""

    steps: int
    bytes: int
    seconds: float
    because: str = ""
    """Where a prediction comes from."""


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """What a first prediction is made from."""

    parameters: float
    tokens: float = 0.0
    """Tokens of a step and rank; 0 where not known."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One budget: over what, and how much of each."""

    over: str
    steps: int
    bytes: int
    seconds: float


def factor(order: CaptureOrder) -> tuple[float, float]:
    """(bytes, seconds) of an order's manner over those of L0 statistics of the whole model."""
    size, time = FACTORS.get((order.level, order.task), FACTORS["mix", "tensor"])
    left, of_time = NARROWED["tensor" if order.task == "tensor" else "statistics"] if order.modules else (1.0, 1.0)
    return size * left, time * of_time


def predicted(
    order: CaptureOrder, captures: Iterable[Capture], size: ModelSize | None, tensor_bytes: int | None = None
) -> Cost | None:
    """What an order will cost; None where nothing is known that it could be predicted from.

    Args:
        order: what would be dumped.
        captures: those of the run so far.
        size: of the model.
        tensor_bytes: what one step of the narrowed module's tensors takes, as their shapes in an earlier dump say.
    """
    steps = order.last_step - order.first_step + 1
    wanted_bytes, wanted_seconds = factor(order)
    base = _earlier(captures) or _from_size(size)
    if base is None:
        return None
    many = steps * len(order.stages)
    dumped = base.bytes * wanted_bytes * many
    if order.task == "tensor" and tensor_bytes is not None:
        dumped = float(tensor_bytes * steps)
    return Cost(steps=steps, bytes=round(dumped), seconds=base.seconds * wanted_seconds * many, because=base.because)


def _earlier(captures: Iterable[Capture]) -> Cost | None:
    """One step of one stage in L0 statistics, by the dearest of the earlier captures."""
    bases = []
    for capture in captures:
        receipt = capture.receipt
        if receipt is None or not receipt.paths or not receipt.stages:
            continue
        many = max(1, receipt.last_step - receipt.first_step + 1) * len(receipt.stages)
        by_bytes, by_seconds = factor(capture.order)
        bases.append((min(receipt.bytes, _MOST) / by_bytes / many, receipt.seconds / by_seconds / many))
    if not bases:
        return None
    return Cost(
        steps=1,
        bytes=round(max(size for size, _ in bases)),
        seconds=max(time for _, time in bases),
        because=f"from {len(bases)} earlier capture{'s' if len(bases) > 1 else ''}",
    )


def _from_size(size: ModelSize | None) -> Cost | None:
    if size is None or size.parameters <= 0:
        return None
    depth = (size.parameters / _ENTRY_PARAMETERS) ** 0.25
    seconds = _LEAST_SECONDS + _SECONDS_A_TOKEN_AND_PARAMETER * size.parameters * size.tokens
    return Cost(
        steps=1,
        bytes=round(_ENTRY_BYTES * max(depth, 0.05)),
        seconds=seconds,
        because=f"from {size.parameters:.3g} parameters and {size.tokens:.3g} tokens of a rank",
    )


def spent(captures: Iterable[Capture]) -> Cost:
    """What some captures have cost."""
    steps, size, seconds = 0, 0, 0.0
    for capture in captures:
        receipt = capture.receipt
        if receipt is None:
            continue
        size, seconds = size + receipt.bytes, seconds + receipt.seconds
        steps += receipt.last_step - receipt.first_step + 1 if receipt.paths else 0
    return Cost(steps=steps, bytes=size, seconds=seconds)


def of_today(captures: Iterable[Capture], at: Mapping[str, float], now: float) -> list[Capture]:
    """Captures of the last 24 hours; one whose time is not known is not among them."""
    return [capture for capture in captures if now - at.get(capture.id, -DAY_SECONDS) < DAY_SECONDS]


def over_budget(used: Cost, more: Cost | None, bound: Bound) -> str:
    """Why `more` does not fit into what `used` has left of a budget; empty where it does, or where its cost is not known."""
    for name, limit in (("steps", bound.steps), ("bytes", bound.bytes), ("seconds", bound.seconds)):
        gone = getattr(used, name)
        words = {"steps": "dumped steps", "bytes": "dumped bytes", "seconds": "seconds of dumping"}[name]
        if gone >= limit:
            return f"{bound.over}'s budget of {limit:.0f} {words} is used up"
        ahead = getattr(more, name) if more is not None and name != "steps" else 0
        if gone + ahead > limit:
            why = f" ({more.because})" if more is not None and more.because else ""
            return (
                f"it would take about {ahead:.3g} {words}{why}, and {bound.over}'s budget of {limit:.0f} has "
                f"{limit - gone:.3g} left"
            )
    return ""
