# SPDX-License-Identifier: Apache-2.0
"""An incident as one HTML file that opens without network, prints, and speaks English and Chinese.

It needs no script: language and theme are switched by style rules, so a policy that forbids scripts and loading of anything
holds. Everything that came from outside (metric names, model output, paths) is escaped by `html_elements`.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from functools import cache

from sentinel.core.report.render import band_text, number
from sentinel.core.report.samples import SamplePair
from sentinel.records import Chart, Incident, Suspect
from sentinel.sinks.html_advice import checklist, next_steps, notes
from sentinel.sinks.html_charts import metric_chart, percent, stage_graph
from sentinel.sinks.html_dump import dump_section
from sentinel.sinks.html_elements import Markup, both, tag
from sentinel.sinks.html_rollouts import samples_section
from sentinel.sinks.html_words import KINDS, OUTCOMES, SEVERITIES, STAGES, STATES, sentence, words

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
SHOWN_FINDINGS = 40


def incident_html(
    incident: Incident,
    charts: Sequence[Chart] = (),
    *,
    language: str = "en",
    beside: Sequence[str] = (),
    samples: Sequence[SamplePair] = (),
) -> str:
    """Return the report of an incident as a whole page.

    Args:
        incident: what is reported.
        charts: its metrics beside the baseline.
        language: `en` or `zh`, shown first; the page can be switched.
        beside: files that lie beside the page, as paths from it.
        samples: rollout text, beside the baseline's.
    """
    body = tag(
        "main",
        _switches(language),
        _head(incident),
        _stages(incident),
        _charts(incident, charts),
        _findings(incident),
        dump_section(incident.triage, beside) if incident.triage is not None else None,
        checklist(incident),
        samples_section(samples),
        _cost(incident),
        next_steps(incident),
        notes(incident),
        tag("footer", both(f"Sentinel, incident {incident.id}", f"Sentinel，事件 {incident.id}")),
    )
    return page(f"{words(KINDS, incident.kind)[0]}: {incident.run} ({incident.id})", body, language)


def page(title: str, body: Markup, language: str = "en") -> str:
    """A whole page around `body`: inlined style, and a policy that lets nothing be loaded or run."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        Markup(f"<style>\n{style()}</style>"),
    )
    lang = "zh" if language == "zh" else "en"
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang=lang)}\n"


@cache
def style() -> str:
    """The style sheet of reports and of the status page."""
    return importlib.resources.files("sentinel").joinpath("data/page.css").read_text(encoding="utf-8")


def _switches(language: str) -> Markup:
    choices = (
        ("language", (("en", "English"), ("zh", "中文")), "zh" if language == "zh" else "en"),
        (
            "theme",
            (("auto", both("auto", "自动")), ("light", both("light", "浅色")), ("dark", both("dark", "深色"))),
            "auto",
        ),
    )
    groups = []
    for name, options, chosen in choices:
        parts: list[Markup] = []
        for value, label in options:
            parts.append(tag("input", type="radio", name=name, id=value, checked="" if value == chosen else None))
            parts.append(tag("label", label, for_=value))
        groups.append(tag("span", *parts, class_="choice", role="radiogroup", aria_label=name))
    return tag("div", *groups, class_="switches")


def _head(incident: Incident) -> Markup:
    kind, stage = words(KINDS, incident.kind), words(STAGES, incident.stage)
    state, severity = words(STATES, incident.state), words(SEVERITIES, incident.severity)
    first = incident.triage.first if incident.triage is not None else None
    answers = [
        _answer(("since step", "起始步"), str(incident.opened_at_step)),
        _answer(("last seen at step", "最近一步"), str(max(incident.last_seen_step, incident.opened_at_step))),
        _answer(("stage", "阶段"), both(*stage)),
    ]
    if first is not None:
        answers.append(_answer(("first module", "首个出错模块"), tag("span", first.module, class_="mono"), wide=True))
    until = (
        None if incident.closed_at_step is None else _answer(("closed at step", "关闭步"), str(incident.closed_at_step))
    )
    return tag(
        "header",
        tag("span", both(*severity), class_=f"badge {incident.severity}"),
        tag("span", both(*state), class_=f"badge {incident.state}"),
        tag("span", incident.run, class_="quiet mono"),
        tag("h1", both(f"{kind[0]}: {stage[0]}", f"{kind[1]}：{stage[1]}")),
        tag("p", sentence(incident.because), class_="lead") if incident.because else None,
        tag("dl", *answers, until, class_="answer"),
        class_="top",
    )


def _answer(name: tuple[str, str], value: str, *, wide: bool = False) -> Markup:
    return tag("div", tag("dt", both(*name)), tag("dd", value), class_="wide" if wide else None)


def _stages(incident: Incident) -> Markup:
    confidences = {suspect.stage: suspect.confidence for suspect in incident.suspects}
    touched = frozenset(finding.stage for finding in incident.findings)
    rows = [_suspect_row(suspect) for suspect in incident.suspects]
    table = _table((("stage", "阶段"), ("confidence", "置信度"), ("because", "依据")), rows) if rows else None
    return tag(
        "section",
        tag("h2", both("Which stage", "哪个阶段")),
        tag("div", stage_graph(incident.stage, confidences, touched), class_="scroll"),
        table,
        tag("h3", both("Why the others are cleared", "其余阶段为何排除")),
        tag("ul", *_cleared(incident, set(confidences) | {incident.stage}, touched)),
    )


def _suspect_row(suspect: Suspect) -> Markup:
    return tag(
        "tr",
        tag("td", both(*words(STAGES, suspect.stage)), class_="name"),
        tag("td", percent(suspect.confidence), class_="number"),
        tag("td", sentence(suspect.because), class_="told"),
    )


def _cleared(incident: Incident, suspects: set[str], touched: frozenset[str]) -> list[Markup]:
    order = [stage for stage in STAGES if stage != "unknown"]
    at = order.index(incident.stage) if incident.stage in order else len(order)
    groups: dict[tuple[str, str], list[str]] = {}
    for place, stage in enumerate(order):
        if stage in suspects:
            continue
        if stage not in touched:
            reason = ("no finding about any of its metrics", "其指标没有任何异常")
        elif place > at:
            reason = ("has findings, but stands after the suspect in the data flow", "有异常，但位于可疑阶段的下游")
        else:
            reason = ("has findings, which the suspect explains better", "有异常，但可疑阶段解释得更好")
        groups.setdefault(reason, []).append(stage)
    lines = []
    for reason, stages in groups.items():
        names = [words(STAGES, stage) for stage in stages]
        en, zh = ", ".join(name[0] for name in names), "、".join(name[1] for name in names)
        lines.append(tag("li", both(f"{en}: {reason[0]}", f"{zh}：{reason[1]}")))
    return lines


def _charts(incident: Incident, charts: Sequence[Chart]) -> Markup | None:
    if not charts:
        return None
    figures = [
        tag(
            "figure",
            tag("figcaption", tag("code", chart.metric), " ", both(*words(STAGES, chart.stage))),
            metric_chart(chart, incident.opened_at_step),
        )
        for chart in charts
    ]
    return tag("section", tag("h2", both("Metrics beside the baseline", "指标与基线对照")), _legend(), *figures)


def _legend() -> Markup:
    def entry(shape: Markup, en: str, zh: str) -> Markup:
        return tag("span", tag("svg", shape, viewBox="0 0 26 12", aria_hidden="true"), both(en, zh))

    return tag(
        "div",
        entry(tag("path", d="M1 6H25", class_="value"), "this run", "本次运行"),
        entry(tag("path", d="M1 6H25", class_="reference"), "baseline", "基线"),
        entry(tag("rect", x=1, y=1, width=24, height=10, class_="band"), "expected band", "预期范围"),
        entry(tag("circle", cx=13, cy=6, r=4.2, class_="mark"), "finding", "异常点"),
        entry(tag("path", d="M9 2l8 8m0 -8l-8 8", class_="cross"), "NaN, Inf or absent", "NaN、Inf 或缺失"),
        entry(tag("path", d="M13 0V12", class_="since"), "incident opened", "事件开始"),
        class_="legend",
    )


def _findings(incident: Incident) -> Markup | None:
    if not incident.findings:
        return None
    rows = [
        tag(
            "tr",
            tag("td", found.step, class_="number"),
            tag("td", tag("code", found.metric), class_="path"),
            tag("td", number(found.value), class_="number off"),
            tag("td", band_text(found.expected), class_="number"),
            tag("td", sentence(found.because), class_="told"),
        )
        for found in incident.findings[:SHOWN_FINDINGS]
    ]
    left = len(incident.findings) - SHOWN_FINDINGS
    more = tag("p", both(f"and {left} more", f"另有 {left} 条"), class_="quiet") if left > 0 else None
    heads = (("step", "步"), ("metric", "指标"), ("value", "数值"), ("expected", "预期"), ("because", "依据"))
    return tag("section", tag("h2", both("What was seen", "观察到的现象")), _table(heads, rows, "stacked"), more)


def _table(heads: Sequence[tuple[str, str]], rows: Sequence[Markup], class_: str | None = None) -> Markup:
    head = tag("thead", tag("tr", *(tag("th", both(*names)) for names in heads)))
    return tag("div", tag("table", head, tag("tbody", *rows), class_=class_), class_="scroll")


def _cost(incident: Incident) -> Markup | None:
    order, receipt = incident.capture, incident.receipt
    if order is None and receipt is None:
        return None
    facts: list[Markup] = []
    if order is not None:
        stages = ", ".join(order.stages)
        facts.append(
            tag(
                "p",
                both(
                    f"Ordered: {stages} at level {order.level}, steps {order.first_step} to {order.last_step}. ",
                    f"采集指令：{stages}，级别 {order.level}，第 {order.first_step} 至 {order.last_step} 步。",
                ),
                sentence(order.why),
            )
        )
    if receipt is not None:
        outcome = words(OUTCOMES, receipt.outcome)
        answers = [
            _answer(("outcome", "结果"), both(*outcome)),
            _answer(("steps", "步"), _steps(receipt.first_step, receipt.last_step)),
            _answer(("written", "写入"), size_text(receipt.bytes)),
            _answer(("time taken", "耗时"), f"{receipt.seconds:.3g} s"),
        ]
        facts.append(tag("dl", *answers, class_="answer"))
        facts += [tag("p", sentence(receipt.why))] if receipt.why else []
        facts += [
            tag("h3", both("Where the dumps lie", "dump 所在位置")),
            tag("ul", *(_code_item(path) for path in receipt.paths)),
        ]
    return tag("section", tag("h2", both("What it cost", "代价")), *facts)


def _code_item(path: str) -> Markup:
    return tag("li", tag("code", path))


def _steps(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} - {last}"


def size_text(size: int) -> str:
    """Bytes as people read them.

    >>> size_text(900), size_text(4_400_000)
    ('900 B', '4.4 MB')
    """
    power = min((len(str(size)) - 1) // 3, 4)
    return f"{size / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
