# SPDX-License-Identifier: Apache-2.0
"""The section of a report that shows the dump: comparable or not, the first module that parts, its numbers side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from sentinel.core.report.render import number
from sentinel.records import Divergence, Triage
from sentinel.sinks.html_elements import Markup, both, join, tag
from sentinel.sinks.html_words import COMPARED, DIRECTIONS, STAGES, VERDICTS, sentence, words

SHOWN_NAMES = 60


def dump_section(triage: Triage, beside: Sequence[str] = ()) -> Markup:
    """What triage found; `beside` are files that lie beside the page."""
    ranks = ", ".join(str(rank) for rank in triage.ranks)
    return tag(
        "section",
        tag("h2", both(*words(VERDICTS, triage.verdict))),
        _comparable(triage),
        _first(triage.first) if triage.first is not None else None,
        _suspects(triage.suspects),
        tag(
            "p",
            both(
                f"{triage.compared} tensors looked at, ranks {ranks or 'unknown'}.",
                f"共比较 {triage.compared} 个张量，rank {ranks or '未知'}。",
            ),
            class_="quiet",
        ),
        tag("ul", *(tag("li", sentence(note)) for note in triage.notes)) if triage.notes else None,
        _beside(beside),
        _lone(("only in the target", "仅存在于本次 dump"), triage.only_in_target),
        _lone(("only in the golden dump", "仅存在于基准 dump"), triage.only_in_golden),
    )


def _comparable(triage: Triage) -> Markup | None:
    if triage.comparable is None:
        return None
    badges = []
    for name, (en, zh) in COMPARED.items():
        held = getattr(triage.comparable, name)
        kind = "unknown" if held is None else ("yes" if held else "no")
        answer = {"unknown": ("unknown", "未知"), "yes": ("yes", "是"), "no": ("no", "否")}[kind]
        badges.append(tag("span", both(f"{en}: {answer[0]}", f"{zh}：{answer[1]}"), class_=f"badge {kind}"))
    return tag("p", *badges)


def _first(first: Divergence) -> Markup:
    direction, stage = words(DIRECTIONS, first.direction), words(STAGES, first.stage)
    return join(
        tag(
            "p",
            tag("code", first.module),
            " ",
            both(f"{direction[0]}, {stage[0]}", f"{direction[1]}，{stage[1]}"),
        ),
        tag("p", sentence(first.why)),
        tag(
            "p", tag("span", first.name, class_="mono"), " ", tag("span", first.position, class_="mono"), class_="quiet"
        ),
        _numbers(first.target, first.golden),
    )


def _numbers(target: Mapping[str, object], golden: Mapping[str, object] | None) -> Markup:
    heads = [("", ""), ("target", "本次")]
    if golden is not None:
        heads += [("golden", "基准"), ("relative difference", "相对差异")]
    rows = []
    for name, value in target.items():
        cells = [tag("td", name), tag("td", _shown(value), class_="number")]
        if golden is not None:
            other = golden.get(name)
            gap = _relative(value, other)
            cells += [
                tag("td", _shown(other), class_="number"),
                tag("td", gap, class_="number off" if gap not in {"", "0"} else "number"),
            ]
        rows.append(tag("tr", *cells))
    head = tag("thead", tag("tr", *(tag("th", both(*names)) for names in heads)))
    return tag("div", tag("table", head, tag("tbody", *rows)), class_="scroll")


def _shown(value: object) -> str:
    if isinstance(value, float):
        return number(value) if not math.isfinite(value) else f"{value:.9g}"
    return "-" if value is None else str(value)


def _relative(value: object, other: object) -> str:
    if isinstance(value, (int, float)) and isinstance(other, (int, float)):
        if value == other or (math.isnan(value) and math.isnan(other)):
            return "0"
        if not (math.isfinite(value) and math.isfinite(other)):
            return both("not finite", "非有限值")
        return f"{abs(value - other) / max(abs(value), abs(other)):.3g}"
    return "" if value == other else both("differs", "不同")


def _suspects(suspects: Sequence[Divergence]) -> Markup | None:
    if not suspects:
        return None
    items = [
        tag("li", tag("code", found.module), " ", both(*words(DIRECTIONS, found.direction)), ". ", sentence(found.why))
        for found in suspects
    ]
    return join(tag("h3", both("The next places", "其次可疑的位置")), tag("ol", *items))


def _beside(files: Sequence[str]) -> Markup | None:
    if not files:
        return None
    links = [tag("li", tag("a", name, href=quote(name))) for name in files]
    return join(
        tag("h3", both("Made by msprobe, beside this page", "msprobe 生成的文件（与本页同目录）")), tag("ul", *links)
    )


def _lone(title: tuple[str, str], names: Sequence[str]) -> Markup | None:
    if not names:
        return None
    shown = [tag("li", tag("code", name)) for name in names[:SHOWN_NAMES]]
    left = len(names) - len(shown)
    if left > 0:
        shown.append(tag("li", both(f"and {left} more", f"另有 {left} 个")))
    return tag(
        "details", tag("summary", both(f"{title[0]}: {len(names)}", f"{title[1]}：{len(names)}")), tag("ul", *shown)
    )
