# SPDX-License-Identifier: Apache-2.0
"""Sentences of detectors, signatures, stage finding and of what an incident notes: English form and Chinese form.

Where a form begins like a shorter one, it stands before that. The tests read the English forms out of the code that writes them.
"""

from __future__ import annotations

WORDS = {
    "forward": "前向",
    "backward": "反向",
    "parameters": "参数",
    "below": "低于",
    "above": "高于",
    "garbled": "乱码",
    "repetitive": "重复",
    "empty": "空",
    "the run": "本次运行",
    "complete": "完整",
    "partial": "部分",
    "failed": "失败",
    "expired": "已过期",
    "refused": "被拒绝",
    "skipped": "被跳过",
    "cancelled": "被取消",
    "diverged": "出现分歧",
    "non_finite": "出现 NaN 或 Inf",
}
_LASTING = "第 {step} 步 {key} 为 {value}，已持续 {steps} 步；{why}"
FINDINGS = (
    # nonfinite
    ("{key} is {what} at step {step}; it was {before} before", "第 {step} 步 {key} 为 {what}，此前为 {before}"),
    # spike
    (
        "{key} is {value} at step {step}; its own past stands at {mean} and never left [{low}, {high}]",
        "第 {step} 步 {key} 为 {value}；其历史水平为 {mean}，从未超出 [{low}, {high}]",
    ),
    (
        "{key} is {value} at step {step} where one seed, with a widened band stand at {mean}: {sigmas} standard deviations",
        "第 {step} 步 {key} 为 {value}，而单个种子（放宽范围）为 {mean}：相差 {sigmas} 个标准差",
    ),
    (
        "{key} is {value} at step {step} where {seeds} seeds stand at {mean}: {sigmas} standard deviations",
        "第 {step} 步 {key} 为 {value}，而 {seeds} 个种子为 {mean}：相差 {sigmas} 个标准差",
    ),
    # departure
    (
        "{key} is {value} at step {step} where the replayed run has {expected}: apart by {gap}, {score} times what clean repeats show",
        "第 {step} 步 {key} 为 {value}，回放的基线为 {expected}：相差 {gap}，是正常重复运行差异的 {score} 倍",
    ),
    (
        "{key} is {value} at step {step} where the replayed run has {expected}: apart by {gap}, {score} times what is allowed without twins",
        "第 {step} 步 {key} 为 {value}，回放的基线为 {expected}：相差 {gap}，是无孪生运行时容许值的 {score} 倍",
    ),
    (
        (
            "{key} is {value} at step {step} where the replayed run has {expected}: apart by {gap}, for most of {steps} steps by {score} times "
            "what clean repeats show over that time"
        ),
        "第 {step} 步 {key} 为 {value}，回放的基线为 {expected}：相差 {gap}；{steps} 步中的大多数都偏离，达正常重复运行同期差异的 {score} 倍",
    ),
    (
        (
            "{key} is {value} at step {step} where the replayed run has {expected}: apart by {gap}, for most of {steps} steps by {score} times "
            "what is allowed without twins over that time"
        ),
        "第 {step} 步 {key} 为 {value}，回放的基线为 {expected}：相差 {gap}；{steps} 步中的大多数都偏离，达无孪生运行时同期容许值的 {score} 倍",
    ),
    # e_detector
    (
        (
            "{key} has stood {side} what was expected since step {since}, further than healthy runs do for long: {value} at step {step} where "
            "{expected} was expected; with all metrics together the odds are 10^{odds} to one against a healthy run"
        ),
        "自第 {since} 步起，{key} 一直{side}预期，偏离超出正常运行所能持续的程度：第 {step} 步为 {value}，预期为 {expected}；所有指标合计，与正常运行相悖的赔率为 10^{odds} 比 1",
    ),
    # drift
    (
        (
            "{key} stands off the seeds for most of the {steps} steps up to step {step}, by {score} times what healthy runs show over that time: "
            "now {value} where {expected} was expected, {sigmas} standard deviations"
        ),
        "截至第 {step} 步的 {steps} 步中，{key} 大多偏离各种子，达正常运行同期差异的 {score} 倍：当前 {value}，预期 {expected}，相差 {sigmas} 个标准差",
    ),
    # limit
    (
        "{key} is {value} at step {step}, {side} the limit {limit} that needs no baseline",
        "第 {step} 步 {key} 为 {value}，{side}无需基线的界限 {limit}",
    ),
    (
        "{key} is {value} at step {step}: no healthy run exceeds {limit}, whatever its history",
        "第 {step} 步 {key} 为 {value}：无论历史如何，正常运行都不会超过 {limit}",
    ),
    (
        "{key} is {value} at step 1, where both sides still have the same weights: about 0 was expected, {limit} at most",
        "第 1 步 {key} 为 {value}，此时两侧权重仍相同：预期约为 0，至多 {limit}",
    ),
    # mismatch
    (
        "{key} is {value} at step {step} where the baseline has {expected}: {why~}",
        "第 {step} 步 {key} 为 {value}，而基线为 {expected}：{why}",
    ),
    (
        "the prompts are other ones: data, order or tokenizer differ",
        "提示（prompt）不是同一批：数据、顺序或 tokenizer 不同",
    ),
    (
        "these are not the recorded responses: the replay is not in force or is of another recording",
        "这些不是录制的回答：回放未生效，或用了另一份录制",
    ),
    (
        "the recorded responses are scored otherwise: reward function, reward model or ground truth differ",
        "录制的回答得分不同：奖励函数、奖励模型或标准答案不同",
    ),
    ("a setting differs", "某项设置不同"),
    ("equal inputs would give equal numbers", "输入相同则数值应当相同"),
    # silence
    (
        "{key} is missing at step {step}; each of the {steps} steps before had it, last as {last}",
        "第 {step} 步缺少 {key}；此前 {steps} 步每步都有，最后一次为 {last}",
    ),
    (
        "{key} has been exactly {value} for {steps} steps up to step {step}, after changing before: nothing is measured or nothing learns",
        "截至第 {step} 步，{key} 已连续 {steps} 步恰好为 {value}，而此前一直在变化：没有在测量，或没有在学习",
    ),
    (
        "No step came for {silent} s after step {step}; steps took {usual} s",
        "第 {step} 步之后 {silent} 秒没有新的步；此前每步约 {usual} 秒",
    ),
    ('A worker said "{text~}" after step {step}', "第 {step} 步之后某个 worker 输出：“{text}”"),
    # rollout text
    (
        "{bad} of {rows} rollouts of step {step} are {words~}, the baseline has {share}; e.g. row {place}: {why~}",
        "第 {step} 步 {rows} 条生成中有 {bad} 条为{words}，基线为 {share}；例如第 {place} 行：{why}",
    ),
    (
        "{bad} of {rows} rollouts of step {step} are {words~}, the baseline has {share}",
        "第 {step} 步 {rows} 条生成中有 {bad} 条为{words}，基线为 {share}",
    ),
    (
        "{bad} of {rows} rollouts of step {step} are {words~}; e.g. row {place}: {why~}",
        "第 {step} 步 {rows} 条生成中有 {bad} 条为{words}；例如第 {place} 行：{why}",
    ),
    ("{bad} of {rows} rollouts of step {step} are {words~}", "第 {step} 步 {rows} 条生成中有 {bad} 条为{words}"),
    ("{one} or {other} or {third}", "{one}、{other}或{third}"),
    ("{one} or {other}", "{one}或{other}"),
    # collapse
    (
        "{key} is {value} at step {step} for {steps} steps; it began at {first}: text no longer ends",
        "第 {step} 步 {key} 为 {value}，已持续 {steps} 步；起初为 {first}：文本不再收尾",
    ),
    ("{key} is {value} at step {step} for {steps} steps; {why~}", _LASTING),
    (
        "{key} is {value} at step {step}; it began at {first}: text no longer ends",
        "第 {step} 步 {key} 为 {value}；起初为 {first}：文本不再收尾",
    ),
    ("{key} is {value} at step {step}; {why~}", "第 {step} 步 {key} 为 {value}；{why}"),
    ("it began at {first}: text no longer ends", "起初为 {first}：文本不再收尾"),
    ("it began at {first}", "起初为 {first}"),
    ("although there are advantages to learn from", "而此时仍有优势值可供学习"),
    ("{key} is {what} at step {step}", "第 {step} 步 {key} 为 {what}"),
    # what the catalogue says of the metrics with a limit of their own
    (
        "Mean difference between the probabilities of rollout engine and trainer for the same tokens (verl FAQ: normal below 0.005, above 0.01 a precision issue)",
        "推理引擎与训练器对同样 token 的概率之平均差（verl FAQ：低于 0.005 正常，高于 0.01 为精度问题）",
    ),
    (
        "Correlation of the probabilities of rollout engine and trainer; 0 is also verl's answer to a shape mismatch",
        "推理引擎与训练器概率的相关系数；形状不匹配时 verl 也给出 0",
    ),
    ("KL divergence between rollout engine and trainer", "推理引擎与训练器之间的 KL 散度"),
    ("KL divergence (never negative) between rollout engine and trainer", "推理引擎与训练器之间的 KL 散度（恒非负）"),
    (
        "Mean difference of the log-probs of sampler and trainer (TRL); a jump means stale weights in the sampler",
        "采样器与训练器 log-prob 的平均差（TRL）；突变说明采样器的权重过期",
    ),
    ("Iterations that were skipped because something was not finite", "因出现非有限值而被跳过的迭代"),
    ("Difference of the log-probs of rollout engine and trainer (slime)", "推理引擎与训练器 log-prob 之差（slime）"),
)
SUSPECTS = (
    ("the prompts themselves differ", "提示（prompt）本身不同"),
    ("the responses belong to other prompts: text and score moved together", "回答属于另一些提示：文本与得分一同变化"),
    ("a setting left its schedule", "某项设置偏离了其计划"),
    ("the responses are not the recorded ones", "回答不是录制的那些"),
    (
        "only the comparison of rollout engine and trainer moved; the trainer's own numbers held",
        "只有推理引擎与训练器的对比变化，训练器自身的数值未变",
    ),
    ("the sampled text changed, and what is computed from it", "采样文本变了，由它计算的量随之变化"),
    ("text of the same length became another", "文本长度相同而内容变了"),
    ("the score moved while text and log-probs held", "得分变了，而文本与 log-prob 未变"),
    (
        "the old log-probs moved against both the rollout engine and the update, while the reference held",
        "旧 log-prob 相对推理引擎和更新两边都变了，而参考模型未变",
    ),
    (
        "the old log-probs moved, and with them the penalty inside the reward",
        "旧 log-prob 变了，奖励中的惩罚项随之变化",
    ),
    (
        "the trainer's log-probs moved against the rollout engine, in the update too",
        "训练器的 log-prob 相对推理引擎变了，更新阶段也是如此",
    ),
    (
        "only the distance to the reference moved; the policy's own numbers held",
        "只有到参考模型的距离变了，策略自身的数值未变",
    ),
    (
        "the penalty inside the reward moved while scores and log-probs held",
        "奖励中的惩罚项变了，而得分与 log-prob 未变",
    ),
    ("the values moved while the critic's update still agrees", "价值估计变了，而 critic 更新仍与基线一致"),
    ("the advantages moved while scores and values held", "优势变了，而得分与价值未变"),
    ("the critic's update moved while values and policy held", "critic 更新变了，而价值与策略未变"),
    ("only the critic's loss moved", "只有 critic 的损失变了"),
    ("the critic's weights moved otherwise one step earlier", "critic 的权重在前一步就走向不同"),
    (
        "the update's log-probs moved against the old ones, which held",
        "更新阶段的 log-prob 相对旧 log-prob 变了，而后者未变",
    ),
    (
        "the loss held and the gradient moved: backward pass or communication",
        "损失未变而梯度变了：反向传播或通信有问题",
    ),
    ("updates are skipped", "更新被跳过"),
    ("the loss moved while its inputs held", "损失变了，而其输入未变"),
    (
        "the weights moved otherwise in earlier updates: old and new log-probs agree, both leave the baseline",
        "权重在更早的更新中就走向不同：新旧 log-prob 一致，但都偏离基线",
    ),
    # where a stage is sought
    ("the first along the data flow that is not finite: {names~}", "数据流上第一个非有限值：{names}"),
    ("not finite as well, further along", "同样非有限，位于更下游"),
    ("the catalogue names no stage for these metrics", "指标目录没有给出这些指标所属的阶段"),
    ("first along the data flow among the metrics concerned", "在相关指标中位于数据流最上游"),
    ("workers say it where gradients are applied", "worker 在应用梯度处输出"),
    ("the workers say so", "worker 如此报告"),
    ("the dump shows {module} first: {why*}", "dump 显示 {module} 最先出问题：{why}"),
    # what an incident notes
    ("It is back: it was first seen at step {step}", "问题再次出现：首次出现于第 {step} 步"),
    ("Came back at step {step}", "第 {step} 步再次出现"),
    (
        "Lasted one step and did not come back at step {step}; verl skips a non-finite update, so the weights are one update behind for each",
        "持续一步，第 {step} 步未再出现；verl 会跳过非有限的更新，因此每次跳过权重都少一次更新",
    ),
    (
        "Lasted {steps} steps and did not come back at step {step}; verl skips a non-finite update, so the weights are one update behind for each",
        "持续 {steps} 步，第 {step} 步未再出现；verl 会跳过非有限的更新，因此每次跳过权重都少一次更新",
    ),
    ("Quiet for {steps} steps up to step {step}", "截至第 {step} 步已平静 {steps} 步"),
    ("No capture before step {step}: cool-down after the last one", "第 {step} 步之前不采集：上次采集后的冷却期"),
    (
        "Nothing is captured: a file is judged: no trainer is attached that could dump a step",
        "不采集：判断的是文件，没有训练进程可供采集",
    ),
    ("Nothing is captured: {why~}", "不采集：{why}"),
    ("Ordered a dump of {what~} at {steps~}, level {manner~}", "已下达采集指令：{what}，{steps}，级别 {manner}"),
    ("step {step}", "第 {step} 步"),
    ("steps {first} to {last}", "第 {first} 至 {last} 步"),
    (
        "Dumped {stages~} at steps {first} to {last}: {bytes} bytes, {seconds} s",
        "已采集 {stages}，第 {first} 至 {last} 步：{bytes} 字节，{seconds} 秒",
    ),
)
