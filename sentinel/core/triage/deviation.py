# SPDX-License-Identifier: Apache-2.0
"""How far two sets of statistics of one tensor are apart, and how far they may be.

A perturbation of relative size e (its norm over the tensor's norm) that points anywhere shows in the four statistics as
    norm   |dN| / N                    about e / sqrt(n), and e itself where the tensor was scaled
    peak   |dMax|, |dMin| / max(|x|)   about e / 4
    sum    |dMean| n / N               about e, and e sqrt(n) where all elements moved together
so all three are evidence, and their maximum estimates e. msprobe computes statistics in the tensor's own dtype: in bf16 a
step of 2^-8 to 2^-7 is the least that norm and peak can show, so these are counted in units of the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sentinel.core.triage.pairing import RowPair
from sentinel.records import LayerStat

Floats = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)
# norm, mean, max and min stand next to each other in a row.
_STATISTICS = slice(LayerStat._fields.index("norm"), LayerStat._fields.index("min") + 1)

# Bits of the significand, the hidden one included.
PRECISION_BITS: Mapping[str, int] = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
_OTHER_BITS = 24
NORM, PEAK, SUM = range(3)
MEASURES = ("norm", "peak", "sum")
# What all tokens share adds up in the sum: it overstates the size of a perturbation by about this.
TOKENS_SHARE = 5.0
HIDDEN_SHARE = 0.3
# A share f of tokens that went to other experts is a perturbation of about sqrt(f), halved as one of two experts was kept.
ROUTED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Deviations:
    """Deviations of many rows; row i belongs to pair i of the input."""

    size: Floats
    """Rows x (norm, peak, sum): relative deviation; NaN where a statistic is missing on a side; infinite where only one side is
    finite or shapes differ."""
    floor: Floats
    """Rows x (norm, peak, sum): what rounding of the tensor and of its statistics alone explains."""
    units: Floats
    """Rows x (norm, peak): deviation in units of the last place of the statistic."""
    overall: Floats
    """Rows: the largest of the three, 0 where nothing is known."""
    level: Floats
    """Rows x (norm, any, hidden): what is left of the deviation after rounding, for what comes after; `hidden` is what may
    reach later tensors although the statistics of those in between do not show it."""
    routed: NDArray[np.bool_]
    """Rows: an expert was given other tokens, so that nothing of this row is comparable."""
    exact: NDArray[np.bool_]
    """Rows: every known statistic is the same number (and checksums, where both have one)."""
    known: NDArray[np.bool_]
    """Rows: there is anything to compare."""


def deviations(rows: Sequence[RowPair], gaps: Mapping[str, float] | None = None) -> Deviations:
    """Measure every row.

    Args:
        rows: the pairs.
        gaps: file of the target's tensor -> norm of the difference over the golden norm, where tensors were compared element
            by element; it takes the place of the sum, which estimates it.
    """
    count = len(rows)
    targets, goldens = [pair[0] for pair in rows], [pair[1] for pair in rows]
    target, golden = _numbers(targets), _numbers(goldens)
    mine, theirs = [row.shape for row in targets], [row.shape for row in goldens]
    elements = np.maximum(_looked_up(theirs, _elements), 1.0)
    kinds, others = [row.dtype for row in targets], [row.dtype for row in goldens]
    bits = np.minimum(_looked_up(kinds, _bits), _looked_up(others, _bits))
    integral = _looked_up(others, _is_integral).astype(bool)
    moved = np.array([one != other for one, other in zip(mine, theirs, strict=True)], dtype=bool)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(target - golden)
    # Both sides the same infinity or both NaN: nothing to say about this statistic; one side only: infinitely far.
    finite_target, finite_golden = np.isfinite(target), np.isfinite(golden)
    gap = np.where(finite_target & finite_golden, gap, np.nan)
    one_sided = (finite_target != finite_golden) & ~_missing(targets, target) & ~_missing(goldens, golden)
    size, units = _relative(target, golden, gap, elements, bits)
    size[np.any(one_sided, axis=1), :] = np.inf
    size[moved, :] = np.inf
    # A mask of booleans against one of numbers says the same in other words.
    size[_looked_up(kinds, _kind) != _looked_up(others, _kind), :] = np.nan
    floor = _floors(target, golden, elements, bits)
    floor[integral, :] = (
        0.5 / np.maximum(np.nanmax(np.abs(np.nan_to_num(golden[integral])), axis=1, initial=1.0), 1.0)[:, None]
    )
    same_sum, checked = _checksums(targets, goldens)
    # Checksums alone say that something differs and not how much: as much as can be.
    alone = checked & np.all(np.isnan(size), axis=1)
    size[alone, :] = np.where(same_sum[alone], 0.0, 1.0)[:, None]
    floor[alone, :] = 2.0**-30
    for index, target_row in enumerate(targets if gaps else ()):
        exactly = gaps.get(target_row.data) if gaps and target_row.data else None
        if exactly is not None:
            size[index, SUM] = exactly
            floor[index, SUM] = np.exp2(-bits[index])
    with np.errstate(invalid="ignore"):
        statistics_same = ~np.any(np.nan_to_num(size, nan=0.0) > 0, axis=1)
    known = np.any(~np.isnan(size), axis=1) | checked
    overall = np.max(np.nan_to_num(size, nan=0.0, posinf=np.inf), axis=1, initial=0.0) if count else np.zeros(0)
    beyond = np.maximum(np.nan_to_num(size, nan=0.0, posinf=np.inf) - floor, 0.0)
    reach = np.max(beyond * np.array([1.0, 1.0, 1.0 / TOKENS_SHARE]), axis=1, initial=0.0)
    level = np.stack([beyond[:, NORM], reach, HIDDEN_SHARE * reach], axis=1)
    routed = _routed(rows, moved)
    level[~np.isnan(routed), :2] = 0.0
    level[:, 2] = np.where(np.isnan(routed), level[:, 2], ROUTED_SHARE * np.sqrt(np.nan_to_num(routed)))
    level[:, 2] = np.maximum(level[:, 2], _one_token(rows, size, bits))
    size[~np.isnan(routed)] = np.nan
    known &= np.isnan(routed)
    return Deviations(size, floor, units, overall, level, ~np.isnan(routed), statistics_same & same_sum, known)


def growth(rows: Sequence[RowPair]) -> Floats:
    """Rows x (norm, max, min): by how many units of the last place the absolute values grew; NaN where that is unknown."""
    target, golden = (_numbers([pair[side] for pair in rows])[:, [0, 2, 3]] for side in (0, 1))
    bits = np.array([min(_bits(t.dtype), _bits(g.dtype)) for t, g in rows], dtype=np.float64)[:, None]
    with np.errstate(invalid="ignore"):
        grown: Floats = (target - golden) / _unit(golden, bits) * np.where(golden < 0, -1.0, 1.0)
    return np.where(np.isfinite(grown), grown, np.nan)


def _routed(rows: Sequence[RowPair], moved: NDArray[np.bool_]) -> Floats:
    """The difference in length as a share, where a call was given more or fewer rows of the same width; NaN for all others.

    Rounding flips the routing of a few tokens of a mixture of experts, so experts are given other token counts. A call that makes
    an output of another length from inputs of the same is another matter.
    """
    shares = np.full(len(rows), np.nan)
    given_others: set[str] = set()
    for index in np.flatnonzero(moved).tolist():
        target, golden = rows[index]
        mine, theirs = target.shape, golden.shape
        if target.direction == "parameters":
            continue
        if len(mine) == len(theirs) <= 2 and mine[1:] == theirs[1:]:
            if target.position.startswith(("input", "kwarg")):
                given_others.add(target.name)
            if target.name in given_others:
                shares[index] = abs(mine[0] - theirs[0]) / max(mine[0], theirs[0], 1)
    return shares


def _one_token(rows: Sequence[RowPair], size: Floats, bits: Floats) -> Floats:
    """For outputs of half-precision experts that are not the same numbers: one token of theirs may have gone elsewhere."""
    hidden = np.zeros(len(rows))
    differs = (bits < PRECISION_BITS["float32"]) & np.any(np.nan_to_num(size) > 0, axis=1)
    for index in np.flatnonzero(differs).tolist():
        target = rows[index][0]
        if target.module.endswith(".experts") and target.position.startswith("output"):
            hidden[index] = ROUTED_SHARE / np.sqrt(max(1, _elements(target.shape[:-1])))
    return hidden


def _numbers(rows: Sequence[LayerStat]) -> Floats:
    """Rows x (norm, mean, max, min); absent is NaN."""
    return np.array([row[_STATISTICS] for row in rows], dtype=np.float64).reshape(len(rows), 4)


def _missing(rows: Sequence[LayerStat], numbers: Floats) -> NDArray[np.bool_]:
    """Which statistics are absent, and not NaN; `numbers` is what `_numbers` made of the rows."""
    absent = np.isnan(numbers)
    for place in np.flatnonzero(absent.any(axis=1)).tolist():
        row = rows[place]
        absent[place] = (row.norm is None, row.mean is None, row.max is None, row.min is None)
    return absent


def _looked_up(keys: Sequence[Key], of: Callable[[Key], float]) -> Floats:
    """A number for each key, computed once for equal ones."""
    known = {key: float(of(key)) for key in set(keys)}
    return np.array([known[key] for key in keys], dtype=np.float64)


def _checksums(
    targets: Sequence[LayerStat], goldens: Sequence[LayerStat]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows have no other checksum, and which have one on both sides."""
    mine, theirs = [row.checksum for row in targets], [row.checksum for row in goldens]
    if not any(mine) or not any(theirs):
        return np.ones(len(mine), dtype=bool), np.zeros(len(mine), dtype=bool)
    checked = np.array([None not in pair for pair in zip(mine, theirs, strict=True)], dtype=bool)
    equal = np.array([one == other for one, other in zip(mine, theirs, strict=True)], dtype=bool)
    return equal | ~checked, checked


def _relative(target: Floats, golden: Floats, gap: Floats, elements: Floats, bits: Floats) -> tuple[Floats, Floats]:
    tiny = np.finfo(np.float64).tiny
    norm = np.fmax(np.abs(golden[:, 0]), np.abs(target[:, 0]))
    peak = np.fmax(
        np.fmax(np.abs(golden[:, 2]), np.abs(golden[:, 3])), np.fmax(np.abs(target[:, 2]), np.abs(target[:, 3]))
    )
    # A tensor without Norm and Mean (integers) still has its extremes.
    scale = np.where(np.isfinite(norm) & (norm > 0), norm, peak * np.sqrt(elements))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        size = np.stack(
            [
                gap[:, 0] / np.maximum(norm, tiny),
                np.fmax(gap[:, 2], gap[:, 3]) / np.maximum(peak, tiny),
                gap[:, 1] * elements / np.maximum(scale, tiny),
            ],
            axis=1,
        )
        peak_gap = np.fmax(gap[:, 2] / _unit(golden[:, 2], bits), gap[:, 3] / _unit(golden[:, 3], bits))
        units = np.stack([gap[:, 0] / _unit(golden[:, 0], bits), peak_gap], axis=1)
    return size, units


def _unit(value: Floats, bits: Floats) -> Floats:
    """Distance from `value` to the next number of that precision."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(value), np.finfo(np.float32).tiny)))
    return np.exp2(exponent - (bits - 1))


def _floors(target: Floats, golden: Floats, elements: Floats, bits: Floats) -> Floats:
    """One rounding of the tensor's elements and of each statistic, for a sum over many elements what its order costs."""
    half = np.exp2(-bits)
    norm = np.fmax(np.abs(golden[:, 0]), np.abs(target[:, 0]))
    peak = np.fmax(np.fmax(np.abs(golden[:, 2]), np.abs(golden[:, 3])), np.finfo(np.float64).tiny)
    accumulate = 2.0**-24 * np.sqrt(elements)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_unit = _unit(golden[:, 1], bits) * elements / np.maximum(norm, np.finfo(np.float64).tiny)
        norm_unit = np.minimum(_unit(golden[:, 0], bits) / np.maximum(norm, np.finfo(np.float64).tiny), 2 * half)
        peak_unit = np.minimum(np.fmax(_unit(golden[:, 2], bits), _unit(golden[:, 3], bits)) / peak, 2 * half)
    statistic_noise = np.minimum(accumulate, 2.0**-17)
    return np.stack(
        [
            np.nan_to_num(norm_unit, nan=1.0) + statistic_noise,
            np.nan_to_num(peak_unit, nan=1.0) + 2.0**-24,
            np.nan_to_num(mean_unit, nan=1.0) + 2 * half + accumulate,
        ],
        axis=1,
    )


def _elements(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def _bits(dtype: str) -> int:
    return PRECISION_BITS.get(dtype, _OTHER_BITS)


def _kind(dtype: str) -> int:
    """0 for numbers, 1 for integers, 2 for booleans."""
    return 2 if dtype == "bool" else int(_is_integral(dtype))


def _is_integral(dtype: str) -> bool:
    return dtype.startswith(("int", "uint", "bool"))
