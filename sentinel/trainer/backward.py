# SPDX-License-Identifier: Apache-2.0
"""Module gradients, observed without touching the graph that computes them.

torch's own full backward hook passes a module's inputs and outputs through identity nodes. Where a tensor has three
readers (a residual, and two operations inside the norm) the sums of its gradient are then associated another way, and
the step trains other bits than it would have. msprobe uses that hook; while Sentinel drives it, this class takes its
place. It hooks the outputs, and the nodes inside the module that read its inputs: the gradients that it reports are
the same, and training stays bit for bit what it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from sentinel.trainer.fuse import attempt

Edge = tuple[Any, int]
_DEPTH = 4


def _tensors(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """The tensors with a history inside (nested) arguments, in order."""
    if hasattr(value, "grad_fn") and hasattr(value, "register_hook"):
        if value.requires_grad and value.grad_fn is not None:
            yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item, depth - 1)


class QuietBackwardHook:
    """Stands in for `torch.utils.hooks.BackwardHook` in msprobe's module processor.

    Args:
        book: collects every hook of a stage, so that the last ones can be closed when the stage ends.
        on_failure: told what a user hook raised; nothing is raised into the backward pass.
        module, user_hooks, user_pre_hooks: as torch's class.
    """

    def __init__(
        self,
        book: list[QuietBackwardHook],
        on_failure: Callable[[Exception], None],
        module: Any,
        user_hooks: list[Callable[..., Any]],
        user_pre_hooks: list[Callable[..., Any]] | None = None,
    ) -> None:
        self._module = module
        self._on_failure = on_failure
        self._hooks = user_hooks
        self._pre_hooks = user_pre_hooks or []
        self._inputs: list[Edge] = []
        self._of_outputs: list[Any] = []
        self._of_inputs: list[Any] = []
        self._readers = self._awaited = 0
        self._begun = self._over = False
        book.append(self)

    # ------------------------------------------------------------------ forward

    def setup_input_hook(self, args: Any) -> Any:
        """Remember where the inputs come from; return them as they are."""
        self._inputs = [(tensor.grad_fn, tensor.output_nr) for tensor in _tensors(args)]
        return args

    def setup_output_hook(self, result: Any) -> Any:
        """Hook the outputs and the readers of the inputs; return the outputs as they are."""
        outputs = list(_tensors(result))
        self._of_outputs = [None] * len(outputs)
        self._of_inputs = [None] * len(self._inputs)
        readers, inner = _readers([(tensor.grad_fn, tensor.output_nr) for tensor in outputs], self._inputs)
        for place, tensor in enumerate(outputs):
            if place not in inner:
                self._awaited += 1
                tensor.register_hook(functools.partial(self._output_arrived, place))
        for node, places in readers:
            self._readers += 1
            node.register_hook(functools.partial(self._input_read, places))
        return result

    # ------------------------------------------------------------------ backward

    def _output_arrived(self, place: int, gradient: Any) -> None:
        self._of_outputs[place] = gradient
        self._awaited -= 1
        if self._awaited == 0:
            self._begin()
            if not self._readers:
                self._finish()

    def _input_read(self, places: list[tuple[int, int]], gradients: Any, _: Any) -> None:
        self._begin()
        failure = attempt(functools.partial(self._add, places, gradients))
        if failure is not None:
            self._on_failure(failure)
        self._readers -= 1
        if self._readers == 0:
            self._finish()

    def _add(self, places: list[tuple[int, int]], gradients: Any) -> None:
        for index, place in places:
            gradient = gradients[index]
            if gradient is not None:
                gradient = gradient.detach()
                before = self._of_inputs[place]
                self._of_inputs[place] = gradient if before is None else before + gradient

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            for hook in self._pre_hooks:
                self._run(functools.partial(hook, self._module, tuple(self._of_outputs)))

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            for hook in self._hooks:
                self._run(functools.partial(hook, self._module, tuple(self._of_inputs), tuple(self._of_outputs)))
            self._of_inputs, self._of_outputs = [], []

    def _run(self, action: Callable[[], object]) -> None:
        failure = attempt(action)
        if failure is not None:
            self._on_failure(failure)

    def flush(self) -> None:
        """The stage is over: report what arrived, even if some reader of an input never got a gradient."""
        if self._begun or any(found is not None for found in self._of_outputs):
            self._begin()
            self._finish()


def _readers(outputs: list[Edge], inputs: list[Edge]) -> tuple[list[tuple[Any, list[tuple[int, int]]]], set[int]]:
    """The nodes between outputs and inputs that read an input.

    Returns:
        For each such node the pairs (index among what it returns, number of the input); and the numbers of the outputs
        that are read inside as well (attention weights are), whose gradient is therefore not the outside's alone.
    """
    sources = {node for node, _ in inputs}
    # A node reads only what is older than itself: nothing below this number needs to be looked at.
    oldest = min((node._sequence_nr() for node in sources or {node for node, _ in outputs}), default=0)
    found: list[tuple[Any, list[tuple[int, int]]]] = []
    seen: set[Any] = set()
    inner: set[int] = set()
    stack = [node for node, _ in outputs if node not in sources]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        places = []
        for index, edge in enumerate(node.next_functions):
            places += [(index, place) for place, wanted in enumerate(inputs) if wanted == edge]
            inner.update(place for place, wanted in enumerate(outputs) if wanted == edge)
            if edge[0] is not None and edge[0] not in sources and edge[0]._sequence_nr() > oldest:
                stack.append(edge[0])
        if places:
            found.append((node, places))
    return found, inner
