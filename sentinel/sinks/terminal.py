# SPDX-License-Identifier: Apache-2.0
"""Tables for people, and the live view of `sentinel top`."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sentinel.sinks.durations import short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

REFRESH_SECONDS = 1.0
_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 30
_STATE_STYLES = {"watching": "green", "incident": "bold red", "silent": "yellow", "open": "bold red"}
_SEVERITY_STYLES = {"critical": "bold red", "warning": "yellow"}


def show_status(console: Console, document: Mapping[str, Any]) -> None:
    """Print the status document."""
    console.print(_headline(document))
    if document["runs"]:
        console.print(_runs_table(document["runs"]))
    for row in document["runs"]:
        for warning in row["warnings"]:
            console.print(Text(f"{row['run']}: {warning}", style="yellow"))


def show_incidents(console: Console, incidents: Sequence[Mapping[str, Any]]) -> None:
    """Print incidents as a table."""
    console.print(_incidents_table(incidents) if incidents else Text("no incidents"))


def show_captures(console: Console, captures: Sequence[Mapping[str, Any]]) -> None:
    """Print captures as a table."""
    if not captures:
        console.print(Text("no captures"))
        return
    table = _table("capture", "state", "steps", "stages", "level", "bytes", "why")
    for capture in captures:
        order, receipt = capture["order"], capture["receipt"]
        told = receipt or order
        state = receipt["outcome"] if receipt else capture["state"]
        steps = f"{told['first_step']}-{told['last_step']}"
        size = f"{receipt['bytes']}" if receipt else ""
        table.add_row(
            capture["id"], state, steps, ", ".join(told["stages"] or order["stages"]), order["level"], size, told["why"]
        )
    console.print(table)


def live(
    look: Callable[[], Mapping[str, Any]],
    *,
    console: Console | None = None,
    pause: Callable[[float], None] = time.sleep,
    frames: int | None = None,
) -> None:
    """Show what `look` returns, again and again, until interrupted.

    Args:
        look: returns the daemon's overview; what it raises ends the view.
        console: where to.
        pause: waits for the next frame.
        frames: end after so many; None: never.
    """
    shown = 0
    with Live(Text("looking for the daemon ..."), console=console, screen=True, auto_refresh=False) as view:
        while frames is None or shown < frames:
            view.update(overview(look()), refresh=True)
            shown += 1
            pause(REFRESH_SECONDS)


def overview(document: Mapping[str, Any]) -> RenderableType:
    """Return the live view's frame."""
    parts: list[RenderableType] = [_headline(document)]
    parts.append(_runs_table(document["runs"]) if document["runs"] else Text("no run is watched yet"))
    for row in document["runs"]:
        if row["state"] == "finished":
            continue
        parts.append(Text(f"\n{row['run']}", style="bold"))
        parts += [Text(warning, style="yellow") for warning in row["warnings"]]
        parts.append(_metrics_table(row.get("metrics", ())))
        still = [found for found in row.get("incidents", ()) if found["state"] == "open"]
        if still:
            parts.append(_incidents_table(still))
    return Group(*parts)


def sparkline(values: Sequence[float]) -> str:
    """Return the last values as a line of blocks; `!` where one is not finite.

    >>> sparkline([1.0, 2.0, float("nan"), 3.0])
    '▁▄!█'
    """
    last = list(values)[-_SPARK_WIDTH:]
    finite = [value for value in last if math.isfinite(value)]
    if not finite:
        return "!" * len(last)
    low, half_span = min(finite), (max(finite) / 2 - min(finite) / 2) or 1.0
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[int((v / 2 - low / 2) / half_span * top)] if math.isfinite(v) else "!" for v in last)


def _headline(document: Mapping[str, Any]) -> Text:
    state = document["daemon"]
    if state != "running":
        return Text(f"daemon {state}: {document.get('why', '')}", style="yellow")
    text = Text(f"daemon running, {document['endpoint'] or 'no endpoint'}")
    for remark in (*document.get("remarks", ()), *document.get("faults", ())):
        text.append(f"\n{remark}", style="yellow")
    return text


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _styled(text: object, styles: Mapping[str, str]) -> Text:
    return Text(str(text), style=styles.get(str(text), ""))


def _runs_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("run", "state", "step", "age", "baseline", "regime", "open", "captures")
    for row in rows:
        age = "" if row["seconds_since_step"] is None else short(row["seconds_since_step"])
        table.add_row(
            Text(row["run"]),
            _styled(row["state"], _STATE_STYLES),
            "" if row["last_step"] is None else str(row["last_step"]),
            age,
            Text(row["baseline"] or "none"),
            row["regime"],
            str(row["open_incidents"]),
            str(len(row["captures"])),
        )
    return table


def _incidents_table(incidents: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("incident", "severity", "kind", "stage", "state", "since", "because")
    for found in incidents:
        table.add_row(
            Text(found["id"]),
            _styled(found["severity"], _SEVERITY_STYLES),
            found["kind"],
            found["stage"],
            _styled(found["state"], _STATE_STYLES),
            str(found["opened_at_step"]),
            Text(found["because"]),
        )
    return table


def _metrics_table(metrics: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("metric", "value", "expected", "deviation", "last steps")
    for metric in metrics:
        band, score = metric["expected"], metric["score"]
        expected = "" if band is None else f"{band['low']:.5g} .. {band['high']:.5g}"
        out = score is not None and not score <= 1
        table.add_row(
            Text(metric["metric"]),
            f"{metric['value']:.5g}",
            expected,
            Text("" if score is None else f"{score:.3g}", style="bold red" if out else ""),
            Text(sparkline([value for _, value in metric.get("series", ())])),
        )
    return table
