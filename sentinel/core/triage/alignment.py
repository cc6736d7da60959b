# SPDX-License-Identifier: Apache-2.0
"""The longest common part of two sequences of operations, by Myers' greedy O(ND) algorithm (Algorithmica 1, 1986)."""

from __future__ import annotations

from collections.abc import Sequence

# Beyond this many insertions and deletions, two sides run different programs; what is common at both ends still counts.
MOST_EDITS = 400


def common_subsequence(one: Sequence[object], other: Sequence[object]) -> list[tuple[int, int]]:
    """Pairs of indices of equal items, rising on both sides.

    >>> common_subsequence("abcd", "axcd")
    [(0, 0), (2, 2), (3, 3)]
    """
    head = 0
    while head < min(len(one), len(other)) and one[head] == other[head]:
        head += 1
    tail = 0
    while tail < min(len(one), len(other)) - head and one[-1 - tail] == other[-1 - tail]:
        tail += 1
    middle = _middle(one[head : len(one) - tail], other[head : len(other) - tail])
    pairs = [(at, at) for at in range(head)]
    pairs += [(head + x, head + y) for x, y in middle]
    pairs += [(len(one) - at, len(other) - at) for at in range(tail, 0, -1)]
    return pairs


def _middle(one: Sequence[object], other: Sequence[object]) -> list[tuple[int, int]]:
    furthest = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(MOST_EDITS, len(one) + len(other)) + 1):
        history.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1])
            x = furthest[diagonal + 1] if down else furthest[diagonal - 1] + 1
            y = x - diagonal
            while x < len(one) and y < len(other) and one[x] == other[y]:
                x, y = x + 1, y + 1
            furthest[diagonal] = x
            if x >= len(one) and y >= len(other):
                return _walked_back(history, len(one), len(other))
    return []


def _walked_back(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        furthest = history[edits]
        diagonal = x - y
        down = diagonal == -edits or (diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1])
        before = diagonal + 1 if down else diagonal - 1
        start_x = furthest[before]
        start_y = start_x - before
        while x > start_x and y > start_y and x > 0 and y > 0:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start_x, start_y
    return pairs[::-1]
