# SPDX-License-Identifier: Apache-2.0
"""What a dump showed, told in its incident."""

from __future__ import annotations

from dataclasses import replace

from sentinel.core.report.agreement import agreement, disagrees
from sentinel.core.report.incidents import noted
from sentinel.records import Incident, Suspect, Triage

ANSWERS = frozenset({"diverged", "non_finite"})
PROVEN = 0.95
"""Confidence in a stage that a comparable dump showed to part first."""


def told(incident: Incident, triage: Triage) -> Incident:
    """The incident with what a dump showed; an answer is not replaced by a later "nothing to see"."""
    whole = incident.triage
    if whole is not None and whole.verdict in ANSWERS:
        beside = agreement(whole.first, triage) if triage.verdict in ANSWERS and whole.first is not None else ""
        incident = noted(incident, f"{_told(triage)} {beside}".rstrip())
        return _warned(incident, beside)
    incident = noted(incident, _told(triage))
    incident = replace(incident, triage=triage)
    first = triage.first
    if triage.verdict not in ANSWERS or first is None:
        return incident
    others = tuple(suspect for suspect in incident.suspects if suspect.stage != first.stage)
    rest = sum(suspect.confidence for suspect in others)
    scaled = tuple(
        replace(suspect, confidence=round(suspect.confidence * (1 - PROVEN) / max(rest, 1.0), 3)) for suspect in others
    )
    proven = Suspect(stage=first.stage, confidence=PROVEN, because=f"the dump shows {first.module} first: {first.why}")
    lead = incident.because.rstrip()
    return replace(
        incident,
        stage=first.stage,
        suspects=(proven, *scaled),
        because=f"{lead} The dump of {_at(triage)} shows {first.module} ({first.direction}, {first.position}) of {first.stage} first: {first.why}",
    )


def _at(triage: Triage) -> str:
    return "the run" if triage.step is None else f"step {triage.step}"


def _told(triage: Triage) -> str:
    where = _at(triage)
    if triage.verdict == "clean":
        return f"The dump of {where} holds no NaN or Inf: it did not come back there."
    if triage.verdict == "same":
        return f"The dump of {where} equals the golden dump in {triage.compared} entries."
    if triage.verdict == "not_comparable":
        return f"The dump of {where} cannot be compared with a golden one: {'; '.join(triage.notes) or 'step, rows or weights differ'}."
    module = "" if triage.first is None else f": {triage.first.module} first"
    return f"Triage of the dump of {where}: {triage.verdict}{module}."


def told_deeper(incident: Incident, triage: Triage, question: str) -> Incident:
    """The incident with what a deeper dump added; what the first one showed stays its triage."""
    first, whole = triage.first, incident.triage
    beside = agreement(whole.first, triage) if whole is not None and whole.first is not None else ""
    if triage.verdict not in ANSWERS or first is None or whole is None:
        return _warned(noted(incident, f"Asked {question} {_told(triage)} {beside}".rstrip()), beside)
    said = f"{_at(triage)}, {first.name} ({first.position}): {first.why}"
    incident = noted(incident, f"Asked {question} Answer of {said} {beside}".rstrip())
    because = f"{incident.because.rstrip()} Deeper, at {said}"
    incident = replace(incident, triage=replace(whole, notes=(*whole.notes, f"deeper: {said}")), because=because)
    return _warned(incident, beside)


def _warned(incident: Incident, beside: str) -> Incident:
    """The incident that says where its readers see it first that two of its dumps do not name the same."""
    if incident.triage is None or not disagrees(beside):
        return incident
    triage = replace(incident.triage, notes=(*incident.triage.notes, beside))
    return replace(incident, triage=triage, because=f"{incident.because.rstrip()} {beside}")
