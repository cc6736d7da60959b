# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/hardware.md and docs/safety.md, made of what the runs left in results/ and data/."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np

from . import calibration, overhead, seeds

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
NONE = "None was run so far."


def results() -> list[dict]:
    """What was said of every run."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((HERE / "results").glob("*.json"))]


def judged(result: dict) -> dict:
    """Planted against found."""
    incidents = sorted(result["incidents"], key=lambda i: (i["opened_at_step"], i["severity"] != "critical"))
    first = incidents[0] if incidents else None
    place = ((first or {}).get("triage") or {}).get("first") or {}
    receipt = (first or {}).get("receipt") or {}
    stage = first and (place.get("stage") or first["stage"])
    answers = {result["stage"], *result["also"]}
    dumped = bool(receipt.get("bytes"))
    return {
        "found": first is not None,
        "stage": stage,
        "stage_right": bool(first) and (first["stage"] in answers or stage in answers),
        "module": place.get("module"),
        "module_right": place.get("module") == result["module"],
        "dumpable": result["module"] is not None and result["stage"] != "rollout",
        "step": first and first["opened_at_step"],
        "late": first and first["opened_at_step"] - result["step"],
        "next_step": receipt.get("first_step") == first["opened_at_step"] + 1 if first and dumped else None,
        "bytes": receipt.get("bytes"),
        "seconds": receipt.get("seconds"),
        "because": first and first["because"],
    }


def planted_table(found: list[dict]) -> str:
    """One line a planted fault."""
    lines = [
        "| planted in | what | since step | said: stage | module | at step | dumped at N+1 | cost of the dump |",
        "|---|---|---|---|---|---|---|---|",
    ]
    planted = [result for result in found if result["stage"] is not None]
    if not planted:
        return NONE
    for result in planted:
        said = judged(result)
        module = f" `{result['module']}`" if result["module"] else ""
        mark = "" if said["stage_right"] else " **wrong**"
        named = "-" if not said["module"] else f"`{said['module']}`{'' if said['module_right'] else ' **wrong**'}"
        cost = "-" if not said["bytes"] else f"{said['bytes'] / 1e6:.1f} MB, {said['seconds']:.1f} s"
        dumped = {True: "yes", False: "no", None: "-"}[said["next_step"]]
        lines.append(
            f"| {result['stage']}{module} | {result['what']} | {result['step']} | {said['stage'] or '**nothing**'}{mark} | {named} "
            f"| {said['step'] or '-'} | {dumped} | {cost} |"
        )
    return "\n".join(lines)


def healthy_table(found: list[dict]) -> str:
    """One line a healthy run."""
    lines = [
        "| run on the CPU | against | regime | steps | false alarms | seconds a step |",
        "|---|---|---|---|---|---|",
    ]
    healthy = [result for result in found if result["stage"] is None]
    if not healthy:
        return NONE
    for result in healthy:
        alarms = "; ".join(f"step {i['opened_at_step']}: {i['because']}" for i in result["incidents"]) or "0"
        regime = "replayed" if result["replayed"] else "free"
        lines.append(
            f"| {result['name']} | {result['bundle']} | {regime} | {result['steps']} | {alarms} | {result['step_seconds']:.2f} |"
        )
    return "\n".join(lines)


def calibration_table(rows: list[dict]) -> str:
    """One line for each recipe, pair and metric."""
    stretches = " | ".join(f"steps {a}" if a == b else f"{a}-{b}" for a, b in calibration.STEPS)
    lines = [
        f"| recipe | pair | metric | {stretches} | 99 % below | largest |",
        "|---|---|---|" + "---|" * (len(calibration.STEPS) + 2),
    ]
    for row in rows:
        medians = " | ".join("-" if m is None else f"{m:.0e}" for m in row["medians"])
        lines.append(
            f"| {row['recipe']} | {row['pair']} | `{row['metric']}` | {medians} | {row['p99']:.0e} | {row['largest']:.0e} |"
        )
    return "\n".join(lines)


def chaos_table(runs: list[dict]) -> str:
    """What was injected how often, in verl runs and in plain loops."""
    verl, loops = ([run for run in runs if (run.get("kind") == "loop") is loop] for loop in (False, True))
    kinds = [Counter(), Counter()]
    for counts, some in zip(kinds, (verl, loops), strict=True):
        for run in some:
            counts.update(run["injected"])
    lines = ["| injected | in verl runs | in plain loops |", "|---|---|---|"]
    lines += [f"| {kind} | {kinds[0][kind]} | {kinds[1][kind]} |" for kind in sorted({**kinds[0], **kinds[1]})]
    said = [
        words
        for some, what in ((verl, "real verl runs"), (loops, "plain training loops"))
        if (words := chaos_words(some, what))
    ]
    return "\n\n".join([*said, "\n".join(lines)])


def chaos_sums(runs: list[dict]) -> dict[str, float]:
    """The sums of some runs."""
    return {
        "runs": len(runs),
        "steps": sum(run["steps"] for run in runs),
        "injections": sum(run["injections"] for run in runs),
        "failures": sum(bool(run["failure"]) for run in runs),
        "differences": sum(run["differences"] for run in runs),
        "worst_wait": max((run["worst_wait"] or 0.0 for run in runs), default=0.0),
        "waits": sum(run["waits"] for run in runs),
        "counted": sum(run["waits"] for run in runs if "over_bound" in run),
        "over_bound": sum(run.get("over_bound", 0) for run in runs),
    }


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between the marks of `name`."""
    whole = page.read_text(encoding="utf-8")
    made, count = re.subn(
        rf"(<!-- made: {name} -->\n).*?(\n<!-- end: {name} -->)", lambda m: m[1] + text + m[2], whole, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"{page} holds {count} times the marks of {name}")
    page.write_text(made, encoding="utf-8")


def noise_table() -> str:
    """One line for each precision, stage, direction and class of module."""
    path = HERE / "data" / "noise.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    lines = [
        "| precision | stage | direction | class | rows | equal | median | 99 % below | largest |",
        "|" + "---|" * 9,
    ]
    for precision, rows in known.items():
        for row in rows:
            lines.append(
                f"| {precision} | {row['stage']} | {row['direction']} | {row['class']} | {row['rows']} | {row['equal']:.0%} "
                f"| {row['median']:.0e} | {row['p99']:.0e} | {row['largest']:.0e} |"
            )
    return "\n".join(lines)


def chaos_words(runs: list[dict], what: str) -> str:
    """The sums in one sentence; empty where there are none."""
    if not runs:
        return ""
    sums = chaos_sums(runs)
    return (
        f"**{sums['injections']} injections in {sums['runs']} {what} ({sums['steps']} steps): {sums['failures']} training failures, "
        f"{sums['differences']} differing values, longest of {sums['waits']} waits {sums['worst_wait'] * 1e3:.0f} ms.** "
        + _over(sums)
    )


def _over(sums: dict[str, float]) -> str:
    """How many waits passed the bound; runs from before that was counted slept the whole bound, and are known by their longest wait alone."""
    if not sums["counted"]:
        return "The bound is 50 ms; what is above it is the time that a busy machine takes to run a thread again."
    return (
        f"The bound is 50 ms. Since a boundary sleeps only nine tenths of it, {sums['over_bound']} of {sums['counted']} waits passed it; "
        "before, the longest wait of every run did, by what a busy machine takes to run a thread again."
    )


def rows(found: list[dict]) -> list[dict]:
    """Planted and healthy runs as numbers with their limits."""
    planted = [judged(result) for result in found if result["stage"] is not None]
    healthy = [result for result in found if result["stage"] is None]
    dumpable = [one for one in planted if one["dumpable"]]
    captured = [one for one in planted if one["next_step"] is not None]
    return [
        {"name": "planted faults on the CPU against the H200's bundle", "value": len(planted), "unit": "", "limit": 12, "at_least": True},
        {"name": "stage right, of all", "value": _share(planted, "stage_right"), "unit": "", "limit": 11 / 12, "at_least": True},
        {"name": "module right, where a dump can show it", "value": _share(dumpable, "module_right"), "unit": "", "limit": 10 / 12, "at_least": True},
        {"name": "dumped at N+1, of the captures", "value": _share(captured, "next_step"), "unit": "", "limit": 1.0, "at_least": True},
        {"name": "healthy live steps on the CPU", "value": sum(r["steps"] for r in healthy), "unit": "steps"},
        {"name": "false alarms in them", "value": sum(len(r["incidents"]) for r in healthy), "unit": "", "limit": 1},
    ]  # fmt: skip


def crossed_rows(found: list[dict], again: list[dict]) -> list[dict]:
    """Healthy steps that other hardware judged: live on the CPU, and finished runs of either side by the other's."""
    live = [result for result in found if result["stage"] is None]
    # What ran live is judged again as well, and not counted twice.
    names = {f"CPU {result['name']}" for result in live}
    other = [row for row in again if seeds.crossed(row) and row["run"] not in names]
    verl = sum(r["steps"] for r in live) + sum(r["steps"] for r in other if "clean" not in r["run"])
    steps = sum(r["steps"] for r in live) + sum(r["steps"] for r in other)
    alarms = sum(len(r["incidents"]) for r in live) + sum(len(r["alarms"]) for r in other)
    return [
        {"name": "healthy steps across two kinds of hardware", "value": steps, "unit": "steps", "limit": 2000, "at_least": True},
        {"name": "of them of verl", "value": verl, "unit": "steps"},
        {"name": "false alarms in all of them", "value": alarms, "unit": "", "limit": 1},
    ]  # fmt: skip


def _share(found: list[dict], what: str) -> float | None:
    return sum(bool(one[what]) for one in found) / len(found) if found else None


def chaos_rows(runs: list[dict]) -> list[dict]:
    """The chaos suite's numbers with their limits."""
    sums = chaos_sums(runs)
    verl = chaos_sums([run for run in runs if run.get("kind") != "loop"])
    return [
        {"name": "chaos: injections, verl runs and plain loops", "value": sums["injections"], "unit": "", "limit": 300, "at_least": True},
        {"name": "chaos: of them in verl runs", "value": verl["injections"], "unit": "", "limit": 300, "at_least": True},
        {"name": "chaos: training failures", "value": sums["failures"], "unit": "", "limit": 0},
        {"name": "chaos: differing values", "value": sums["differences"], "unit": "", "limit": 0},
        {"name": "chaos: longest wait", "value": sums["worst_wait"], "unit": "s"},
    ]  # fmt: skip


def overhead_table() -> str:
    """Step times with Sentinel on and off, one line a machine."""
    found = overhead.watching(HERE / "data")
    if not found:
        return NONE
    lines = [
        "| on | pairs of runs | steps watched / unwatched | step, median | step time, ratio (95 % interval) | inside Sentinel: median | 99 % below | of the step: median | 99 % below |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for label, cost in found.items():
        value, low, high = cost.ratio
        lines.append(
            f"| {label} | {cost.pairs} | {cost.watched} / {cost.unwatched} | {cost.step:.2f} s | {value:.4f} ({low:.4f}-{high:.4f}) "
            f"| {np.median(cost.inside) * 1e3:.2f} ms | {np.quantile(cost.inside, 0.99) * 1e3:.1f} ms "
            f"| {np.median(cost.shares):.2%} | {np.quantile(cost.shares, 0.99):.2%} |"
        )
    return "\n".join(lines)


def overhead_rows() -> list[dict]:
    """The same beside its limits."""
    rows = []
    for label, cost in overhead.watching(HERE / "data").items():
        _, low, high = cost.ratio
        rows += [
            {"name": f"watched over unwatched on {label}, 95 % interval from", "value": low, "unit": "", "limit": 0.99, "at_least": True},
            {"name": f"watched over unwatched on {label}, 95 % interval to", "value": high, "unit": "", "limit": 1.01},
            {"name": f"inside Sentinel on {label}, share of the step: median", "value": float(np.median(cost.shares)), "unit": "", "limit": 0.002},
            {"name": f"inside Sentinel on {label}, share of the step: p99", "value": float(np.quantile(cost.shares, 0.99)), "unit": "", "limit": 0.02},
        ]  # fmt: skip
    return rows


def capture_costs() -> str:
    """What dumping one step costs, by level, with Sentinel's captures and with msprobe as verl itself offers it."""
    paths = sorted((HERE / "data").glob("captures-*.json"))
    if not paths:
        return NONE
    lines = ["| on | level | by | step | added by the dump | bytes |", "|---|---|---|---|---|---|"]
    for path in paths:
        for name, cost in json.loads(path.read_text(encoding="utf-8")).items():
            level, by = name.split(" ")
            lines.append(
                f"| {path.stem.removeprefix('captures-')} | {level} | {'verl + msprobe' if by == 'by-hand' else 'Sentinel'} "
                f"| {cost['step']:.2f} s | {cost['added']:.2f} s | {cost['bytes'] / 1e6:.2f} MB |"
            )
    return "\n".join(lines)
