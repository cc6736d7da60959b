# SPDX-License-Identifier: Apache-2.0
"""Pictures of a report as inline SVG: a metric against its baseline, and the data flow of a step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from sentinel.records import Chart
from sentinel.sinks.html_elements import Markup, join, tag
from sentinel.sinks.html_words import STAGES, words

WIDTH, HEIGHT = 680, 210
_LARGEST = 1e300
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 14, 30
MOST_POINTS = 400


def metric_chart(chart: Chart, opened_at_step: int) -> Markup:
    """A metric's line, the baseline's line and band, the marked steps, and where the incident began."""
    kept = _thinned(chart)
    steps = [chart.steps[index] for index in kept]
    if not steps:
        return tag("p", chart.metric, class_="quiet")
    finite = [
        value
        for index in kept
        for value in (chart.values[index], chart.reference[index], chart.low[index], chart.high[index])
        if math.isfinite(value)
    ]
    low, high = _range(finite, chart, kept)
    scale = _Scale(steps[0], steps[-1], low, high)
    parts = [*_axes(scale), _band(chart, kept, scale)]
    if steps[0] <= opened_at_step <= steps[-1]:
        x = scale.x(opened_at_step)
        parts.append(tag("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=TOP, y2=HEIGHT - BOTTOM, class_="since"))
    parts += [tag("path", d=d, class_="reference") for d in _path(chart.reference, chart, kept, scale)]
    parts += [tag("path", d=d, class_="value") for d in _path(chart.values, chart, kept, scale)]
    parts += list(_points(chart, kept, scale))
    label = f"{chart.metric}: {len(chart.steps)} steps"
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label, class_="chart")


class _Scale:
    def __init__(self, first: int, last: int, low: float, high: float) -> None:
        self.first, self.last, self.low, self.high = first, max(last, first + 1), low, high

    def x(self, step: float) -> float:
        return LEFT + (step - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return HEIGHT - BOTTOM - (inside - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def _thinned(chart: Chart) -> list[int]:
    """Indices of the steps that are drawn: all marked ones, and the others evenly."""
    count = len(chart.steps)
    every = max(1, math.ceil(count / MOST_POINTS))
    marked = set(chart.marked)
    return [
        index for index, step in enumerate(chart.steps) if index % every == 0 or index == count - 1 or step in marked
    ]


def _range(finite: Sequence[float], chart: Chart, kept: Sequence[int]) -> tuple[float, float]:
    """The drawn range: the values and the baseline whole, the band as far as it does not dwarf them."""
    # Beyond this, the width of the range itself overflows.
    core = [
        max(min(value, _LARGEST), -_LARGEST)
        for index in kept
        for value in (chart.values[index], chart.reference[index])
        if math.isfinite(value)
    ]
    if not core:
        core = list(finite) or [0.0]
    low, high = min(core), max(core)
    least = max(1e-9 * abs(low), 1e-9 * abs(high), 1e-290)
    room = high - low if least < high - low < math.inf else abs(high) * 0.1
    room = room if room > least else 1.0
    edges = [value for value in finite if low - 2 * room <= value <= high + 2 * room]
    low, high = min([low, *edges]), max([high, *edges])
    pad = 0.06 * max(high - low, room)
    return low - pad, high + pad


def _ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step)
    return [index * step for index in range(first, math.floor(high / step) + 1)]


def _axes(scale: _Scale) -> Iterator[Markup]:
    for value in _ticks(scale.low, scale.high):
        y = f"{scale.y(value):.1f}"
        yield tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")
        yield tag("text", f"{value:.4g}", x=LEFT - 8, y=y, class_="tick-y")
    for value in _ticks(scale.first, scale.last, 8):
        if value == int(value):
            yield tag("text", str(int(value)), x=f"{scale.x(value):.1f}", y=HEIGHT - 10, class_="tick-x")


def _band(chart: Chart, kept: Sequence[int], scale: _Scale) -> Markup:
    shapes = []
    run: list[int] = []
    for index in [*kept, None]:
        if (
            index is not None
            and not (math.isnan(chart.low[index]) or math.isnan(chart.high[index]))
            and _bounded(chart, index)
        ):
            run.append(index)
            continue
        if len(run) > 1:
            upper = [f"{scale.x(chart.steps[i]):.1f},{scale.y(chart.high[i]):.1f}" for i in run]
            lower = [f"{scale.x(chart.steps[i]):.1f},{scale.y(chart.low[i]):.1f}" for i in reversed(run)]
            shapes.append(tag("polygon", points=" ".join([*upper, *lower]), class_="band"))
        run = []
    return join(*shapes)


def _bounded(chart: Chart, index: int) -> bool:
    return math.isfinite(chart.low[index]) or math.isfinite(chart.high[index])


def _path(values: Sequence[float], chart: Chart, kept: Sequence[int], scale: _Scale) -> Iterator[str]:
    """One path for each stretch of finite values."""
    pen: list[str] = []
    for index in [*kept, None]:
        if index is not None and math.isfinite(values[index]):
            pen.append(f"{scale.x(chart.steps[index]):.1f} {scale.y(values[index]):.1f}")
            continue
        if pen:
            yield "M" + "L".join(pen if len(pen) > 1 else [pen[0], pen[0]])
        pen = []


def _points(chart: Chart, kept: Sequence[int], scale: _Scale) -> Iterator[Markup]:
    marked = set(chart.marked)
    for index in kept:
        step, value = chart.steps[index], chart.values[index]
        if step not in marked and math.isfinite(value):
            continue
        shown = f"{value:.6g}" if math.isfinite(value) else ("NaN or absent" if math.isnan(value) else "Inf")
        title = tag("title", f"step {step}: {shown}")
        x = scale.x(step)
        if math.isfinite(value):
            yield tag("circle", title, cx=f"{x:.1f}", cy=f"{scale.y(value):.1f}", r=4.2, class_="mark")
        elif step in marked:
            yield tag("path", title, d=f"M{x - 4:.1f} {TOP + 2}l8 8m0 -8l-8 8", class_="cross")


# Column, row of each stage; the step flows from left to right.
_PLACES: Mapping[str, tuple[int, float]] = {
    "data": (0, 1.0),
    "config": (0, 2.0),
    "rollout": (1, 1.5),
    "compute_rm_score": (2, 0.0),
    "actor_compute_log_prob": (2, 1.0),
    "ref_compute_log_prob": (2, 2.0),
    "compute_values": (2, 3.0),
    "advantage": (3, 1.5),
    "critic_update": (4, 1.0),
    "actor_update": (4, 2.0),
}
EDGES = (
    ("data", "rollout"),
    ("config", "rollout"),
    ("rollout", "compute_rm_score"),
    ("rollout", "actor_compute_log_prob"),
    ("rollout", "ref_compute_log_prob"),
    ("rollout", "compute_values"),
    ("compute_rm_score", "advantage"),
    ("actor_compute_log_prob", "advantage"),
    ("ref_compute_log_prob", "advantage"),
    ("compute_values", "advantage"),
    ("advantage", "critic_update"),
    ("advantage", "actor_update"),
)
_BOX_WIDTH, _BOX_HEIGHT, _COLUMN, _ROW = 138, 40, 174, 58


def stage_graph(blamed: str, confidences: Mapping[str, float], touched: frozenset[str]) -> Markup:
    """The stages of a step; the blamed one stands out, other suspects are tinted, stages with findings have a dot."""
    lines = [_edge(source, target) for source, target in EDGES]
    back_y = _ROW * 3 + _BOX_HEIGHT + 14
    start, end = _corner("actor_update"), _corner("rollout")
    lines.append(
        tag(
            "path",
            d=f"M{start[0] + _BOX_WIDTH / 2} {start[1] + _BOX_HEIGHT}V{back_y}H{end[0] + _BOX_WIDTH / 2}V{end[1] + _BOX_HEIGHT + 3}",
            class_="edge next-step",
            marker_end="url(#tip)",
        )
    )
    boxes = [_box(stage, blamed, confidences.get(stage), stage in touched) for stage in _PLACES]
    tip = tag(
        "marker", tag("path", d="M0 0L7 3.5L0 7z", class_="tip"), id="tip", viewBox="0 0 7 7", refX=6.5, refY=3.5,
        markerWidth=6, markerHeight=6, orient="auto",
    )  # fmt: skip
    size = f"0 0 {_COLUMN * 4 + _BOX_WIDTH + 4} {back_y + 8}"
    return tag(
        "svg", tag("defs", tip), *lines, *boxes, viewBox=size, role="img", aria_label="stages of a step", class_="flow"
    )


def percent(share: float) -> str:
    """A confidence as people read it; a small one is not none.

    >>> percent(0.72), percent(0.002)
    ('72%', '<1%')
    """
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def _corner(stage: str) -> tuple[float, float]:
    column, row = _PLACES[stage]
    return 2 + column * _COLUMN, 2 + row * _ROW


def _edge(source: str, target: str) -> Markup:
    (x1, y1), (x2, y2) = _corner(source), _corner(target)
    x1, y1, y2 = x1 + _BOX_WIDTH, y1 + _BOX_HEIGHT / 2, y2 + _BOX_HEIGHT / 2
    middle = (x1 + x2) / 2
    return tag("path", d=f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2 - 2} {y2}", class_="edge", marker_end="url(#tip)")


def _box(stage: str, blamed: str, confidence: float | None, touched: bool) -> Markup:
    x, y = _corner(stage)
    kind = "blamed" if stage == blamed else ("suspect" if confidence else "cleared")
    en, zh = words(STAGES, stage)
    share = f" {percent(confidence)}" if confidence else ""
    middle = x + _BOX_WIDTH / 2
    parts = [
        tag("rect", x=x, y=y, width=_BOX_WIDTH, height=_BOX_HEIGHT, rx=8),
        tag("text", en + share, x=middle, y=y + _BOX_HEIGHT / 2, class_="en"),
        tag("text", zh + share, x=middle, y=y + _BOX_HEIGHT / 2, class_="zh"),
    ]
    if touched:
        parts.append(tag("circle", tag("title", "has findings"), cx=x + _BOX_WIDTH - 9, cy=y + 9, r=3.5, class_="dot"))
    return tag("g", *parts, class_=f"stage {kind}")
