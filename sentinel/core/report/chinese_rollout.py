# SPDX-License-Identifier: Apache-2.0
"""Sentences about rollout text, replays and captures: English form and Chinese form."""

from __future__ import annotations

ROLLOUT = (
    (
        "the text is {kind} after NaN or Inf at step {step}: the update before",
        "第 {step} 步出现 NaN 或 Inf 之后文本变为{kind}：原因在此前的更新",
    ),
    ("unless the weights were synchronised wrongly as well", "除非权重同步也出了错"),
    (
        "the text was sound up to step {step} and is {kind} after an update: weight sync",
        "文本到第 {step} 步仍正常，某次更新之后变为{kind}：权重同步",
    ),
    ("unless the update itself broke the policy", "除非更新本身破坏了策略"),
    (
        "the text is {kind} from the first rollout on (step {step}): weight load or resharding, or the engine's forward pass",
        "文本从首次生成（第 {step} 步）起就是{kind}：权重加载或重切分，或推理引擎的前向",
    ),
    (
        "the text is {kind} from the first rollout on (step {step}) with load_format={format}: resharding or weight load",
        "文本从首次生成（第 {step} 步）起就是{kind}，load_format={format}：重切分或权重加载",
    ),
    (
        "the text is {kind} from the first rollout on (step {step}) with load_format={format}: weights come from disk, so the engine's forward pass",
        "文本从首次生成（第 {step} 步）起就是{kind}，load_format={format}：权重来自磁盘，因此问题在推理引擎的前向",
    ),
    ("unless tokenizer or template differ", "除非 tokenizer 或对话模板不同"),
    (
        "load_format is not known; with `dummy` the first weights come from the trainer (resharding), otherwise from disk",
        "load_format 未知；若为 `dummy`，最初的权重来自训练器（重切分），否则来自磁盘",
    ),
    (
        "load_format=safetensors may cure it; resharding stays suspicious all the same: every later sync takes that way",
        "改用 load_format=safetensors 可能消除此问题；但重切分仍然可疑：之后每次同步都经过它",
    ),
    (
        "compare tokenizer, chat template and the model's files (sentinel preflight), then the engine's kernels",
        "先核对 tokenizer、对话模板和模型文件（sentinel preflight），再核对推理引擎的算子",
    ),
    (
        "What to compare: the update of step {step} (gradients, optimizer state), then the weights that were sent after it",
        "应对比：第 {step} 步的更新（梯度、优化器状态），然后是其后发送的权重",
    ),
    (
        (
            "What to compare: the weights that the trainer sent after the last update with those that the engine received, name by name; "
            "then one forward pass of the same tokens on both sides"
        ),
        "应对比：训练器在最近一次更新后发送的权重与推理引擎收到的权重，逐名比较；再在两侧对同样的 token 各做一次前向",
    ),
    (
        (
            "What to compare: the weights: on disk, as exported, as sent, as received; equal weights leave the engine's forward pass: compare "
            "its log-probs of the same tokens with the trainer's"
        ),
        "应对比权重：磁盘上的、导出的、发送的、收到的；若都相同，则问题在推理引擎的前向：比较两侧对同样 token 的 log-prob",
    ),
    (
        "A smaller reproduction: sentinel rollout check {folder} --reproduce {file}",
        "更小的复现：sentinel rollout check {folder} --reproduce {file}",
    ),
    (
        "A replay was asked for ({setting}) and did not happen at step {step}: {why~}",
        "要求了回放（{setting}），但第 {step} 步没有回放：{why}",
    ),
    (
        "the run generates its own rollouts and nothing of it can be compared step by step",
        "该运行在自行生成 rollout，无法逐步对比",
    ),
    ("Asked to run {stage} of step {step} again on its kept inputs", "要求用保留的输入重新运行第 {step} 步的 {stage}"),
    (
        "The dump begins at step {step}, later than the step {ordered} that was ordered",
        "dump 从第 {step} 步开始，晚于指令要求的第 {ordered} 步",
    ),
    ("Capture {name} expired: no receipt came from the trainer", "采集 {name} 已过期：训练进程没有回执"),
    ("Capture {name} {outcome}: {why~}", "采集 {name} {outcome}：{why}"),
    ("Not asked: {question~}? {why~}", "未追问：{question}？{why}"),
)
