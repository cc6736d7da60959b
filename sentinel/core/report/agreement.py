# SPDX-License-Identifier: Apache-2.0
"""Whether a later dump of an incident names what the first one named."""

from __future__ import annotations

from sentinel.records import Divergence, Triage

NOTHING_FOUND = frozenset({"same", "clean"})


def agreement(earlier: Divergence, later: Triage) -> str:
    """One sentence on a later answer beside the earlier one; empty where the later dump says nothing."""
    if later.first is not None:
        return _beside(earlier, later.first)
    if later.verdict in NOTHING_FOUND:
        return f"It does not bear out the earlier dump, which named {_named(earlier)}: nothing in it is out."
    return ""


def _beside(earlier: Divergence, found: Divergence) -> str:
    named, here = _named(earlier), _named(found)
    if found.stage != earlier.stage:
        return f"It contradicts the earlier dump, which named {named} of {earlier.stage}: here it is {here} of {found.stage}."
    if not found.name.startswith("Module.") and found.module == _api(found.name):
        return f"It names an operation and no module, so it neither bears out nor contradicts the earlier dump, which named {named}."
    if f"{found.module}.".startswith(f"{earlier.module}."):
        if found.direction == earlier.direction:
            return f"It bears out the earlier dump, which named {named}."
        return f"It bears out the module that the earlier dump named, {named}, and not the direction: here it is {found.direction}."
    if earlier.module.startswith(f"{found.module}."):
        return f"It names {here}, the module around the one that the earlier dump named, {named}."
    return f"It contradicts the earlier dump, which named {named}: here it is {here}."


def _named(place: Divergence) -> str:
    return f"{place.module} ({place.direction})"


def disagrees(sentence: str) -> bool:
    """Whether a sentence of `agreement` is worth a reader's attention."""
    return bool(sentence) and not sentence.startswith("It bears out the earlier dump")


def _api(name: str) -> str:
    """`Functional.linear` of `Functional.linear.3.forward`."""
    return ".".join(name.split(".")[:2])
