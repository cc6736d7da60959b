# SPDX-License-Identifier: Apache-2.0
"""What the report calls things, in English and Chinese."""

from __future__ import annotations

from sentinel.core.report.chinese import in_chinese
from sentinel.sinks.html_elements import Markup, both

Words = tuple[str, str]

STAGES: dict[str, Words] = {
    "data": ("data", "数据"),
    "config": ("configuration", "配置"),
    "rollout": ("rollout", "rollout 采样"),
    "compute_rm_score": ("reward", "奖励打分"),
    "actor_compute_log_prob": ("actor log-prob", "actor log_prob"),
    "ref_compute_log_prob": ("reference log-prob", "ref log_prob"),
    "compute_values": ("values", "critic 价值"),
    "advantage": ("advantage", "优势估计"),
    "critic_update": ("critic update", "critic 更新"),
    "actor_update": ("actor update", "actor 更新"),
    "unknown": ("unknown stage", "未知阶段"),
}
KINDS: dict[str, Words] = {
    "non_finite": ("NaN or Inf", "出现 NaN 或 Inf"),
    "drift": ("Drift from the baseline", "偏离基线"),
    "spike": ("Spike", "尖峰"),
    "vanished": ("A metric vanished", "指标消失"),
    "self_inconsistent": ("Rollout and trainer disagree", "推理与训练不一致"),
    "mismatch": ("Mismatch", "不匹配"),
    "collapse": ("Collapse", "坍塌"),
    "silence": ("The run went silent", "运行静默"),
}
SEVERITIES: dict[str, Words] = {"critical": ("critical", "严重"), "warning": ("warning", "警告")}
STATES: dict[str, Words] = {"open": ("open", "进行中"), "closed": ("closed", "已关闭")}
VERDICTS: dict[str, Words] = {
    "same": ("The dumps agree", "两份 dump 一致"),
    "diverged": ("Where the dumps part", "两份 dump 的分歧之处"),
    "not_comparable": ("The dumps cannot be compared", "两份 dump 不可比"),
    "clean": ("No NaN or Inf in the dump", "dump 中没有 NaN 或 Inf"),
    "non_finite": ("Where the NaN or Inf arises", "NaN 或 Inf 的来源"),
}
DIRECTIONS: dict[str, Words] = {
    "forward": ("forward", "前向"),
    "backward": ("backward", "反向"),
    "parameters": ("parameters", "参数"),
}
OUTCOMES: dict[str, Words] = {
    "complete": ("complete", "完整"),
    "partial": ("partial", "部分"),
    "failed": ("failed", "失败"),
    "skipped": ("skipped", "跳过"),
    "refused": ("refused", "拒绝"),
    "cancelled": ("cancelled", "已取消"),
    "expired": ("expired", "已过期"),
}
COMPARED: dict[str, Words] = {
    "step": ("same step", "同一步"),
    "rows": ("same rows", "同样的数据行"),
    "weights": ("same starting weights", "同样的起始权重"),
}


def words(table: dict[str, Words], key: str) -> Words:
    """The words for `key`; itself, where the table has none."""
    return table.get(key, (key, key))


def sentence(text: str) -> str | Markup:
    """A sentence of a record in both languages; as it is, where it has no Chinese form."""
    chinese = in_chinese(text)
    return text if chinese is None else both(text, chinese)
