# SPDX-License-Identifier: Apache-2.0
"""Sentinel for loops other than verl's: `SentinelCallback` for Hugging Face and TRL trainers, `Loop` for one's own.

    from sentinel.callback import SentinelCallback

    Trainer(..., callbacks=[SentinelCallback(run="my-run")])

Importing it costs the standard library only; nothing is watched unless a run is named. docs/captures.md has more.
"""

from sentinel.trainer.loop import Loop, SentinelCallback

__all__ = ["Loop", "SentinelCallback"]
