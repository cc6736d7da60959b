# SPDX-License-Identifier: Apache-2.0
"""Findings become incidents: opened at the first bad step, growing, closed after quiet steps, opened again when it returns.

One root, one incident: while an incident is open, everything that goes wrong belongs to it, because a fault at step N moves every
metric by N+1 (NaN in the update garbles the next rollouts). Three things open an incident of their own beside a lesser one: a first
NaN, a mismatch of what must be equal, and evidence that jumps far beyond all that the open incident has shown, some steps after it
opened; so a weak alarm does not swallow a fault that begins meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sentinel.records import UNKNOWN_STAGE, Finding, Incident, Suspect

RANK = ("non_finite", "mismatch", "collapse", "self_inconsistent", "drift", "spike", "vanished", "silence")
"""Kinds, gravest first; an incident is of the gravest kind among the findings that opened it."""
ALWAYS_CRITICAL = frozenset({"non_finite", "mismatch", "collapse"})
MILD = frozenset({"collapse", "self_inconsistent", "drift", "spike", "vanished"})
"""Kinds that a graver one of them may replace while an incident grows; NaN and mismatches stay what they are."""
CRITICAL_SCORE = 10.0
MOST_FINDINGS = 60
NOT_BACK = "did not come back"
EXPLAINS = "Could explain it, see the checklist: "
SETTLED_AFTER = 3
"""Steps in which an incident's consequences may still unfold: an update at N is judged wherever it shows by N + 2."""
JUMP = 8.0
"""Factor over an incident's largest score from which evidence is of something else."""


@dataclass(frozen=True)
class IncidentSettings:
    """When incidents close and reopen."""

    close_after_steps: int = 10
    """Quiet steps after which an incident is closed."""
    close_non_finite_after_steps: int = 1
    """The same for NaN and Inf: one finite step shows that it did not come back."""
    reopen_within_steps: int = 10
    """The same trouble (kind and metric; any NaN) within these steps after closing opens the old incident again."""


@dataclass(frozen=True)
class Tracked:
    """An incident and what is needed to go on with it."""

    incident: Incident
    quiet: int = 0
    """Steps in a row without a finding."""
    asked: bool = False
    """The question of a capture was settled: ordered, or refused for good."""
    level: float = 0.0
    """Largest score of a finding so far."""


@dataclass(frozen=True)
class Change:
    """What happened to an incident at this step."""

    incident: Incident
    change: str
    """opened, grew, evidence, closed."""


Docket = tuple[Tracked, ...]


def filed(
    docket: Docket,
    run: str,
    step: int,
    findings: Sequence[Finding],
    suspects: Callable[[], Sequence[Suspect]],
    *,
    settings: IncidentSettings,
) -> tuple[Docket, tuple[Change, ...]]:
    """Sort one step's findings into the docket and close what has been quiet for long enough.

    `suspects` is asked only when an incident is opened.
    """
    if not findings:
        return _passed(docket, step, None, settings)
    home = _home(docket, step, findings, settings)
    if home is None:
        incident = _opened(f"{run}:{len(docket) + 1}", run, step, findings, suspects())
        docket, changes = _passed(docket, step, None, settings)
        return (*docket, Tracked(incident, level=_highest(findings))), (*changes, Change(incident, "opened"))
    grown, change = _merged(docket[home], step, findings)
    docket = (*docket[:home], grown, *docket[home + 1 :])
    docket, changes = _passed(docket, step, home, settings)
    return docket, ((Change(grown.incident, change), *changes) if change else changes)


def explained(docket: Docket, changes: tuple[Change, ...], notes: Sequence[str]) -> tuple[Docket, tuple[Change, ...]]:
    """The same with notes on what could explain the incidents that were opened just now."""
    opened = {change.incident.id for change in changes if change.change == "opened"}
    if not opened or not notes:
        return docket, changes

    def told(incident: Incident) -> Incident:
        said = tuple(f"{EXPLAINS}{note}" for note in notes)
        return replace(incident, notes=(*incident.notes, *said)) if incident.id in opened else incident

    return (
        tuple(replace(tracked, incident=told(tracked.incident)) for tracked in docket),
        tuple(replace(change, incident=told(change.incident)) for change in changes),
    )


def _home(docket: Docket, step: int, findings: Sequence[Finding], settings: IncidentSettings) -> int | None:
    """Place of the incident that the findings belong to."""
    non_finite = any(finding.kind == "non_finite" for finding in findings)
    open_places = [place for place, tracked in enumerate(docket) if tracked.incident.state == "open"]
    if non_finite:
        open_places = [place for place in open_places if docket[place].incident.kind == "non_finite"]
    if open_places:
        return None if _another(docket[open_places[-1]], step, findings) else open_places[-1]
    for place in range(len(docket) - 1, -1, -1):
        old = docket[place].incident
        if old.closed_at_step is None or not 0 <= step - old.closed_at_step <= settings.reopen_within_steps:
            continue
        if _same_trouble(old, findings):
            return place
    return None


def _another(tracked: Tracked, step: int, findings: Sequence[Finding]) -> bool:
    """Whether findings are of another cause than the incident that is open."""
    old = tracked.incident
    if old.kind == "non_finite" or step - old.opened_at_step < SETTLED_AFTER:
        return False
    if old.kind != "mismatch" and any(finding.kind == "mismatch" for finding in findings):
        return True
    return _highest(findings) > JUMP * max(tracked.level, 1.0)


def _highest(findings: Sequence[Finding]) -> float:
    return max((finding.score for finding in findings if finding.score == finding.score), default=0.0)


def _same_trouble(old: Incident, findings: Sequence[Finding]) -> bool:
    """Whether a closed incident has come back: the same kind, and but for NaN a metric that it knows."""
    again = [finding for finding in findings if finding.kind == old.kind]
    if old.kind == "non_finite":
        return bool(again)
    return bool({finding.metric for finding in again} & {finding.metric for finding in old.findings})


def _opened(name: str, run: str, step: int, findings: Sequence[Finding], suspects: Sequence[Suspect]) -> Incident:
    stage = suspects[0].stage if suspects else UNKNOWN_STAGE
    kind = min((finding.kind for finding in findings), key=_rank)
    kept = tuple(sorted(findings, key=lambda finding: (_rank(finding.kind), finding.stage != stage, -finding.score)))[
        :MOST_FINDINGS
    ]
    lead = kept[0]
    reason = f" {suspects[0].because[:1].upper()}{suspects[0].because[1:]}." if suspects and suspects[0].because else ""
    return Incident(
        id=name,
        run=run,
        kind=kind,
        state="open",
        opened_at_step=step,
        closed_at_step=None,
        severity=_severity(kind, kept),
        stage=stage,
        suspects=tuple(suspects),
        findings=kept,
        because=lead.because + reason,
        last_seen_step=step,
    )


def _merged(tracked: Tracked, step: int, findings: Sequence[Finding]) -> tuple[Tracked, str]:
    """The incident with the step's findings; the change is empty when nothing new was learned."""
    old = tracked.incident
    known = {(finding.detector, finding.metric) for finding in old.findings}
    new = tuple(finding for finding in findings if (finding.detector, finding.metric) not in known)
    kept = (*old.findings, *new)[:MOST_FINDINGS]
    kind = (
        min((old.kind, *(finding.kind for finding in findings if finding.kind in MILD)), key=_rank)
        if old.kind in MILD
        else old.kind
    )
    severity = "critical" if old.severity == "critical" else _severity(kind, kept)
    incident = replace(old, findings=kept, kind=kind, severity=severity, last_seen_step=max(old.last_seen_step, step))
    level = max(tracked.level, _highest(findings))
    change = "grew" if len(kept) > len(old.findings) or severity != old.severity or kind != old.kind else ""
    if old.state == "closed":
        lead = max(findings, key=lambda finding: (-_rank(finding.kind), finding.score))
        because = f"{lead.because} It is back: it was first seen at step {old.opened_at_step}."
        incident = replace(incident, state="open", closed_at_step=None, because=because)
        incident = noted(incident, f"Came back at step {step}.")
        change = "opened"
    return replace(tracked, incident=incident, quiet=0, level=level), change


def _passed(
    docket: Docket, step: int, busy: int | None, settings: IncidentSettings
) -> tuple[Docket, tuple[Change, ...]]:
    """Count a quiet step for every open incident but the busy one; close those that have been quiet for long enough."""
    out, changes = [], []
    for place, tracked in enumerate(docket):
        if tracked.incident.state != "open" or place == busy or step <= tracked.incident.last_seen_step:
            out.append(tracked)
            continue
        aged = replace(tracked, quiet=tracked.quiet + 1)
        non_finite = aged.incident.kind == "non_finite"
        if aged.quiet >= (settings.close_non_finite_after_steps if non_finite else settings.close_after_steps):
            aged = replace(aged, incident=_closed(aged.incident, step, aged.quiet))
            changes.append(Change(aged.incident, "closed"))
        out.append(aged)
    return tuple(out), tuple(changes)


def _closed(incident: Incident, step: int, quiet: int) -> Incident:
    if incident.kind == "non_finite":
        steps = incident.last_seen_step - incident.opened_at_step + 1
        lasted = "one step" if steps == 1 else f"{steps} steps"
        note = f"Lasted {lasted} and {NOT_BACK} at step {step}; verl skips a non-finite update, so the weights are one update behind for each."
    else:
        note = f"Quiet for {quiet} steps up to step {step}."
    return noted(replace(incident, state="closed", closed_at_step=step), note)


def _rank(kind: str) -> int:
    return RANK.index(kind) if kind in RANK else len(RANK)


def _severity(kind: str, findings: Sequence[Finding]) -> str:
    far = any(finding.score >= CRITICAL_SCORE for finding in findings)
    return "critical" if kind in ALWAYS_CRITICAL or far else "warning"


def noted(incident: Incident, note: str) -> Incident:
    """The incident with one more note; a note that stands there already is not repeated."""
    return incident if note in incident.notes else replace(incident, notes=(*incident.notes, note))


def find(docket: Docket, name: str) -> int | None:
    """Place of an incident by its id."""
    return next((place for place, tracked in enumerate(docket) if tracked.incident.id == name), None)


def put(docket: Docket, place: int, incident: Incident, *, asked: bool | None = None) -> Docket:
    """The docket with the incident at `place` replaced."""
    old = docket[place]
    new = replace(old, incident=incident, asked=old.asked if asked is None else asked)
    return (*docket[:place], new, *docket[place + 1 :])
