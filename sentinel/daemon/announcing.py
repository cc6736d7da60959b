# SPDX-License-Identifier: Apache-2.0
"""What people are still to be told of a run's incidents: that one opened, once what its dump showed, that it closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sentinel.records import IncidentChanged


class Announcements:
    """Who owes what. A debt is paid when the alert went out, and survives a restart until then."""

    def __init__(self) -> None:
        self.owed: dict[tuple[str, str], None] = {}
        """(incident, change) in the order in which it happened."""
        self._explained: set[str] = set()

    def note(self, effect: IncidentChanged) -> None:
        """An incident changed: owe an announcement where people should hear of it."""
        incident = effect.incident
        if effect.change == "evidence":
            worth = incident.triage is not None and incident.id not in self._explained
        else:
            worth = effect.change != "grew"
        if worth:
            self.owed[(incident.id, effect.change)] = None

    def of(self, incident: str) -> list[str]:
        """Return the changes of one incident that are still owed."""
        return [change for known, change in self.owed if known == incident]

    def pay(self, incident: str, change: str) -> bool:
        """The alert went out; False where it was not owed."""
        if (incident, change) not in self.owed:
            return False
        del self.owed[(incident, change)]
        if change == "evidence":
            self._explained.add(incident)
        return True

    def forget(self, incident: str, change: str) -> None:
        """Nobody wants to hear of it."""
        self.owed.pop((incident, change), None)

    def to_plain(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return {"owed": [list(owed) for owed in self.owed], "explained": sorted(self._explained)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Announcements:
        """Return what `to_plain` wrote.

        Raises:
            KeyError, ValueError, TypeError: it is something else.
        """
        made = cls()
        made.owed = {(str(incident), str(change)): None for incident, change in plain["owed"]}
        made._explained = set(plain["explained"])
        return made
