# SPDX-License-Identifier: Apache-2.0
"""What the demo shows: the scenarios, and the comparison of what was planted with what Sentinel said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentinel.demo.kit.faults import Fault

STEPS = 8
"""Steps a run. Faults begin at step 4 or later: what went well before shows that nothing was flagged early."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mishap:
    """What goes wrong beside the modules: a replay that does not happen, weights that do not reach the rollout engine."""

    stage: str
    kind: str
    """Of the incident that is expected."""
    step: int
    overrides: tuple[str, ...] = ()
    rollout_fault: str = ""
    """As VERL_DEMO_ROLLOUT_FAULT; the run then writes its own rollouts, and is compared as one that does (`regime: free`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One watched run."""

    name: str
    """Also the name under which Sentinel watches it, so it gives nothing away of the fault."""
    title: str
    fault: Fault | None = None
    attention: str = "eager"
    comes_back: bool = True
    """False: the fault is over before the next step, and the dump of that step must be clean."""
    mishap: Mishap | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What Sentinel said, in the form of the command-line contract."""

    stage: str | None
    module: str | None
    step: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A scenario beside what was found in it."""

    scenario: Scenario
    found: Found | None
    ok: bool
    why: str
    """One sentence: what was found, or what is missing."""
    incidents: tuple[Mapping[str, Any], ...] = ()
    report: str | None = None
    golden: str | None = None
    """What triage says of the golden dump: whether step, rows and starting weights agree."""
    dump: str | None = None
    """Where the dump lies that was taken for it."""
    seconds: float = 0.0

    def to_plain(self) -> dict[str, Any]:
        """The form of `sentinel demo --json`."""
        fault = self.scenario.fault
        planted = None
        if fault is not None:
            planted = {"stage": fault.stage, "module": fault.module, "kind": fault.kind, "size": fault.size}
            planted["step"] = fault.step
        elif (mishap := self.scenario.mishap) is not None:
            planted = {"stage": mishap.stage, "module": None, "kind": mishap.kind, "size": None, "step": mishap.step}
        found = self.found
        return {
            "name": self.scenario.name,
            "planted": planted,
            "found": found and {"stage": found.stage, "module": found.module, "step": found.step},
            "ok": self.ok,
            "report": self.report,
            "why": self.why,
            "golden": self.golden,
            "dump": self.dump,
            "seconds": round(self.seconds, 1),
        }


HEALTHY = Scenario(name="run-a", title="healthy replay, another attention kernel", attention="sdpa")


def standard() -> tuple[Scenario, ...]:
    """The five scenarios of the main job, the recording of the baseline apart."""
    return (
        HEALTHY,
        Scenario(
            name="run-b",
            title="one module of the actor computes 2 % too much",
            fault=Fault(
                stage="actor_compute_log_prob",
                module="model.layers.1.self_attn.q_proj",
                kind="scale",
                size=1.02,
                step=4,
            ),
        ),
        Scenario(
            name="run-c",
            title="one module's gradient is NaN for three steps",
            fault=Fault(stage="actor_update", module="model.layers.1.mlp.down_proj", kind="nan_grad", size=3, step=4),
        ),
        Scenario(
            name="run-d",
            title="one module's gradient is NaN for one step",
            fault=Fault(
                stage="actor_update", module="model.layers.0.self_attn.o_proj", kind="nan_grad", size=1, step=5
            ),
            comes_back=False,
        ),
    )


def extra() -> tuple[Scenario, ...]:
    """Two more: a replay is asked for and does not happen; weights reach the rollout engine in another layout."""
    return (
        Scenario(
            name="run-e",
            title="a replay is asked for and does not happen: the run has another name than the recording",
            # Project and experiment are part of the recording's path; verl generates and says so in one line of its log.
            mishap=Mishap(stage="config", kind="mismatch", step=1, overrides=("trainer.experiment_name=another",)),
        ),
        Scenario(
            name="run-f",
            title="the weights reach the rollout engine in another layout",
            mishap=Mishap(stage="rollout", kind="collapse", step=4, rollout_fault="scrambled=4"),
        ),
    )


def asked(faults: Sequence[Fault]) -> tuple[Scenario, ...]:
    """The healthy replay, and one run for each fault."""
    runs = tuple(
        Scenario(
            name=f"run-{number}",
            title=f"planted fault {number}",
            fault=fault,
            comes_back=fault.kind != "nan_grad" or fault.size > 1,
        )
        for number, fault in enumerate(faults, 1)
    )
    return (HEALTHY, *runs)


def judge(scenario: Scenario, incidents: Sequence[Mapping[str, Any]]) -> Outcome:
    """Compare what was planted with the incidents of the run, in the form of the command-line contract."""
    told = tuple(sorted(incidents, key=lambda i: (i["opened_at_step"], i.get("severity") != "critical", i["id"])))
    if not told:
        silent = scenario.fault is None and scenario.mishap is None
        why = "silent, as it should be" if silent else "nothing was reported"
        return Outcome(scenario=scenario, found=None, ok=silent, why=why)
    first = told[0]
    found = _found(first)
    if scenario.mishap is not None:
        wrong = _other_mishap(scenario.mishap, found, first)
    elif scenario.fault is not None:
        wrong = _mismatch(scenario, scenario.fault, found, first)
    else:
        wrong = f"false alarm: {_because(first)}"
    return Outcome(
        scenario=scenario,
        found=found,
        ok=not wrong,
        why=wrong or " ".join(filter(None, (_because(first), _over(first)))),
        incidents=told,
        golden=_golden(first),
        dump=_dump(first),
    )


def _found(incident: Mapping[str, Any]) -> Found:
    triage = incident.get("triage") or {}
    place = triage.get("first") or {}
    return Found(
        stage=place.get("stage") or incident.get("stage"),
        module=place.get("module"),
        step=incident.get("opened_at_step"),
    )


def _mismatch(scenario: Scenario, fault: Fault, found: Found, incident: Mapping[str, Any]) -> str:
    """In what the finding differs from the plan; empty where it does not."""
    wrong = []
    if found.step != fault.step:
        wrong.append(f"step {found.step} instead of {fault.step}")
    if incident.get("stage") != fault.stage and found.stage != fault.stage:
        wrong.append(f"stage {incident.get('stage')} instead of {fault.stage}")
    if (incident.get("kind") == "non_finite") != (fault.kind == "nan_grad"):
        wrong.append(f"kind {incident.get('kind')} for {fault.kind}")
    verdict = (incident.get("triage") or {}).get("verdict")
    if scenario.comes_back:
        if found.module != fault.module:
            wrong.append(f"module {found.module} instead of {fault.module} (triage: {verdict})")
    elif verdict != "clean" or _over(incident) is None:
        wrong.append(f"it was not said that it did not come back in the next step (triage: {verdict})")
    return ", ".join(wrong)


def _other_mishap(mishap: Mishap, found: Found, incident: Mapping[str, Any]) -> str:
    """In what the incident differs from what goes wrong; empty where it does not."""
    wrong = []
    if found.step != mishap.step:
        wrong.append(f"step {found.step} instead of {mishap.step}")
    if incident.get("stage") != mishap.stage:
        wrong.append(f"stage {incident.get('stage')} instead of {mishap.stage}")
    kinds = {incident.get("kind"), *(finding.get("kind") for finding in incident.get("findings") or ())}
    if mishap.kind not in kinds:
        wrong.append(f"kind {incident.get('kind')} instead of {mishap.kind}")
    return ", ".join(wrong)


def _because(incident: Mapping[str, Any]) -> str:
    text = incident.get("because") or next((f["because"] for f in incident.get("findings") or ()), "")
    return str(text) or f"{incident.get('kind')} in {incident.get('stage')}"


def _over(incident: Mapping[str, Any]) -> str | None:
    """Sentinel's remark that it is over."""
    notes = incident.get("notes") or ()
    return next((str(note) for note in notes if "did not come back at step" in note), None)


def _golden(incident: Mapping[str, Any]) -> str | None:
    """Whether the golden dump compares, in triage's own terms; its remark on the weights where they differ."""
    triage = incident.get("triage") or {}
    comparable = triage.get("comparable")
    if not comparable:
        return None
    words = {True: "same", False: "other"}
    told = ", ".join(f"{words.get(comparable.get(part), 'unknown')} {part}" for part in ("step", "rows", "weights"))
    moved = next((note for note in triage.get("notes") or () if "moved by updates" in note), None)
    return f"{told} ({moved})" if moved else told


def failed(scenario: Scenario, error: Exception) -> Outcome:
    """The outcome of a scenario that could not be brought to its end."""
    return Outcome(scenario=scenario, found=None, ok=False, why=f"not finished: {error}")


def _dump(incident: Mapping[str, Any]) -> str | None:
    paths = (incident.get("receipt") or {}).get("paths") or ()
    return str(paths[0]) if paths else None
