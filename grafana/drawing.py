# SPDX-License-Identifier: Apache-2.0
"""One SVG drawing for each kind of panel, from the answers to its queries. Used by picture.py."""

from __future__ import annotations

import html
import math
import re
from typing import Any, Protocol

COLOURS = ("#3274d9", "#e0752d", "#56a64b", "#a352cc", "#c4a000", "#e02f44", "#37872d", "#8f3bb8")
NAMED = {
    "green": "#56a64b",
    "orange": "#ff780a",
    "red": "#e02f44",
    "yellow": "#c4a000",
    "text": "#24292e",
    "blue": "#3274d9",
}
Area = tuple[float, float, float, float]
"""Left, top, width, height."""


class Source(Protocol):
    """Who answers queries, and for which time."""

    begin: float
    end: float

    def ask(self, target: dict[str, Any]) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Return (labels, points) for each series."""


def legend(target: dict[str, Any], labels: dict[str, str]) -> str:
    """What a series is called."""
    form = target.get("legendFormat", "__auto")
    if form == "__auto":
        return labels.get("__name__", "value")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form)


def colour_of(value: float, panel: dict[str, Any]) -> str:
    """The colour that the panel's thresholds give a value."""
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [{"value": 0, "color": "text"}])
    fitting = [step["color"] for step in steps[1:] if value >= step["value"]]
    return NAMED.get(fitting[-1] if fitting else steps[0]["color"], "#24292e")


def shown(value: float, unit: str) -> str:
    """A number for people."""
    if not math.isfinite(value):
        return {"nan": "NaN"}.get(str(value), str(value))
    if unit == "bytes":
        power = min(int(math.log(value, 1024)), 4) if value >= 1 else 0
        return f"{value / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    text = f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e6 else f"{value:.3g}"
    return f"{text} s" if unit == "s" else text


class Canvas:
    """SVG elements in one coordinate system."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(
        self, x: float, y: float, text: str, size: int = 11, colour: str = "#24292e", *, anchor: str = "start"
    ) -> None:
        """A line of text."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{html.escape(text)}</text>'
        )

    def box(self, x: float, y: float, w: float, h: float, fill: str, **other: object) -> None:
        """A rectangle."""
        more = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in other.items())
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 0):.1f}" height="{max(h, 0):.1f}" fill="{fill}"{more}/>'
        )

    def path(self, points: str, colour: str, fill: str = "none", width: float = 1.3) -> None:
        """A line or an area."""
        self.parts.append(f'<path d="{points}" stroke="{colour}" stroke-width="{width}" fill="{fill}"/>')


def draw_curves(canvas: Canvas, source: Source, panel: dict[str, Any], area: Area) -> None:
    """Lines over time; between `expected low` and `expected high` the band."""
    x, y, w, h = area
    series = [(legend(t, labels), points) for t in panel["targets"] for labels, points in source.ask(t)]
    values = [v for _, points in series for _, v in points if math.isfinite(v)]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    pad = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    low, high = (low - pad if low < 0 or low > pad else 0.0), high + pad
    left, bottom = x + 46, y + h - 18
    width, height = w - 54, h - 26

    def place(t: float, v: float) -> str:
        across = left + width * (t - source.begin) / (source.end - source.begin)
        return f"{across:.1f},{bottom - height * (v - low) / (high - low):.1f}"

    unit = panel["fieldConfig"]["defaults"]["unit"]
    for tick in range(3):
        level = low + (high - low) * tick / 2
        canvas.path(f"M{place(source.begin, level)} L{place(source.end, level)}", "#e4e7eb", width=0.8)
        canvas.text(left - 4, bottom - height * tick / 2 + 4, shown(level, unit), 9, "#6b7785", anchor="end")
    bands = {name: [p for p in points if math.isfinite(p[1])] for name, points in series if name.startswith("expected")}
    if len(bands) == 2 and all(bands.values()):
        edge = [place(t, v) for t, v in bands["expected low"]] + [
            place(t, v) for t, v in reversed(bands["expected high"])
        ]
        canvas.path("M" + " L".join(edge) + " Z", "none", "#3274d922")
    names = []
    for name, points in series:
        if not name.startswith("expected"):
            colour = COLOURS[len(names) % len(COLOURS)]
            names.append((name, colour))
            # A gap where the value is not finite, or where no scrape was.
            runs, before = [], None
            for t, v in points:
                if math.isfinite(v):
                    runs.append(("L" if before is not None and t - before < 60 else "M") + place(t, v))
                before = t if math.isfinite(v) else None
            if runs:
                canvas.path(" ".join(runs), colour)
    across = left
    for name, colour in names[:4]:
        canvas.box(across, y + h - 12, 8, 3, colour)
        canvas.text(across + 11, y + h - 7, name[:30], 9, "#6b7785")
        across += 20 + 5.2 * len(name[:30])


def draw_number(canvas: Canvas, source: Source, panel: dict[str, Any], area: Area) -> None:
    """Big numbers beside each other."""
    x, y, w, h = area
    (target,) = panel["targets"]
    series = source.ask(target)
    named = panel["options"].get("textMode") == "name"
    texts = {
        key: value["text"]
        for m in panel["fieldConfig"]["defaults"].get("mappings", [])
        for key, value in m["options"].items()
    }
    for place, (labels, points) in enumerate(series):
        value = points[-1][1]
        name = legend(target, labels)
        text = (
            name
            if named
            else texts.get(
                f"{value:.0f}" if math.isfinite(value) else "", shown(value, panel["fieldConfig"]["defaults"]["unit"])
            )
        )
        middle = x + w * (place + 0.5) / len(series)
        canvas.text(middle, y + h * 0.6, text, 22 if len(text) < 9 else 15, colour_of(value, panel), anchor="middle")
        if len(series) > 1 and not named:
            canvas.text(middle, y + h - 10, name, 10, "#6b7785", anchor="middle")


def draw_bars(canvas: Canvas, source: Source, panel: dict[str, Any], area: Area) -> None:
    """One bar a series."""
    x, y, w, h = area
    (target,) = panel["targets"]
    rows = sorted(
        ((legend(target, labels), points[-1][1]) for labels, points in source.ask(target)), key=lambda row: row[0]
    )
    most = max((v for _, v in rows if math.isfinite(v)), default=1.0) or 1.0
    each = min(24.0, h / max(len(rows), 1))
    for place, (name, value) in enumerate(rows):
        top = y + place * each
        canvas.text(x + 4, top + each * 0.7, name, 10)
        canvas.box(x + 160, top + 3, (w - 230) * max(value, 0) / most, each - 6, colour_of(value, panel), rx=2)
        canvas.text(
            x + w - 8,
            top + each * 0.7,
            shown(value, panel["fieldConfig"]["defaults"]["unit"]),
            10,
            "#24292e",
            anchor="end",
        )


def draw_bands(canvas: Canvas, source: Source, panel: dict[str, Any], area: Area) -> None:
    """One coloured band a series over time."""
    x, y, w, h = area
    (target,) = panel["targets"]
    series = sorted(((legend(target, labels), points) for labels, points in source.ask(target)), key=lambda row: row[0])
    each = min(24.0, h / max(len(series), 1))
    scale = (w - 180) / (source.end - source.begin)
    for place, (name, points) in enumerate(series):
        canvas.text(x + 4, y + place * each + each * 0.7, name, 10)
        for (t, v), (after, _) in zip(points, [*points[1:], (source.end, 0.0)], strict=True):
            canvas.box(
                x + 170 + (t - source.begin) * scale,
                y + place * each + 2,
                (after - t) * scale + 0.5,
                each - 4,
                colour_of(v, panel),
            )


def draw_table(canvas: Canvas, source: Source, panel: dict[str, Any], area: Area) -> None:
    """Labels and values, one row a set of labels."""
    x, y, w, h = area
    rearranged = next(t["options"] for t in panel["transformations"] if t["id"] == "organize")
    rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for target, title in zip(panel["targets"], rearranged["renameByName"].values(), strict=True):
        for labels, points in source.ask(target):
            key = tuple(sorted((k, v) for k, v in labels.items() if k not in rearranged["excludeByName"]))
            rows.setdefault(key, dict(key))[title] = shown(points[-1][1], "short")
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    wide = w / max(len(columns), 1)
    for place, name in enumerate(columns):
        canvas.text(x + 6 + place * wide, y + 12, name, 10, "#6b7785")
    for line, row in enumerate(list(rows.values())[: int((h - 14) // 16)]):
        for place, name in enumerate(columns):
            canvas.text(x + 6 + place * wide, y + 28 + 16 * line, row.get(name, "")[: int(wide / 5.6)], 10)


DRAWERS = {
    "timeseries": draw_curves,
    "stat": draw_number,
    "bargauge": draw_bars,
    "state-timeline": draw_bands,
    "table": draw_table,
}
