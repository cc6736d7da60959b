# SPDX-License-Identifier: Apache-2.0
"""The status page at `/`: runs beside their baseline, open incidents, captures. No script, nothing loaded from anywhere.

Rendered from the daemon's overview document. Everything in it that a user or a model wrote is escaped.
"""

from __future__ import annotations

import html
import math
import urllib.parse
from typing import TYPE_CHECKING, Any

from sentinel.sinks.durations import short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REFRESH_SECONDS = 10
_WIDTH, _HEIGHT = 120, 24

_TEXTS = {
    "en": {
        "title": "Sentinel",
        "other": "中文",
        "other_code": "zh",
        "no_runs": "No run is watched yet. Name one (SENTINEL_RUN) and start training.",
        "step": "step",
        "ago": "{0} ago",
        "baseline": "baseline",
        "no_baseline": "no baseline: only the rules that need none apply",
        "incidents": "Incidents",
        "no_incidents": "none so far",
        "captures": "Captures",
        "metrics": "Metrics, the furthest from the baseline first",
        "warnings": "Warnings",
        "metric": "metric",
        "value": "value",
        "expected": "expected",
        "deviation": "deviation",
        "trend": "last steps",
        "since": "since step",
        "report": "report",
        "steps": "steps",
        "waiting": "waiting for its first step",
        "watching": "watching",
        "incident": "incident",
        "silent": "silent",
        "finished": "finished",
        "open": "open",
        "closed": "closed",
        "footer": "version {0} on {1}, restarted {2} times. Metrics: ",
    },
    "zh": {
        "title": "Sentinel",
        "other": "English",
        "other_code": "en",
        "no_runs": "尚无被监视的训练。设置 SENTINEL_RUN 后启动训练即可。",
        "step": "步",
        "ago": "{0}前",
        "baseline": "基线",
        "no_baseline": "无基线：仅使用不需要基线的规则",
        "incidents": "异常事件",
        "no_incidents": "暂无",
        "captures": "精度采集",
        "metrics": "指标（偏离基线最远者在前）",
        "warnings": "警告",
        "metric": "指标",
        "value": "当前值",
        "expected": "预期",
        "deviation": "偏离",
        "trend": "最近各步",
        "since": "起始步",
        "report": "报告",
        "steps": "步",
        "waiting": "等待第一步",
        "watching": "监视中",
        "incident": "异常",
        "silent": "无响应",
        "finished": "已结束",
        "open": "进行中",
        "closed": "已关闭",
        "footer": "版本 {0}，主机 {1}，已重启 {2} 次。指标：",
    },
}

_STYLE = """
:root{--ink:#1c2430;--dim:#667085;--line:#e2e6ec;--paper:#fff;--back:#f5f6f8;--good:#1a7f4b;--bad:#b42318;--warn:#a15c07}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--dim:#98a2b3;--line:#313a48;--paper:#1b212b;--back:#12161d;
--good:#4ac18a;--bad:#ff8a7a;--warn:#f0b45b}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,"PingFang SC","Microsoft YaHei",sans-serif}
header,main,footer{max-width:64rem;margin:0 auto;padding:.8rem 1rem}
header{display:flex;justify-content:space-between;align-items:baseline}
h1{font-size:1.2rem;margin:0}h2{font-size:1.05rem;margin:0;overflow-wrap:anywhere}h3{font-size:.9rem;color:var(--dim);margin:1rem 0 .3rem}
section{background:var(--paper);border:1px solid var(--line);border-radius:8px;padding:1rem;margin-bottom:1rem}
.top{display:flex;flex-wrap:wrap;gap:.3rem .8rem;align-items:baseline}
.state{font-weight:600}.watching{color:var(--good)}.incident,.critical{color:var(--bad)}.silent,.warning{color:var(--warn)}
.dim,footer{color:var(--dim)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.88rem}
th{text-align:left;font-weight:500;color:var(--dim)}td,th{padding:.25rem .6rem .25rem 0;border-top:1px solid var(--line);vertical-align:top}
td.n{font-variant-numeric:tabular-nums;white-space:nowrap}td.out{color:var(--bad);font-weight:600}td.text{overflow-wrap:anywhere;min-width:10rem}
svg{display:block}polyline{fill:none;stroke:var(--ink);stroke-width:1.2}rect{fill:var(--good);opacity:.15}circle{fill:var(--bad)}
ul{margin:.2rem 0;padding-left:1.2rem;overflow-wrap:anywhere}ul.plain{list-style:none;padding:0}ul.plain li{border-top:1px solid var(--line);padding:.4rem 0}
a{color:inherit}@media(max-width:40rem){.wide-only{display:none}td.text{min-width:8rem}}
"""


def render(document: Mapping[str, Any], language: str) -> str:
    """Return the page.

    Args:
        document: the daemon's overview.
        language: `en` or `zh`.
    """
    texts = _TEXTS.get(language, _TEXTS["en"])
    runs = sorted(document.get("runs", ()), key=lambda r: (r["state"] == "finished", not r["open_incidents"], r["run"]))
    body = "".join(_run(row, texts) for row in runs) or f"<section>{texts['no_runs']}</section>"
    footer = texts["footer"].format(
        _safe(document.get("version")), _safe(document.get("host")), _safe(document.get("restarts"))
    )
    said = _listed([*document.get("remarks", ()), *document.get("faults", ())])
    return (
        f'<!DOCTYPE html><html lang="{language}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}"><title>{_title(runs, texts)}</title>'
        f"<style>{_STYLE}</style></head><body><header><h1>{texts['title']}</h1>"
        f'<a href="?lang={texts["other_code"]}">{texts["other"]}</a></header><main>{said}{body}</main>'
        f'<footer>{footer}<a href="/metrics">/metrics</a> · <a href="/api/v1/runs">/api/v1/runs</a></footer></body></html>\n'
    )


def _title(runs: Sequence[Mapping[str, Any]], texts: Mapping[str, str]) -> str:
    count = sum(int(row["open_incidents"]) for row in runs)
    return f"({count}) {texts['title']}" if count else texts["title"]


def _run(row: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    state = str(row["state"])
    baseline = f"{texts['baseline']} {_safe(row['baseline'])}" if row["baseline"] else texts["no_baseline"]
    step = "" if row["last_step"] is None else f"{texts['step']} {row['last_step']}"
    seconds = row["seconds_since_step"]
    age = "" if seconds is None else texts["ago"].format(short(float(seconds)))
    return (
        f'<section><div class="top"><h2>{_safe(row["run"])}</h2>'
        f'<span class="state {_safe(state)}">{texts.get(state, _safe(state))}</span><span>{step}</span>'
        f'<span class="dim">{age}</span><span class="dim">{baseline} · {_safe(row["regime"])}</span></div>'
        + _listed(row["warnings"], texts["warnings"])
        + _incidents(row.get("incidents", ()), texts)
        + _captures(row["captures"], texts)
        + _metrics(row.get("metrics", ()), texts)
        + "</section>"
    )


def _listed(lines: Sequence[object], head: str = "") -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{_safe(line)}</li>" for line in lines)
    return f'{f"<h3>{head}</h3>" if head else ""}<ul class="warning">{items}</ul>'


def _incidents(incidents: Sequence[Mapping[str, Any]], texts: Mapping[str, str]) -> str:
    if not incidents:
        return f'<h3>{texts["incidents"]}</h3><span class="dim">{texts["no_incidents"]}</span>'
    entries = []
    for found in sorted(incidents, key=lambda i: (i["state"] != "open", -i["opened_at_step"])):
        link = f"/reports/{urllib.parse.quote(str(found['id']), safe='')}"
        entries.append(
            f'<li><span class="{_safe(found["severity"])}">{_safe(found["kind"])}</span> {_safe(found["stage"])} · '
            f"{texts['since']} {found['opened_at_step']} · {texts.get(found['state'], _safe(found['state']))} · "
            f'<a href="{link}">{texts["report"]}</a><br>{_safe(found["because"])}</li>'
        )
    return f'<h3>{texts["incidents"]}</h3><ul class="plain">{"".join(entries)}</ul>'


def _captures(captures: Sequence[Mapping[str, Any]], texts: Mapping[str, str]) -> str:
    if not captures:
        return ""
    entries = []
    for capture in reversed(captures):
        told = capture["receipt"] or capture["order"]
        stages = ", ".join(told["stages"] or capture["order"]["stages"])
        why = f"<br>{_safe(told['why'])}" if told.get("why") else ""
        entries.append(
            f"<li>{_safe(capture['id'])} · {_safe(stages)} · {texts['steps']} {told['first_step']}-{told['last_step']} · "
            f"{_safe(told.get('outcome', capture['state']))}{why}</li>"
        )
    return f'<h3>{texts["captures"]}</h3><ul class="plain">{"".join(entries)}</ul>'


def _metrics(metrics: Sequence[Mapping[str, Any]], texts: Mapping[str, str]) -> str:
    if not metrics:
        return ""
    rows = []
    for metric in metrics:
        score = metric["score"]
        out = score is not None and not score <= 1
        band = metric["expected"]
        expected = "" if band is None else f"{_number(band['low'])} … {_number(band['high'])}"
        rows.append(
            f'<tr><td class="text">{_safe(metric["metric"])}</td><td class="n">{_number(metric["value"])}</td>'
            f'<td class="n wide-only">{expected}</td><td class="n{" out" if out else ""}">{"" if score is None else _number(score)}</td>'
            f"<td>{sparkline(metric.get('series', ()), band)}</td></tr>"
        )
    head = (
        f'<tr><th>{texts["metric"]}</th><th>{texts["value"]}</th><th class="wide-only">{texts["expected"]}</th>'
        f"<th>{texts['deviation']}</th><th>{texts['trend']}</th></tr>"
    )
    return f'<h3>{texts["metrics"]}</h3><div class="wide"><table>{head}{"".join(rows)}</table></div>'


def sparkline(series: Sequence[Sequence[float]], band: Mapping[str, float] | None) -> str:
    """Return a metric's last steps as a small drawing: a line, the expected band behind it, a dot where it is not finite."""
    points = [float(value) for _, value in series]
    finite = [value for value in points if math.isfinite(value)]
    if len(points) < 2 or not finite:
        return ""
    edges = [edge for edge in (band["low"], band["high"]) if math.isfinite(edge)] if band else []
    low, high = min(finite + edges), max(finite + edges)
    half_span = (high / 2 - low / 2) or 1.0  # halves: the difference of two large numbers may be too large

    def y(value: float) -> float:
        return round(_HEIGHT - 2 - (value / 2 - low / 2) / half_span * (_HEIGHT - 4), 1)

    def x(index: int) -> float:
        return round(index * (_WIDTH - 4) / (len(points) - 1) + 2, 1)

    line = " ".join(f"{x(i)},{y(v)}" for i, v in enumerate(points) if math.isfinite(v))
    dots = "".join(f'<circle cx="{x(i)}" cy="4" r="2"/>' for i, v in enumerate(points) if not math.isfinite(v))
    back = ""
    if len(edges) == 2:
        back = f'<rect x="0" width="{_WIDTH}" y="{y(edges[1])}" height="{max(1.0, y(edges[0]) - y(edges[1])):.1f}"/>'
    return f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img">{back}<polyline points="{line}"/>{dots}</svg>'


def _number(value: float) -> str:
    return f"{value:.5g}"


def _safe(value: object) -> str:
    return html.escape(str(value), quote=True)
