# SPDX-License-Identifier: Apache-2.0
"""Plots as small SVG files, drawn without a plotting library; readable on white and on black."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 200, 18, 44
COLOURS = ("#e15759", "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#9c755f", "#76b7b2", "#edc948", "#ff9da7", "#8c8c8c")
INK = "#7f7f7f"


@dataclass(frozen=True)
class Line:
    """A named series of points; one point is drawn as a mark."""

    name: str
    points: Sequence[tuple[float, float]]
    thick: bool = False


def frame(title: str, body: list[str], x_label: str, y_label: str) -> str:
    inner = WIDTH - LEFT - RIGHT
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
                f'font-family="sans-serif" font-size="11" role="img" aria-label="{escape(title)}">'
            ),
            f'<rect x="{LEFT}" y="{TOP}" width="{inner}" height="{HEIGHT - TOP - BOTTOM}" fill="none" stroke="{INK}"/>',
            *body,
            text(LEFT + inner / 2, HEIGHT - 8, x_label, "middle"),
            (
                f'<text x="14" y="{HEIGHT / 2:.0f}" fill="{INK}" text-anchor="middle" '
                f'transform="rotate(-90 14 {HEIGHT / 2:.0f})">{escape(y_label)}</text>'
            ),
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, anchor: str = "start", colour: str = INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(words)}</text>'


def roc(title: str, lines: Sequence[Line], *, most: float) -> str:
    """Recall over false alarms per 1,000 clean steps; the axis of false alarms is a square root, to open the left end."""

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = LEFT + (min(point[0], most) / most) ** 0.5 * (WIDTH - LEFT - RIGHT)
        return x, HEIGHT - BOTTOM - point[1] * (HEIGHT - TOP - BOTTOM)

    body = []
    for mark in (0, 0.5, 1, 2, 5, 10, 20, 40):
        if mark <= most:
            x, _ = place((mark, 0))
            body.append(text(x, HEIGHT - BOTTOM + 14, f"{mark:g}", "middle"))
    for mark in (0, 0.25, 0.5, 0.75, 1):
        _, y = place((0, mark))
        body.append(text(LEFT - 6, y + 4, f"{mark:.0%}", "end"))
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        dash = ' stroke-dasharray="4 3"' if number >= len(COLOURS) else ""
        spots = [place(point) for point in line.points if point[0] <= most]
        if len(spots) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
            body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.3"{dash}/>')
        elif spots:
            x, y = spots[0]
            radius = 6 if line.thick else 3
            body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>')
        body.append(text(WIDTH - RIGHT + 10, TOP + 12 + 15 * number, line.name[:34], colour=colour))
    return frame(title, body, "false alarms per 1,000 clean steps (square-root scale)", "visible faults found")


def bars(title: str, groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], y_label: str) -> str:
    """Grouped bars of shares, 0 to 1."""
    inner, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    slot = inner / len(groups)
    wide = slot * 0.8 / len(series)
    body = []
    for mark in (0, 0.25, 0.5, 0.75, 1):
        body.append(text(LEFT - 6, HEIGHT - BOTTOM - mark * tall + 4, f"{mark:.0%}", "end"))
    for place, group in enumerate(groups):
        body.append(text(LEFT + slot * (place + 0.5), HEIGHT - BOTTOM + 14, group, "middle"))
        for number, (_, values) in enumerate(series):
            x, high = LEFT + slot * place + slot * 0.1 + wide * number, values[place] * tall
            body.append(
                f'<rect x="{x:.1f}" y="{HEIGHT - BOTTOM - high:.1f}" width="{wide:.1f}" height="{high:.1f}" '
                f'fill="{COLOURS[number % len(COLOURS)]}"/>'
            )
    for number, (name, _) in enumerate(series):
        body.append(text(WIDTH - RIGHT + 10, TOP + 12 + 15 * number, name, colour=COLOURS[number % len(COLOURS)]))
    return frame(title, body, "delay in steps", y_label)
