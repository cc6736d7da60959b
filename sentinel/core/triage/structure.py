# SPDX-License-Identifier: Apache-2.0
"""What one side ran and the other did not, told from what two healthy dumps may differ in."""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.core.triage.outline import Entry
from sentinel.core.triage.pairing import Pairing


def structure(pairing: Pairing) -> str:
    """Modules that one side ran and the other did not, beyond what a recomputation or a skipped end explains."""
    mine = _lone_modules(pairing.only_in_target, {pair.target.module for pair in pairing.pairs})
    theirs = _lone_modules(pairing.only_in_golden, {pair.golden.module for pair in pairing.pairs})
    parts = []
    if len(theirs) > 2:
        parts.append(f"{len(theirs)} modules ran in the golden dump only, first {theirs[0]}")
    if len(mine) > 2:
        parts.append(f"{len(mine)} modules ran in the target only, first {mine[0]}")
    paired = {pair.target.module for pair in pairing.pairs}
    for side, entries in (("target", pairing.only_in_target), ("golden dump", pairing.only_in_golden)):
        calls = [entry for entry in entries if _is_lost_call(entry, paired)]
        if len(calls) > 2:
            parts.append(
                f"{len(calls)} calls stand in the {side} only, first {calls[0].name}: cut off, or not the same work"
            )
    return "; ".join(parts)


def _is_lost_call(entry: Entry, paired: set[str]) -> bool:
    """Whether a call should have a partner: its module has others, and it is neither a second run nor an expert's."""
    known = entry.module in paired and ".experts" not in entry.module
    return known and not entry.operation and entry.kind in {"forward", "backward"}


def _lone_modules(entries: Sequence[Entry], paired: set[str]) -> list[str]:
    found = dict.fromkeys(entry.module for entry in entries if entry.kind == "forward" and not entry.operation)
    return [module for module in found if module not in paired]
