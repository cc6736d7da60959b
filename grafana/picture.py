#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a dashboard from a Prometheus as one SVG: our rendering, which is not how Grafana looks.

    python grafana/picture.py http://127.0.0.1:9090 sentinel-run OUT.svg --minutes 10 run=NAME

For people who want to see what a dashboard holds without Grafana, and for the documentation. Panels lie where the dashboard
puts them; every number comes from the dashboard's own queries. Variables are given as NAME=VALUE; others match anything,
and a panel that is repeated is drawn for the values of its metric that deviate most.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from drawing import DRAWERS, Canvas

CELL_W, CELL_H, GAP = 50, 34, 6
REPEATS = 6


class Source:
    """A Prometheus, asked as Grafana asks it."""

    def __init__(self, url: str, minutes: float, variables: dict[str, str]) -> None:
        self._url = url.rstrip("/")
        self.end = time.time()
        self.begin = self.end - 60 * minutes
        self._step = max(1.0, (self.end - self.begin) / 240)
        self._variables = variables

    def get(self, path: str, **parameters: object) -> Any:
        """The data of an answer."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310  # the caller's own server
            return json.load(answer)["data"]["result"]

    def ask(self, target: dict[str, Any]) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """(labels, points) of one query."""
        expr = self.filled(target["expr"])
        if target.get("instant"):
            found = self.get("query", query=expr, time=self.end)
            return [(s["metric"], [(float(s["value"][0]), float(s["value"][1]))]) for s in found]
        found = self.get("query_range", query=expr, start=self.begin, end=self.end, step=self._step)
        return [(s["metric"], [(float(t), float(v)) for t, v in s["values"]]) for s in found]

    def filled(self, text: str) -> str:
        """The text with variables and intervals put in."""
        for name, value in {"__rate_interval": "1m", "__interval": "15s", **self._variables}.items():
            text = text.replace(f"${name}", value)
        return re.sub(r"\$\w+", ".*", text)


def repeated(
    source: Source, panel: dict[str, Any], variables: dict[str, str]
) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """The panel for each metric that it is repeated for: those that are not finite, then those that deviate most."""
    if "repeat" not in panel:
        return [(panel, variables)]
    ranked = source.get("query", query=source.filled('sentinel_metric_deviation_ratio{run="$run"}'))
    value = source.filled('sentinel_metric_value{run="$run"}')
    first = source.get("query", query=f"{value} != {value}")
    found = [*first, *sorted(ranked, key=lambda s: -float(s["value"][1]))]
    names = list(dict.fromkeys(s["metric"]["metric"] for s in found))[:REPEATS]
    box = panel["gridPos"]
    made = []
    for place, name in enumerate(names):
        spot = {**box, "x": place % 3 * 8, "y": box["y"] + place // 3 * box["h"]}
        made.append(({**panel, "title": name, "gridPos": spot}, {**variables, "metric": name}))
    return made


def draw(url: str, board: dict[str, Any], minutes: float, variables: dict[str, str]) -> str:
    """The dashboard as SVG text."""
    source = Source(url, minutes, variables)
    every = [pair for panel in board["panels"] for pair in repeated(source, panel, variables)]
    canvas = Canvas()
    height = 60 + max((p["gridPos"]["y"] + p["gridPos"]["h"]) * CELL_H for p, _ in every)
    canvas.text(GAP, 24, board["title"] + "".join(f"   {k}: {v}" for k, v in variables.items()), 17)
    canvas.text(
        24 * CELL_W - GAP, 24, "our rendering of the dashboard's queries, not Grafana", 11, "#6b7785", anchor="end"
    )
    for panel, own in every:
        spot = panel["gridPos"]
        x, y = spot["x"] * CELL_W + GAP / 2, spot["y"] * CELL_H + 40
        w, h = spot["w"] * CELL_W - GAP, spot["h"] * CELL_H - GAP
        if panel["type"] == "row":
            canvas.text(x, y + 20, panel["title"], 14)
            continue
        canvas.box(x, y, w, h, "#ffffff", stroke="#d8dde3", rx=3)
        canvas.text(x + 8, y + 16, panel["title"], 12)
        at_that_moment = Source(url, minutes, own)
        at_that_moment.begin, at_that_moment.end = source.begin, source.end
        DRAWERS[panel["type"]](canvas, at_that_moment, panel, (x + 4, y + 24, w - 8, h - 28))
    size = f'viewBox="0 0 {24 * CELL_W} {height}" width="{24 * CELL_W}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif"><rect width="100%" height="100%" fill="#f4f5f7"/>'
    return head + "\n".join(canvas.parts) + "</svg>\n"


def main() -> int:
    """Draw one dashboard."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("url")
    parser.add_argument("board")
    parser.add_argument("out", type=Path)
    parser.add_argument("variables", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--minutes", type=float, default=60.0)
    args = parser.parse_intermixed_args()
    board = json.loads((Path(__file__).parent / f"dashboards/{args.board}.json").read_text("utf-8"))
    variables = dict(text.split("=", 1) for text in args.variables)
    args.out.write_text(draw(args.url, board, args.minutes, variables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
