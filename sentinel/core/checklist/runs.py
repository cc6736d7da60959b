# SPDX-License-Identifier: Apache-2.0
"""The checks that are judged on runs: order of the data, text, replay, captures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sentinel.core.checklist.result import FAIL, PASS, UNKNOWN, CheckResult, Difference
from sentinel.core.checklist.rules import Rules
from sentinel.core.checklist.side import Side, comparable

_SWITCHES = ("skip.rollout", "skip.rollout_tq", "skip.async_rollout")


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What is known of the run that is judged, beside its fingerprint."""

    replayed: tuple[int, ...] | None = None
    """Steps whose rollouts a log says were loaded; None: no log was given."""
    steps: tuple[int, ...] = ()
    """Steps that the log shows."""
    recording: Mapping[str, object] | None = None
    """`{"path", "steps": [...], "why"}` of the folder that a replay would read; None: not looked at."""
    golden_dumps: int | None = None
    """How many golden dumps the baseline holds; None: no baseline bundle."""
    armed: bool | None = None
    """Whether the launch names a run that Sentinel watches; False: switched off; None: not known."""
    text: tuple[str, float] | None = None
    """Verdict on the run's rollout text and share of bad rows, as `sentinel rollout check` gives them; None: not looked at."""
    triaged: tuple[str, ...] | None = None
    """Verdicts of the run's dump comparisons; None: no run was named."""


def order(target: Side, golden: Side, _rules: Rules) -> CheckResult:
    """Each step had the same prompts."""
    title = "Each step has the same prompts"
    why = "another prompt is another gradient: nothing of that step and of the steps after it can be compared"
    shared = sorted(set(target.order or ()) & set(golden.order or ()))
    if target.order is None or golden.order is None or not shared:
        missing = "here" if target.order is None else "of the baseline" if golden.order is None else "of a common step"
        return CheckResult(
            id="data.order",
            title=title,
            status=UNKNOWN,
            found=f"no rollouts {missing}",
            expected="equal prompts in each step",
            fix="trainer.rollout_data_dir=DIR on both sides, then --rollouts DIR",
            why=why,
        )
    parted = [step for step in shared if _part(target, step, "prompts") != _part(golden, step, "prompts")]
    differences = tuple(
        Difference(what=f"step {step}", found=_part(target, step, "prompts"), expected=_part(golden, step, "prompts"))
        for step in parted
    )
    return CheckResult(
        id="data.order",
        title=title,
        status=FAIL if parted else PASS,
        found=f"parts at step {parted[0]} ({len(parted)} of {len(shared)} steps)"
        if parted
        else f"{len(shared)} steps equal",
        expected="equal prompts in each step",
        fix="data.shuffle=False, the same data files, batch sizes and filters; compare from step 1" if parted else "",
        why=why,
        differences=differences,
    )


def text(target: Side, golden: Side, evidence: Evidence) -> CheckResult:
    """Rollout text that equals the baseline's is as sound as that; other text is judged as `sentinel rollout check` does."""
    title = "Rollout text"
    shared = sorted(set(target.order or ()) & set(golden.order or ()))
    known = [s for s in shared if _part(target, s, "texts") and _part(golden, s, "texts")]
    equal = [s for s in known if _part(target, s, "texts") == _part(golden, s, "texts")]
    if known and len(equal) == len(known):
        found = f"{len(equal)} steps, word for word the baseline's"
        if evidence.text is not None and evidence.text[0] != "healthy":
            found = f"{found}, and {evidence.text[0]} on both sides: whether it should be cannot be told"
            return CheckResult(id="rollout.text", title=title, status=UNKNOWN, found=found, expected="healthy text")
        return CheckResult(id="rollout.text", title=title, status=PASS, found=found, expected="healthy text")
    if evidence.text is not None:
        return _judged_text(title, *evidence.text)
    parted = (
        f"differs from the baseline's from step {next(s for s in known if s not in equal)} on"
        if known
        else "not looked at"
    )
    return CheckResult(
        id="rollout.text",
        title=title,
        status=UNKNOWN,
        found=f"{parted}; whether it is garbled is judged on the run",
        expected="healthy text",
        fix="sentinel rollout check DIR --against BASELINE_DIR",
        why="garbled text with load_format=dummy points at sharding (the guide, section 7.1)",
    )


def _judged_text(title: str, verdict: str, share: float) -> CheckResult:
    healthy = verdict == "healthy"
    return CheckResult(
        id="rollout.text",
        title=title,
        status=PASS if healthy else FAIL,
        found=f"{verdict}: {share:.1%} of the rows are bad",
        expected="healthy text",
        fix="" if healthy else "sentinel rollout check DIR shows the rows; --reproduce asks the engine alone",
        why="garbled text with load_format=dummy points at sharding (the guide, section 7.1)",
    )


def recording(target: Side, _golden: Side, evidence: Evidence) -> CheckResult:
    """The replay is switched on, for named steps, and what it will look for is there."""
    title = "The rollout recording that a replay needs"
    how = "sentinel stub replay prints the overrides, and checks the recording beforehand"
    on = [name for name in _SWITCHES if comparable(target.value(f"{name}.enable")) is True]
    if not on:
        known = any(target.knows(f"{name}.enable") for name in _SWITCHES)
        found = (
            "no replay is asked for: the run makes its own rollouts"
            if known
            else "whether a replay is asked for is not known"
        )
        return CheckResult(
            id="replay.recording",
            title=title,
            status=UNKNOWN,
            found=found,
            expected="a replay of the baseline's rollouts",
            fix=how,
        )
    steps = target.value(f"{on[0]}.steps")
    if not steps:
        return CheckResult(
            id="replay.recording",
            title=title,
            status=FAIL,
            found=f"{on[0]}.enable=True and {on[0]}.steps is empty",
            expected="the steps by number",
            fix=f"{on[0]}.steps=[1,2,...]; {how}",
            why="a step outside the list is neither recorded nor replayed, and verl says nothing",
        )
    seen = evidence.recording
    if seen is None:
        return CheckResult(
            id="replay.recording",
            title=title,
            status=UNKNOWN,
            found="the recording was not looked at",
            expected="every step there",
            fix=how,
        )
    have = {int(step) for step in _numbers(seen.get("steps"))}
    wanted = [int(step) for step in _numbers(steps)]
    missing = [step for step in wanted if step not in have]
    return CheckResult(
        id="replay.recording",
        title=title,
        status=FAIL if missing else PASS,
        found=f"steps {missing} are missing in {seen.get('path')}"
        if missing
        else f"{len(wanted)} steps in {seen.get('path')}",
        expected=f"steps {wanted}",
        fix=how if missing else "",
        why="a step that is not there is generated instead; names, batch sizes and lengths are part of the path",
    )


def happened(_target: Side, _golden: Side, evidence: Evidence) -> CheckResult:
    """The log says of each step that its rollouts were loaded."""
    title = "The replay happened"
    if evidence.replayed is None or not evidence.steps:
        found = "no log was given" if evidence.replayed is None else "the log shows no step yet"
        return CheckResult(
            id="replay.happened",
            title=title,
            status=UNKNOWN,
            found=found,
            expected="each step loaded",
            fix="give the run's --log",
        )
    missing = [step for step in evidence.steps if step not in evidence.replayed]
    if missing and not evidence.replayed:
        return CheckResult(
            id="replay.happened",
            title=title,
            status=UNKNOWN,
            found=f"none of {len(evidence.steps)} steps was loaded: the run made its own rollouts",
            expected="each step loaded",
            fix="sentinel stub replay, where the comparison is to be exact",
        )
    return CheckResult(
        id="replay.happened",
        title=title,
        status=FAIL if missing else PASS,
        found=f"steps {missing} made their own rollouts" if missing else f"{len(evidence.steps)} steps were loaded",
        expected="each step loaded",
        fix="sentinel stub replay names the overrides for all steps" if missing else "",
    )


def armed(target: Side, _golden: Side, evidence: Evidence) -> CheckResult:
    """A fault can be dumped, and there is something to compare the dump with."""
    title = "A capture is possible"
    expected = "msprobe installed, a run named, golden dumps in the baseline"
    broken: list[str] = []
    unknown: list[str] = []
    if "mindstudio-probe" not in target.versions:
        (broken if target.versions_whole else unknown).append(
            "msprobe is not installed" if target.versions_whole else "whether msprobe is installed"
        )
    if evidence.armed is False:
        broken.append("SENTINEL_DISABLED is set")
    elif evidence.armed is None:
        unknown.append("whether the launch names a run (SENTINEL_RUN)")
    if evidence.golden_dumps is None:
        unknown.append("which golden dumps there are (give the baseline's bundle)")
    elif evidence.golden_dumps == 0:
        unknown.append("golden dumps: the baseline holds none")
    fixes = "pip install mindstudio-probe; export SENTINEL_RUN=NAME; sentinel baseline add BUNDLE --dumps DIR"
    if broken or unknown:
        return CheckResult(
            id="capture.armed",
            title=title,
            status=FAIL if broken else UNKNOWN,
            found="; ".join(broken) or f"not known: {'; '.join(unknown)}",
            expected=expected,
            fix=fixes,
        )
    found = f"msprobe {target.versions['mindstudio-probe']}, {evidence.golden_dumps} golden dumps, a run is named"
    return CheckResult(id="capture.armed", title=title, status=PASS, found=found, expected=expected)


def compared(_target: Side, _golden: Side, evidence: Evidence) -> CheckResult:
    """Dumps of both sides were compared, and agree."""
    title = "Dumps were compared"
    expected = "dumps of one stage and step of both sides, compared"
    how = "sentinel captures request --run RUN --stages actor_update, or sentinel triage TARGET GOLDEN"
    verdicts = evidence.triaged or ()
    if "diverged" in verdicts or "non_finite" in verdicts:
        found = f"{sum(v in ('diverged', 'non_finite') for v in verdicts)} of {len(verdicts)} comparisons part"
        fix = "sentinel incidents list, then report: it names the module"
        return CheckResult(id="capture.compared", title=title, status=FAIL, found=found, expected=expected, fix=fix)
    if "same" in verdicts:
        found = f"{verdicts.count('same')} comparisons, none parts"
        return CheckResult(id="capture.compared", title=title, status=PASS, found=found, expected=expected)
    found = "no run was named (--run)" if evidence.triaged is None else f"{len(verdicts)} comparisons, none that holds"
    return CheckResult(id="capture.compared", title=title, status=UNKNOWN, found=found, expected=expected, fix=how)


def _part(side: Side, step: int, name: str) -> object:
    return (side.order or {}).get(step, {}).get(name)


def _numbers(value: object) -> list[float]:
    """Return the numbers of a list, or of its text as hydra writes it."""
    if isinstance(value, (list, tuple)):
        return [float(item) for item in value if isinstance(item, (int, float)) or str(item).strip().isdigit()]
    return [float(item) for item in str(value).strip("[] ").split(",") if item.strip().isdigit()]
