# SPDX-License-Identifier: Apache-2.0
"""Rollout samples side by side. Everything here is model output, so nothing of it is ever markup."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from sentinel.core.report.render import number
from sentinel.core.report.samples import SamplePair
from sentinel.sinks.html_elements import Markup, both, join, tag

LABELS = {
    "ok": ("reads well", "正常"),
    "garbled": ("garbled", "乱码"),
    "empty": ("empty", "空"),
    "repetitive": ("repetitive", "重复"),
}


def samples_section(samples: Sequence[SamplePair]) -> Markup | None:
    """The answers of the run beside the baseline's to the same prompts; None without any."""
    if not samples:
        return None
    return tag(
        "section",
        tag("h2", both("Rollout samples beside the baseline", "生成样本与基线对照")),
        tag(
            "p",
            both(
                f"Step {samples[0].step}; marked from the first character that differs.",
                f"第 {samples[0].step} 步；从第一个不同的字符起标记。",
            ),
            class_="quiet",
        ),
        *(_sample(sample) for sample in samples),
    )


def _sample(sample: SamplePair) -> Markup:
    label = LABELS.get(sample.label, (sample.label, sample.label))
    kind = "yes" if sample.label == "ok" else "no"
    missing = tag("p", both("the baseline has no answer to this prompt", "基线中没有该提示的回答"), class_="quiet")
    golden = sample.golden_output
    return tag(
        "div",
        tag("p", tag("span", both(*label), class_=f"badge {kind}")),
        tag("details", tag("summary", both("prompt", "提示")), tag("pre", sample.prompt)),
        tag(
            "div",
            tag("div", _head(("this run", "本次运行"), sample.score), _text(sample.output, golden)),
            tag(
                "div",
                _head(("baseline", "基线"), sample.golden_score),
                missing if golden is None else _text(golden, sample.output),
            ),
            class_="pair",
        ),
        class_="sample",
    )


def _head(name: tuple[str, str], score: float | None) -> Markup:
    told = None if score is None else tag("span", " ", both("score", "得分"), f" {number(score)}", class_="quiet")
    return tag("h3", join(both(*name), told))


def _text(text: str, other: str | None) -> Markup:
    """The text, marked from where it leaves the other."""
    if other is None or text == other:
        return tag("pre", text)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, other, strict=False)))
    return tag("pre", text[:same], tag("mark", text[same:]))
