# SPDX-License-Identifier: Apache-2.0
"""The tokens on which rollout engine and trainer disagree most, where verl itself finds that they disagree.

verl computes the difference of both sides' probabilities once a step, in the trainer's process, in
`verl.utils.debug.metrics.calculate_debug_metrics`. Its result is looked at, and only when the mean difference is above what verl's FAQ
calls an inference precision issue (0.01) the worst tokens are taken out of the batch: at most three times a run, from
at most four million probabilities. A healthy run pays for one comparison of two numbers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sentinel.trainer.fuse import Fuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from sentinel.trainer.session import Session

FUNCTION = "calculate_debug_metrics"
MEAN = "training/rollout_probs_diff_mean"
BAD_MEAN = 0.01
REPORTS = 3
ROWS, TOKENS = 3, 4
"""Worst rows, and tokens of each, that are told."""
MOST_VALUES = 4_000_000


def hook(session: Session, module: ModuleType) -> Callable[[], None]:
    """Look at what `calculate_debug_metrics` of verl's module returns; the result puts verl's own function back."""
    original = getattr(module, FUNCTION, None)
    if not callable(original):
        return lambda: None
    watch = TokenGaps(session)

    @functools.wraps(original)
    def measured(data: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(data, *args, **kwargs)
        watch.look(data, result)
        return result

    setattr(module, FUNCTION, measured)
    return lambda: setattr(module, FUNCTION, original)


class TokenGaps:
    """Says which tokens part, a few times a run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._fuse = Fuse("token gaps", allowed=2)
        self._left = REPORTS

    def look(self, data: Any, result: Any) -> None:
        """Look at one step's result; never raises."""
        self._fuse.run(lambda: self._look(data, result), None)

    def _look(self, data: Any, result: Any) -> None:
        if self._left <= 0 or not float(result.get(MEAN, 0.0)) > BAD_MEAN:
            return
        self._left -= 1
        said = worst_tokens(data.batch)
        if said:
            code = "token_gaps" if self._left == REPORTS - 1 else f"token_gaps_{REPORTS - self._left}"
            self._session.said(code, f"{MEAN} is {float(result[MEAN]):.3g}; furthest apart: {'; '.join(said)}")


def worst_tokens(batch: Any) -> list[str]:
    """Return a sentence for each of the worst rows: where the tokens stand, and what both sides gave them."""
    rollout, actor, responses = batch["rollout_log_probs"], batch["old_log_probs"], batch["responses"]
    width = int(responses.shape[1])
    rows = max(1, MOST_VALUES // max(width, 1))
    mask = (batch["response_mask"] if "response_mask" in batch else batch["attention_mask"])[:rows, -width:].bool()
    ours, theirs = rollout[:rows].exp(), actor[:rows].exp()
    gap = ((ours - theirs).abs() * mask).nan_to_num(0.0)
    mean = gap.sum(-1) / mask.sum(-1).clamp(min=1)
    told = []
    for row in mean.topk(min(ROWS, int(mean.shape[0]))).indices.tolist():
        places = gap[row].topk(min(TOKENS, width)).indices.tolist()
        parts = [
            f"position {place} token {int(responses[row, place])}: rollout {float(ours[row, place]):.3g}, actor {float(theirs[row, place]):.3g}"
            for place in sorted(places)
            if float(gap[row, place]) > 0
        ]
        if parts:
            told.append(f"row {row} (mean {float(mean[row]):.3g}): {', '.join(parts)}")
    return told
