# SPDX-License-Identifier: Apache-2.0
"""Sentences of triage: English form and Chinese form."""

from __future__ import annotations

# Where outputs part although inputs agree; a gap and how far it is follow.
_ORIGINS = (
    (
        "{module}: its gradients agree on the way in, the gradient of its {parameter} does not",
        "{module}：传入的梯度一致，而其 {parameter} 的梯度不一致",
    ),
    (
        "{module}: inputs agree, {position} does not, though what {operation} inside it made does",
        "{module}：输入一致，{position} 不一致，尽管其内部 {operation} 的结果一致",
    ),
    ("{module}: inputs agree, {position} does not", "{module}：输入一致，{position} 不一致"),
    (
        "{module}: its inputs agree, but what its own code hands to {position} of {called} does not",
        "{module}：输入一致，但它自身代码交给 {called} 的 {position} 不一致",
    ),
    (
        "the gradient differs where it enters ({position} of {called}) although forward agrees: the loss, or a module that was not dumped",
        "前向一致，而梯度在入口处（{called} 的 {position}）就不同：问题在损失，或在未采集的模块",
    ),
    ("{position} of {called} differs where it enters the model", "{called} 的 {position} 在进入模型处就不同"),
    (
        "{position} of {called} differs although {before} before it agrees: code between the two",
        "{called} 的 {position} 不同，而其前的 {before} 一致：问题在两者之间的代码",
    ),
)
_FAR = (
    (
        "and more of its numbers moved alike: clean pairs show so much together in one of 10^{rarity} cases",
        "且它的多个数值一同变化：正常的成对 dump 中每 10^{rarity} 例才有一例",
    ),
    ("{score} times what is allowed there", "为该处容许值的 {score} 倍"),
)
_GAPS = (
    ("shape [{mine~}] against [{theirs~}]", "形状 [{mine}] 对 [{theirs}]"),
    ("checksum {mine} against {theirs}", "校验和 {mine} 对 {theirs}"),
    ("{statistic} {mine} against {theirs}", "{statistic} {mine} 对 {theirs}"),
    ("not a number on one side", "一侧为非有限值"),
)


_ALONE = (("; it is one operation, {only}", "；该模块只有一个算子：{only}"), ("", ""))


def _joined() -> tuple[tuple[str, str], ...]:
    """Every origin with every gap and distance, and what a module of one operation adds: each is one sentence."""
    return tuple(
        (f"{origin[0]}: {gap[0]}, {far[0]}{alone[0]}", f"{origin[1]}：{gap[1]}，{far[1]}{alone[1]}")
        for origin in _ORIGINS
        for gap in _GAPS
        for far in _FAR
        for alone in _ALONE
    )


_PARAMETERS = tuple(
    (
        f"{{parameter}} of {{module}} differs before any operation: {gap[0]}; {{count}} other weights {others[0]}",
        f"{{module}} 的 {{parameter}} 在任何运算之前就不同：{gap[1]}；其余 {{count}} 个权重{others[1]}",
    )
    for gap in _GAPS
    for others in (("agree", "一致"), ("moved far less", "变化小得多"))
)
_NOT_FINITE = (
    (
        "weight to blame: {parameter} of {module} already holds {what}",
        "问题在权重：{module} 的 {parameter} 已含有 {what}",
    ),
    *(
        (
            f"operation to blame: every input and weight of {{module}} is finite, its {{position}} holds {{what}}{alone[0]}",
            f"问题在运算：{{module}} 的输入与权重都是有限值，而其 {{position}} 含有 {{what}}{alone[1]}",
        )
        for alone in _ALONE
    ),
    *(
        (
            f"operation to blame: every gradient and weight of {{module}} is finite, its {{position}} holds {{what}}{alone[0]}",
            f"问题在运算：{{module}} 的传入梯度与权重都是有限值，而其 {{position}} 含有 {{what}}{alone[1]}",
        )
        for alone in _ALONE
    ),
    (
        "operation to blame: {module} was given finite numbers, and its own code hands {what} to {called}",
        "问题在运算：{module} 得到的都是有限值，而它自身的代码把 {what} 交给了 {called}",
    ),
    (
        "input to blame: {what} stands in {position} of {module}, where the data enters",
        "问题在输入：数据入口处 {module} 的 {position} 就含有 {what}",
    ),
    (
        "input to blame: the gradient is {what} where it enters ({module}): the loss, or a module that was not dumped",
        "问题在输入：梯度在入口处（{module}）就是 {what}：来自损失，或未采集的模块",
    ),
    ("{what} arises between the start and {after}", "{what} 产生于开头与 {after} 之间"),
    ("{what} arises between {before} and {after}", "{what} 产生于 {before} 与 {after} 之间"),
)
_NOTES = (
    ("{stage} rank {rank}: other rows: {why~}", "{stage} rank {rank}：数据行不同：{why}"),
    ("{name} {position} has the shape {mine~} against {theirs~}", "{name} {position} 的形状为 {mine}，对方为 {theirs}"),
    ("{name} {position} holds other numbers", "{name} {position} 的数值不同"),
    (
        "the {module} of both sides looked up other rows from the same weights",
        "两侧的 {module} 从相同的权重中查到了不同的行",
    ),
    (
        "{stage} rank {rank}: {differing} of {compared} weights differ, most by up to {moved}: moved by updates, not blamed",
        "{stage} rank {rank}：{compared} 个权重中有 {differing} 个不同，大多不超过 {moved}：由更新引起，不作为原因",
    ),
    (
        "{stage} rank {rank}: weights are too far apart for their outputs to prove anything",
        "{stage} rank {rank}：权重相差过大，其输出不能证明任何事",
    ),
    (
        "{stage} rank {rank}: every operation adds about {added} of its own: another arithmetic (TF32, HF32?)",
        "{stage} rank {rank}：每个运算自身都带来约 {added} 的差异：采用了另一种算术（TF32、HF32？）",
    ),
    ("{stage} rank {rank}: {structure~}", "{stage} rank {rank}：{structure}"),
    (
        "{count} modules ran in the golden dump only, first {module}; {more~}",
        "{count} 个模块只在基准 dump 中运行，首个为 {module}；{more}",
    ),
    (
        "{count} modules ran in the golden dump only, first {module}",
        "{count} 个模块只在基准 dump 中运行，首个为 {module}",
    ),
    (
        "{count} modules ran in the target only, first {module}; {more~}",
        "{count} 个模块只在本次 dump 中运行，首个为 {module}；{more}",
    ),
    ("{count} modules ran in the target only, first {module}", "{count} 个模块只在本次 dump 中运行，首个为 {module}"),
    (
        "{count} calls stand in the {side~} only, first {name}: cut off, or not the same work",
        "{count} 次调用只存在于 {side}，首个为 {name}：dump 被截断，或不是同样的工作",
    ),
    ("target", "本次 dump"),
    ("golden dump", "基准 dump"),
    ("nothing stands out beyond what the moved weights explain", "除权重变化所能解释的之外，没有突出的差异"),
    ("nothing in the two dumps has the same name and a common measure", "两份 dump 中没有同名且可比的内容"),
    ("{stage}: {sick} of {ranks} ranks part: {places~}", "{stage}：{ranks} 个 rank 中有 {sick} 个出现分歧：{places}"),
    ("stage {stage} was dumped in the target only", "阶段 {stage} 只在本次 dump 中有"),
    ("stage {stage} was dumped in the golden run only", "阶段 {stage} 只在基准 dump 中有"),
    (
        "{stage}: ranks {mine~} against {theirs~}; compared {common~}, the others have no partner",
        "{stage}：rank {mine} 对 {theirs}；比较了 {common}，其余没有对应",
    ),
    (
        "{stage}: rank {one} of the target compared with rank {other} of the golden dump, no rank is common",
        "{stage}：本次的 rank {one} 与基准的 rank {other} 比较，没有相同的 rank",
    ),
    ("{count} names mapped as asked", "按要求映射了 {count} 个名称"),
    ("names of the target taken as {golden} instead of {target}", "本次 dump 的名称按 {golden} 理解，而非 {target}"),
    (
        "construct.json is missing: what ran inside what is told by the modules' names",
        "缺少 construct.json：嵌套关系由模块名推断",
    ),
    (
        "construct.json cannot be read: what ran inside what is told by the modules' names",
        "construct.json 无法读取：嵌套关系由模块名推断",
    ),
    (
        "levels differ ({mine} against {theirs}): only what both dumped was compared",
        "级别不同（{mine} 对 {theirs}）：只比较了两侧都采集的内容",
    ),
    (
        "tasks differ ({mine} against {theirs}): compared by their statistics",
        "task 不同（{mine} 对 {theirs}）：按统计量比较",
    ),
    (
        "a partial comparison: nothing parts among {count} rows, but nothing is known {what~}",
        "部分比较：{count} 行中没有分歧，但以下内容未知：{what}",
    ),
    ("of operations or modules that one side did not dump", "一侧未采集的算子或模块"),
    ("of the tensors that one side did not keep", "一侧未保存的张量"),
    ("of the tensors that could not be loaded", "无法加载的张量"),
    (
        "{name} {position}, element by element: cosine {cosine}, {share} of the elements within a thousandth, difference {gap} of the norm, {worst~}",
        "{name} {position} 逐元素比较：余弦 {cosine}，{share} 的元素在千分之一以内，差值为范数的 {gap}，{worst}",
    ),
    (
        "its output is {times} times as large as at healthy step {step}, beside all other modules of the stage",
        "与该阶段其他模块相比，其输出为健康的第 {step} 步的 {times} 倍",
    ),
    (
        "{count} calls computed again from their own inputs and weights: {out} are out",
        "{count} 次调用已用自身的输入和权重重新计算：{out} 次不符",
    ),
    (
        "{count} calls computed again from their own inputs and weights: each is what they say",
        "{count} 次调用已用自身的输入和权重重新计算：全部相符",
    ),
    ("no call of the dump could be computed again", "dump 中没有可以重新计算的调用"),
)
_INCIDENTS = (
    (
        "The dump of {when~} shows {module} ({direction}, {position}) of {stage} first: {why*}",
        "{when}的 dump 显示 {stage} 中 {module}（{direction}，{position}）最先出问题：{why}",
    ),
    (
        "The dump of {when~} holds no NaN or Inf: it did not come back there",
        "{when}的 dump 不含 NaN 或 Inf：问题没有在那里再现",
    ),
    ("The dump of {when~} equals the golden dump in {count} entries", "{when}的 dump 与基准 dump 的 {count} 项一致"),
    ("The dump of {when~} cannot be compared with a golden one: {why~}", "{when}的 dump 无法与基准 dump 比较：{why}"),
    ("step, rows or weights differ", "步、数据行或权重不同"),
    ("Triage of the dump of {when~}: {verdict}: {module} first", "{when}的 dump 分析：{verdict}，最先为 {module}"),
    ("Triage of the dump of {when~}: {verdict}", "{when}的 dump 分析：{verdict}"),
    ("Deeper, at {when~}, {name} ({position}): {why*}", "更深入，{when}，{name}（{position}）：{why}"),
    ("deeper: {when~}, {name} ({position}): {why~}", "更深入：{when}，{name}（{position}）：{why}"),
    ("Asked which operation of the module parts first?", "追问：模块中哪个算子最先出现分歧？"),
    ("Asked which operation of the module makes the NaN or Inf?", "追问：模块中哪个算子产生 NaN 或 Inf？"),
    (
        "Asked does an operation of the module compute what its own inputs and weights say?",
        "追问：模块的算子是否按自身的输入和权重正确计算？",
    ),
    ("Answer of {when~}, {name} ({position}): {why*}", "{when}的回答，{name}（{position}）：{why}"),
    # the answer of a deeper dump beside the one before it
    (
        "It does not bear out the earlier dump, which named {module} ({direction}): nothing in it is out",
        "它没有印证先前指出 {module}（{direction}）的 dump：其中没有异常",
    ),
    (
        "It contradicts the earlier dump, which named {module} ({direction}) of {stage}: here it is {other} ({way}) of {elsewhere}",
        "它与先前的 dump 矛盾：先前指出 {stage} 的 {module}（{direction}），这里是 {elsewhere} 的 {other}（{way}）",
    ),
    (
        "It contradicts the earlier dump, which named {module} ({direction}): here it is {other} ({way})",
        "它与先前的 dump 矛盾：先前指出 {module}（{direction}），这里是 {other}（{way}）",
    ),
    (
        "It names an operation and no module, so it neither bears out nor contradicts the earlier dump, which named {module} ({direction})",
        "它给出的是算子而非模块，因此既不印证也不否定先前指出 {module}（{direction}）的 dump",
    ),
    (
        "It bears out the earlier dump, which named {module} ({direction})",
        "它印证了先前指出 {module}（{direction}）的 dump",
    ),
    (
        "It bears out the module that the earlier dump named, {module} ({direction}), and not the direction: here it is {way}",
        "它印证了先前 dump 指出的模块 {module}（{direction}），但方向不同：这里是{way}",
    ),
    (
        "It names {other} ({way}), the module around the one that the earlier dump named, {module} ({direction})",
        "它指出的 {other}（{way}）是先前 dump 指出的 {module}（{direction}）的外层模块",
    ),
)
TRIAGE = (*_INCIDENTS, *_joined(), *_PARAMETERS, *_NOT_FINITE, *_NOTES)
