# SPDX-License-Identifier: Apache-2.0
"""How often healthy pairs of dumps show a deviation of a size, counted from clean pairs.

Of each row four deviations are counted, those of norm, max, min and mean, in units of the statistic's last place (mean: in
powers of two of the tensor's rounding), per kind of row: role, number of elements, and how far what came in deviates already.
The rarity of a row is the power of ten by which clean rows of its kind deviate so far, all four statistics taken together.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

Bins = tuple[int, int, int, int]
"""norm, max, min, mean."""
BINS = 10
# Fewer clean rows of a kind than this say little: those of wider kinds are counted in.
ENOUGH = 60
# Three statistics that all grew, or all shrank, do so by chance once in four times: a power of ten of 0.6.
ONE_SIGN, MIXED_SIGNS = 0.6, -0.3
# Of the norm's own deviation that came in, a module passes on this much, and the mean this much.
PASSED, PASSED_MEAN = 1.5, 4.0
# The rarest rows continue as an exponential from this share on, for beyond them nothing was seen.
TAIL = 0.05
LEAST_TAIL = 0.15
_SIZES = (2**8, 2**12)
_CAME = (0.0, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """Rows whose noise is alike."""

    role: str
    """output, input, gradient; of a backward call `backward output` and so on; of an expert or its gate with ` routed` after it."""
    size: int
    """0 few elements to 2 many."""
    came_norm: int
    came: int
    """How far norm, and any statistic, of what came in deviate, in roundings: 0 not at all, to 4."""


Seen = tuple[Kind, Bins, int]
"""A row: kind, bins, and whether its signs agree: 1 all the same, -1 mixed, 0 fewer than three."""


def kind_of(role: str, bits: int, elements: int, came: tuple[float, float, float]) -> Kind:
    """The kind of a row; `came` is the level (norm, any, hidden) that the walk explains it with."""
    norm, reach = (sum(part * 2.0**bits > edge for edge in _CAME) for part in came[:2])
    return Kind(role, sum(elements > edge for edge in _SIZES), min(norm, 3), reach)


def bins_of(growth: tuple[float, float, float], mean: float, bits: int, came_norm: float) -> tuple[Bins, int]:
    """The bins of a row's four deviations, and whether its signs agree.

    Args:
        growth: of the absolute values of norm, max and min, in units of the last place; NaN where unknown.
        mean: deviation of the sum, relative to the norm; NaN where unknown.
        bits: of the significand.
        came_norm: relative deviation of the norm of what came in.
    """
    passed = PASSED * came_norm * 2.0**bits
    known = [0.0 if math.isnan(part) else part for part in growth]
    kept = [max(0.0, abs(part) - passed) for part in known]
    left = 0.0 if math.isnan(mean) else max(0.0, mean - PASSED_MEAN * came_norm) * 2.0**bits
    last = 0 if left <= 0.25 else 1 + max(0, math.floor(math.log2(min(left, 2.0**30) / 0.25)))
    norm, high, low = (min(BINS - 1, round(min(part, 1e3))) for part in kept)
    signs = 0
    if all(kept):
        signs = 1 if len({part > 0 for part in known}) == 1 else -1
    return (norm, high, low, min(last, BINS - 1)), signs


@dataclass(frozen=True)
class Noise:
    """Rows of clean pairs, counted; empty: nothing is rare."""

    seen: Mapping[Seen, int]
    _tails: dict[Kind, tuple[tuple[float, ...], ...]] = field(default_factory=dict, compare=False, repr=False)
    _sums: dict[tuple[str, int], _Sums] = field(default_factory=dict, compare=False, repr=False)

    def rarity(self, seen: Seen) -> float:
        """The power of ten by which clean rows of that kind deviate so far or further."""
        kind, bins, _ = seen
        if not self.seen or not any(bins):
            return 0.0
        if not self._sums:
            self._sums.update(self._summed())
        sums = self._sums.get((kind.role, kind.came))
        added = self._added(seen)
        return 0.5 * added if sums is None else sums.rarity(added)

    def merged(self, other: Noise, weight: int = 1) -> Noise:
        """Both counts together; those of `other` count `weight` times."""
        counts = Counter(dict(self.seen))
        for row, times in other.seen.items():
            counts[row] += weight * times
        return Noise(counts)

    def _added(self, seen: Seen) -> float:
        """The four statistics' powers of ten, added, as if they were independent."""
        kind, bins, signs = seen
        tails = self._tails.get(kind)
        if tails is None:
            tails = self._tails[kind] = _tails(self._of(kind))
        added = sum(tails[place][part] for place, part in enumerate(bins))
        return max(0.0, added + (ONE_SIGN if signs > 0 else MIXED_SIGNS if signs < 0 else 0.0))

    def _of(self, kind: Kind) -> list[list[int]]:
        """Statistic x bin: clean rows of the kind, with those of wider kinds where they are few."""
        wider: tuple[Callable[[Kind], bool], ...] = (
            lambda other: other == kind,
            lambda other: (other.role, other.came_norm, other.came) == (kind.role, kind.came_norm, kind.came),
            lambda other: other.role == kind.role,
        )
        table = [[0] * BINS for _ in range(4)]
        for alike in wider:
            table = [[0] * BINS for _ in range(4)]
            for (other, bins, _), times in self.seen.items():
                if alike(other):
                    for place, part in enumerate(bins):
                        table[place][part] += times
            if sum(table[0]) >= ENOUGH:
                break
        return table

    def _summed(self) -> dict[tuple[str, int], _Sums]:
        """How the sums themselves are spread over clean rows: the four statistics of a row are not independent."""
        groups: dict[tuple[str, int], Counter[float]] = defaultdict(Counter)
        for row, times in self.seen.items():
            groups[row[0].role, row[0].came][self._added(row)] += times
        return {group: _sums(values) for group, values in groups.items()}


@dataclass(frozen=True, slots=True)
class _Sums:
    values: tuple[float, ...]
    beyond: tuple[int, ...]
    """Rows at or beyond each value."""
    tail: float
    slope: float

    def rarity(self, added: float) -> float:
        if added > self.tail:
            return -math.log10(TAIL) + (added - self.tail) / self.slope / math.log(10)
        place = bisect_left(self.values, added)
        return math.log10((self.beyond[0] + 1) / (self.beyond[place] + 1))


def _sums(counts: Counter[float]) -> _Sums:
    values = sorted(counts)
    beyond, left = [], sum(counts.values())
    for value in values:
        beyond.append(left)
        left -= counts[value]
    start = max(place for place, rows in enumerate(beyond) if rows >= TAIL * beyond[0])
    tail = values[start]
    over = sum((value - tail) * counts[value] for value in values[start:])
    return _Sums(tuple(values), tuple(beyond), tail, max(LEAST_TAIL, over / beyond[start]))


def _tails(table: list[list[int]]) -> tuple[tuple[float, ...], ...]:
    """Statistic x bin: the power of ten of the share of rows in that bin or beyond."""
    found = []
    for row in table:
        total = sum(row)
        beyond = [sum(row[part:]) for part in range(BINS)]
        found.append((0.0, *(math.log10((total + 1.0) / (part + 0.5)) for part in beyond[1:])))
    return tuple(found)


def count(rows: Iterable[Seen]) -> Noise:
    """Count the rows of clean pairs."""
    return Noise(Counter(rows))


def to_plain(noise: Noise) -> list[list[object]]:
    """The counts as rows of `[role, size, came_norm, came, norm, max, min, mean, signs, times]`."""
    return [
        [kind.role, kind.size, kind.came_norm, kind.came, *bins, signs, times]
        for (kind, bins, signs), times in sorted(noise.seen.items())
    ]


def from_plain(rows: object) -> Noise:
    """The way back.

    Raises:
        TypeError, ValueError: the rows have another form.
    """
    counts: Counter[Seen] = Counter()
    if not isinstance(rows, list):
        raise TypeError("a list of rows is wanted")
    for row in rows:
        if not (isinstance(row, list) and len(row) == 10 and isinstance(row[0], str)):
            raise ValueError(f"no row of ten: {row!r:.80}")
        if not all(type(part) is int for part in row[1:]) or not all(0 <= part < BINS for part in row[1:8]):
            raise ValueError(f"numbers of bins are wanted: {row!r:.80}")
        norm, high, low, mean = row[4:8]
        counts[Kind(row[0], row[1], row[2], row[3]), (norm, high, low, mean), row[8]] += row[9]
    return Noise(counts)
