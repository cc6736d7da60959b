# SPDX-License-Identifier: Apache-2.0
"""`determinism.env` and `determinism.seed`: what lets a run repeat itself."""

from __future__ import annotations

from sentinel.core.checklist.result import UNKNOWN, WARN, CheckResult, Difference, worst
from sentinel.core.checklist.rules import Rules, Variable
from sentinel.core.checklist.side import Process, Side, comparable

_SEED = "SENTINEL_SEED_ALL=1"
_RANKS = 4


def scenario_of(side: Side) -> str:
    """Return hccl, lccl or single, as variables and configuration say."""
    for process in side.processes:
        if (process.variables or {}).get("HCCL_OP_EXPANSION_MODE", "").upper() == "AIV":
            return "lccl"
    devices, nodes = comparable(side.value("trainer.n_gpus_per_node")), comparable(side.value("trainer.nnodes"))
    if side.workers_known:
        return "single" if len(side.processes) == 1 else "hccl"
    return "single" if devices == 1.0 and nodes in (1.0, None) else "hccl"


def environment(target: Side, rules: Rules, scenario: str | None) -> CheckResult:
    """Each process of the run has the variables of its scenario.

    Args:
        target: the side that is judged.
        rules: which variables.
        scenario: hccl, lccl or single; None: as `scenario_of` finds.
    """
    title = "The variables of determinism are set"
    chosen = scenario or scenario_of(target)
    needed = [v for v in rules.for_scenario(chosen) if not v.only_with or v.only_with in target.versions]
    expected = " ".join(f"{v.name}={v.value}" for v in needed)
    seen = [process for process in target.processes if process.variables is not None]
    if scenario is None and target.on_npu is False:
        return _unknown(
            title, "this side computes on no NPU; --scenario says what to expect of one that does", expected
        )
    if not seen:
        return _unknown(title, "the variables of this side are not known", expected)
    differences = [d for variable in needed for d in _variable(variable, seen, certain=target.workers_known)]
    where = f"{len(seen)} workers" if target.workers_known else "the launch"
    return CheckResult(
        id="determinism.env",
        title=f"{title} ({chosen})",
        status=worst(d.status for d in differences),
        found="; ".join(f"{d.what}: {d.found}" for d in differences) or f"all {len(needed)} set in {where}",
        expected=expected,
        fix="; ".join(d.fix for d in differences),
        why="; ".join(f"{d.what}: {d.why} [{d.source}]" for d in differences),
        differences=tuple(differences),
    )


def _unknown(title: str, found: str, expected: str) -> CheckResult:
    fix = "run `sentinel fingerprint` in the shell of the launch, or give --launch"
    return CheckResult(id="determinism.env", title=title, status=UNKNOWN, found=found, expected=expected, fix=fix)


def _variable(variable: Variable, processes: list[Process], *, certain: bool) -> list[Difference]:
    accepted = {text.lower() for text in variable.accept}
    wrong = [p for p in processes if (p.variables or {}).get(variable.name, "").lower() not in accepted]
    if not wrong:
        return []
    values = sorted({(p.variables or {}).get(variable.name, "not set") for p in wrong})
    places = ", ".join(p.name for p in wrong[:_RANKS])
    everywhere = len(wrong) == len(processes)
    found = " or ".join(values) + (
        "" if everywhere and not certain else f" on {places}" if not everywhere else " everywhere"
    )
    return [
        Difference(
            what=variable.name,
            found=found,
            expected=variable.value,
            why=variable.why,
            source=variable.source,
            fix=f"export {variable.name}={variable.value}",
        )
    ]


def parted(side: Side, rules: Rules) -> list[Difference]:
    """Return the variables that some workers of one run have otherwise than others."""
    found = []
    for variable in rules.variables:
        places: dict[str, list[str]] = {}
        for process in side.processes:
            if process.variables is not None:
                places.setdefault(process.variables.get(variable.name, "not set"), []).append(process.name)
        if len(places) > 1:
            said = "; ".join(f"{value} on {', '.join(names[:_RANKS])}" for value, names in sorted(places.items()))
            fix = f"export {variable.name}={variable.value} on every node before Ray is started"
            found.append(
                Difference(
                    what=variable.name,
                    found=said,
                    expected="one value on all ranks",
                    why=variable.why,
                    source=variable.source,
                    fix=fix,
                )
            )
    return found


def seeds(target: Side, golden: Side, _rules: Rules) -> CheckResult:
    """`seed_all(mode=True)` ran on every rank, with one seed on both sides."""
    title = "seed_all(mode=True) ran on every rank"
    expected = "called on each rank, mode True, one seed"
    why = "without it each rank draws its own numbers, and torch may choose algorithms that do not repeat"
    fix = f"export {_SEED} for launcher and workers: the plugin then calls it at each worker's start"
    told = [process for process in target.processes if process.seeds is not None]
    if not target.workers_known or not told:
        asked = any((p.variables or {}).get("SENTINEL_SEED_ALL", "0") not in ("", "0") for p in target.processes)
        found = f"asked for ({_SEED}); no worker has said yet that it ran" if asked else "no worker says that it ran"
        return CheckResult(
            id="determinism.seed",
            title=title,
            status=WARN if asked else UNKNOWN,
            found=found,
            expected=expected,
            fix="" if asked else fix,
            why=why,
        )
    differences = [d for process in target.processes for d in _seed(process)]
    ours, theirs = _seeds(target), _seeds(golden)
    if not differences and theirs and ours != theirs:
        differences.append(
            Difference(
                what="seed",
                found=", ".join(sorted(map(str, ours))),
                expected=", ".join(sorted(map(str, theirs))),
                fix="use one seed on both sides",
            )
        )
    return CheckResult(
        id="determinism.seed",
        title=title,
        status=worst(d.status for d in differences),
        found="; ".join(f"{d.what}: {d.found}" for d in differences)
        or f"on {len(told)} ranks, seed {next(iter(ours), 'unknown')}",
        expected=expected,
        fix=fix if differences else "",
        why=why,
        differences=tuple(differences),
    )


def _seed(process: Process) -> list[Difference]:
    said = process.seeds
    if said is None:
        return [Difference(what=process.name, found="says nothing", expected="called", status=UNKNOWN)]
    if not said.get("called"):
        return [Difference(what=process.name, found=str(said.get("why") or "not called"), expected="called")]
    if said.get("mode") is not True:
        return [Difference(what=process.name, found="mode=False, which turns determinism off", expected="mode=True")]
    return []


def _seeds(side: Side) -> set[object]:
    return {p.seeds.get("seed") for p in side.processes if p.seeds is not None and p.seeds.get("called")}
