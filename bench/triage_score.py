# SPDX-License-Identifier: Apache-2.0
"""Scores of triage, and of its peers, on the fault sets, graded by what the dump can show at the true place.

strong: at the true place at least two units of the last place in the norm (bf16; or four in max or min, which one element
decides), or ten times the noise of the healthy pair in norm, max or min (fp32); marginal: less, but not nothing; nothing: the
four statistics of the true place do not show the fault.

    python -m bench.triage_score CORPUS [--misses] [--peers]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sentinel.core.triage import compare, first_non_finite
from sentinel.core.triage.deviation import deviations
from sentinel.core.triage.outline import outline
from sentinel.core.triage.pairing import pair_up
from sentinel.daemon.calibrations import shipped
from sentinel.sources.msprobe_dump import read_dump

NOT_FINITE = ("nan", "inf", "ninf", "grad_nan", "grad_inf", "weight_nan")
LEAST_NOISE = 3e-7
ANSWERS = ("right", "parent", "wrong", "silent")


@dataclass(frozen=True)
class Case:
    """One pair with what is known about it."""

    pair: dict
    evidence: str
    """clean, strong, marginal, nothing, nonfinite, hidden (its module is not in the dump)."""
    module: str | None
    direction: str | None


def load(corpus: Path, elsewhere: Path | None = None) -> list[Case]:
    """Grade every pair of a corpus, on its own golden dumps or on those that another machine made (`elsewhere`)."""
    found = [pair for file in sorted(corpus.glob("*/pairs.json")) for pair in json.loads(file.read_text())]
    return [_graded(_across(pair, elsewhere), corpus) for pair in found if elsewhere is None or _has(pair, elsewhere)]


def _has(pair: dict, elsewhere: Path) -> bool:
    return pair["structure"] != "repeated" and (elsewhere / pair["golden"]).exists()


def _across(pair: dict, elsewhere: Path | None) -> dict:
    """The pair with golden dumps that were made on another machine."""
    if elsewhere is None:
        return pair
    calibration = [pair["calibration"][0], str(elsewhere / pair["calibration"][1])]
    return {**pair, "golden": str(elsewhere / pair["golden"]), "calibration": calibration}


def sides(corpus: Path, name: str) -> dict:
    """The dump as compare() takes it."""
    return read_dump(corpus / name).stages


def _graded(pair: dict, corpus: Path) -> Case:
    fault = pair["fault"]
    if fault is None:
        return Case(pair, "clean", None, None)
    module, direction = fault["module"], fault["direction"]
    if pair["structure"] == "fused" and module.rpartition(".")[2].startswith("act"):
        module = module.rpartition(".")[0]
    if pair["structure"] == "skipped" and module in {"lm_head", "model", "transformer"}:
        return Case(pair, "hidden", module, direction)
    if fault["kind"] in NOT_FINITE:
        return Case(pair, "nonfinite", module, direction)
    evidence = _evidence(pair, corpus, module, direction)
    if direction == "parameters" and evidence == "nothing":
        # Its four statistics are the old ones; what it computes is not.
        direction = "forward"
        evidence = _evidence(pair, corpus, module, direction)
    return Case(pair, evidence, module, direction)


def _evidence(pair: dict, corpus: Path, module: str, direction: str) -> str:
    effect = _at(corpus, pair["target"], pair["twin"], module, direction)
    if not effect:
        return "hidden"
    noise = _at(corpus, pair["twin"], pair["golden"], module, direction)
    best = "nothing"
    for key, (size, units) in effect.items():
        noise_size, noise_units = noise.get(key, (np.zeros(3), np.zeros(2)))
        if direction == "parameters":
            ratio = 10.0 if size.max() > 10 * max(noise_size.max(), LEAST_NOISE) else 0.0
        elif pair["dtype"] == "bfloat16":
            gap = np.nan_to_num(units - np.nan_to_num(noise_units, posinf=1e9), posinf=1e9)
            ratio = 10.0 if gap[0] >= 2 or gap[1] >= 4 else float(gap.max() >= 1)
        else:
            ratio = float(np.max(size[:2] / np.maximum(np.nan_to_num(noise_size[:2], posinf=1e9), LEAST_NOISE)))
        if ratio >= 10:
            return "strong"
        if ratio >= 1:
            best = "marginal"
    return best


def _at(corpus: Path, one: str, other: str, module: str, direction: str) -> dict:
    """Deviations of the rows that would show a fault of that module and direction."""
    mine, theirs = (next(iter(next(iter(sides(corpus, name).values())).values())) for name in (one, other))
    pairs = pair_up(outline(mine), outline(theirs)).pairs
    rows, keys = [], []
    for pair in pairs:
        entry = pair.target
        if entry.kind == "recompute" or entry.operation:
            continue
        for row in pair.rows:
            if _shows(entry, row[0].position, module, direction):
                rows.append(row)
                keys.append((entry.key, row[0].position))
    measured = deviations(rows)
    return {key: (np.nan_to_num(measured.size[i], posinf=1e9), measured.units[i]) for i, key in enumerate(keys)}


def _shows(entry, position: str, module: str, direction: str) -> bool:
    role = position.partition(".")[0]
    if direction == "parameters":
        return entry.module == module and role == "parameters"
    if direction == "forward":
        return entry.module == module and entry.kind == "forward" and role == "output"
    if entry.module == module and (entry.kind == "parameters_grad" or (entry.kind == "backward" and role == "output")):
        return True
    # Attention gets its inputs by keyword, so what its backward hands on shows at its last projection.
    tails = (f"{module}.o_proj", f"{module}.c_proj", f"{module}.down_proj")
    return entry.module in tails and entry.kind == "backward" and role == "input"


@dataclass(frozen=True)
class Answer:
    """What a method says: a module and a direction, or nothing."""

    module: str | None
    direction: str | None = None


Method = Callable[[Case, Path], Answer]


def ours(case: Case, corpus: Path) -> Answer:
    """Sentinel's triage with shipped tolerances."""
    return _ours(case, corpus, [])


def ours_calibrated(case: Case, corpus: Path) -> Answer:
    """Sentinel's triage with one clean pair of other weights."""
    target, golden = case.pair["calibration"]
    return _ours(case, corpus, [(sides(corpus, target), sides(corpus, golden))])


def _ours(case: Case, corpus: Path, clean: list) -> Answer:
    target = sides(corpus, case.pair["target"])
    if case.evidence == "nonfinite":
        found = first_non_finite(target)
    else:
        golden = sides(corpus, case.pair["golden"])
        found = compare(target, golden, target_step=1, golden_step=1, clean=clean, calibration=shipped())
    return Answer(None) if found.first is None else Answer(found.first.module, found.first.direction)


def judge(case: Case, answer: Answer) -> str:
    """right, parent (the module around it, or inside it), wrong, silent."""
    if answer.module is None:
        return "silent"
    if case.module is None:
        return "wrong"
    # A weight shows in its parameters, or in what it computes.
    fine = {case.direction, None} | (
        {"parameters", "forward"} if case.pair["fault"]["kind"].startswith("weight") else set()
    )
    if answer.module == case.module and answer.direction in fine:
        return "right"
    if answer.module.startswith(f"{case.module}.") or case.module.startswith(f"{answer.module}."):
        return "parent"
    return "wrong"


def score(cases: Iterable[Case], corpus: Path, method: Method) -> tuple[dict[tuple[str, str], Counter], list]:
    """Counts of answers by evidence and precision, and what was not right."""
    table: dict[tuple[str, str], Counter] = defaultdict(Counter)
    misses = []
    for case in cases:
        answer = method(case, corpus)
        verdict = judge(case, answer)
        for group in ((case.evidence, case.pair["dtype"]), (case.evidence, "all")):
            table[group][verdict] += 1
        fine = "silent" if case.evidence in {"clean", "nothing"} else "right"
        if verdict != fine:
            misses.append((case, answer, verdict))
    return table, misses


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--golden", type=Path, help="golden dumps of the same plans, made on another machine")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--calibrated", action="store_true")
    parser.add_argument("--plans", default="", help="only these, comma-separated")
    args = parser.parse_args(argv)
    cases = load(args.corpus, args.golden and args.golden.resolve())
    cases = [case for case in cases if not args.plans or case.pair["plan"] in args.plans.split(",")]
    table, misses = score(cases, args.corpus, ours_calibrated if args.calibrated else ours)
    for (evidence, dtype), counts in sorted(table.items()):
        print(f"{evidence:10} {dtype:9} {sum(counts.values()):4} " + "  ".join(f"{a} {counts[a]}" for a in ANSWERS))
    if args.misses:
        for case, answer, verdict in misses:
            fault = case.pair["fault"]
            told = f"{fault['module']}:{fault['kind']}={fault['size']:g}" if fault else "clean"
            print(
                f"{case.evidence:9} {verdict:6} {case.pair['target']:24} {case.pair['noise']:7} {case.pair['structure']:10} {told:45} -> {answer.module} {answer.direction}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
