# SPDX-License-Identifier: Apache-2.0
"""Modules that are one operation: where the dump proves that such a module is to blame, nothing inside it is left to find."""

from __future__ import annotations

from sentinel.core.triage.walk import Fault

OPERATIONS = {
    "Linear": "linear",
    "Embedding": "embedding",
    "Conv1d": "conv1d",
    "Conv2d": "conv2d",
    "Conv3d": "conv3d",
    "LayerNorm": "layer_norm",
    "GroupNorm": "group_norm",
}
"""Classes of torch.nn with weights whose forward is one call of torch.nn.functional. Without RMSNorm: other libraries' classes of
that name are several operations."""
_SHARDED = "FSDP"
"""FSDP2 puts this before the name of a module's class."""
CLEAR = 8.0
"""So many allowances from what is tolerated; nearer, a deeper dump may still say otherwise."""


def operation_of(fault: Fault) -> str:
    """The one operation that a fault can lie in; empty where there may be others, or where the evidence is weak.

    It lies in one where a call of a known class, with nothing dumped inside it and its weights in the dump, was given what agrees, or
    what moved weights explain, and handed on what does not. Gradients of weights do not count: what gathers them over the ranks stands between.
    """
    node = fault.node
    if fault.owner is not node or node.children or not node.pair.target.name.startswith("Module."):
        return ""
    weighed = node.weights or (node.forward is not None and node.forward.weights)
    if not weighed or fault.row not in node.outputs or fault.rarity or fault.score < CLEAR:
        return ""
    return OPERATIONS.get(_class_of(node.pair.target.name).removeprefix(_SHARDED), "")


def _class_of(name: str) -> str:
    """Of `Module.<path>.<class>.<direction>.<call>`."""
    return name.rsplit(".", 3)[-3] if name.count(".") >= 3 else ""
