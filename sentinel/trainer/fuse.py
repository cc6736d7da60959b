# SPDX-License-Identifier: Apache-2.0
"""Failures of Sentinel end here and never reach the training run.

One fuse a feature. After the allowed failures it is burnt: the feature stays off, silently, for the rest of the
process, and `sentinel_trainer_fuse_burnt` shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
log = logging.getLogger("sentinel.trainer")


def attempt(action: Callable[[], object]) -> Exception | None:
    """Run `action`; return what it raised instead of raising it, None when all went well."""
    try:
        action()
    except Exception as error:
        return error
    return None


class Fuse:
    """Runs actions of one feature; contains what they raise.

    KeyboardInterrupt and SystemExit pass through: they are the trainer's.
    """

    def __init__(self, feature: str, allowed: int = 5) -> None:
        self.feature = feature
        self.allowed = allowed
        self.failures = 0
        self.last_error = ""

    @property
    def burnt(self) -> bool:
        """Whether the feature is off for good."""
        return self.failures >= self.allowed

    def run(self, action: Callable[[], T], otherwise: T) -> T:
        """Return what `action` returns, or `otherwise` when it fails or the fuse is burnt."""
        if self.failures >= self.allowed:
            return otherwise
        try:
            return action()
        except Exception as error:
            self.failed(error)
            return otherwise

    def failed(self, error: Exception) -> None:
        """Count one failure; said once each, never once a step after the fuse has burnt."""
        self.failures += 1
        self.last_error = f"{type(error).__name__}: {error}"
        state = "off from now on" if self.burnt else f"failure {self.failures} of {self.allowed}"
        log.warning("Sentinel: %s (%s): %s. Training is not affected.", self.feature, state, self.last_error)
