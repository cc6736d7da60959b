# SPDX-License-Identifier: Apache-2.0
"""What to do about an incident, with the exact commands; what was done, and what could explain it."""

from __future__ import annotations

import shlex

from sentinel.core.report.incidents import EXPLAINS
from sentinel.records import UNKNOWN_STAGE, Incident
from sentinel.sinks.html_elements import Markup, both, tag
from sentinel.sinks.html_words import sentence


def next_steps(incident: Incident) -> Markup:
    """The section that says what to do."""
    items = [
        tag("li", both(en, zh), tag("pre", shlex.join(command)) if command else None)
        for en, zh, command in advice(incident)
    ]
    return tag("section", tag("h2", both("What to do next", "下一步")), tag("ol", *items))


def advice(incident: Incident) -> list[tuple[str, str, list[str]]]:
    """What to do, in order: English, Chinese, and the exact command (empty where there is none)."""
    steps: list[tuple[str, str, list[str]]] = []
    triage, first = incident.triage, incident.triage.first if incident.triage is not None else None
    if triage is not None and triage.target:
        command = ["sentinel", "triage", triage.target, *([triage.golden] if triage.golden else [])]
        steps.append(("Look at the comparison again:", "再次查看对比结果：", command))
    if first is not None and first.direction == "parameters":
        steps.append(
            (
                f"The weights of {first.module} differ before any operation: check how they were loaded and synchronised.",
                f"{first.module} 的权重在任何运算之前就不同：检查权重加载与同步。",
                ["sentinel", "preflight", "--baseline", "BASELINE", "--model", "MODEL_DIR"],
            )
        )
    elif first is not None and first.operation:
        steps.append(
            (
                f"{first.module} is one operation, {first.operation}: look at its kernel, dtype and flags, and at code that was hooked onto it.",
                f"{first.module} 只含一个算子 {first.operation}：检查该算子的实现、数据类型和开关，以及挂在该模块上的代码。",
                [],
            )
        )
    elif first is not None:
        request = [
            "sentinel",
            "captures",
            "request",
            "--run",
            incident.run,
            "--stages",
            _dumpable(first.stage, incident),
            "--level",
            "mix",
        ]
        steps.append(
            (
                f"Go from the module to the operation: dump {first.module} at level mix.",
                f"从模块深入到算子：以 mix 级别采集 {first.module}。",
                request,
            )
        )
    elif incident.stage not in {"unknown", "data", "config", "rollout", "advantage"}:
        request = ["sentinel", "captures", "request", "--run", incident.run, "--stages", incident.stage]
        steps.append(("Dump the suspected stage at the next step:", "在下一步采集可疑阶段：", request))
    if triage is not None and triage.verdict == "not_comparable":
        plan = ["sentinel", "captures", "plan", incident.id, "-o", "orders.json"]
        steps.append(
            (
                "The golden dump is of another computation: order one from this checkpoint and these rollouts (run it with SENTINEL_ORDERS=orders.json).",
                "基准 dump 不是同一次计算：用该检查点和 rollout 重新制作(以 SENTINEL_ORDERS=orders.json 运行)。",
                plan,
            )
        )
    if incident.stage == "rollout":
        steps.append(
            (
                "Read the texts of the suspicious steps:",
                "检查可疑步的生成文本：",
                ["sentinel", "rollout", "check", "ROLLOUT_DATA_DIR"],
            )
        )
    if incident.stage in {"data", "config"}:
        steps.append(
            (
                "Go through the alignment checklist:",
                "逐项核对对齐清单：",
                ["sentinel", "preflight", "--baseline", "BASELINE"],
            )
        )
    steps.append(
        ("All of it as JSON:", "以 JSON 查看全部内容：", ["sentinel", "incidents", "show", incident.id, "--json"])
    )
    return steps


def _dumpable(stage: str, incident: Incident) -> str:
    return incident.stage if stage == UNKNOWN_STAGE else stage


def checklist(incident: Incident) -> Markup | None:
    """Differences of the alignment checklist that the engine found worth a look when the incident opened."""
    found = [note.removeprefix(EXPLAINS) for note in incident.notes if note.startswith(EXPLAINS)]
    if not found:
        return None
    title = both("Checklist differences that could explain it", "可能的原因：对齐清单中的差异")
    return tag("section", tag("h2", title), tag("ul", *(tag("li", sentence(note)) for note in found)))


def notes(incident: Incident) -> Markup | None:
    """What Sentinel did about it, in order."""
    told = [note for note in incident.notes if not note.startswith(EXPLAINS)]
    if not told:
        return None
    return tag(
        "section",
        tag("h2", both("What Sentinel did", "Sentinel 做了什么")),
        tag("ol", *(tag("li", sentence(note)) for note in told)),
    )
