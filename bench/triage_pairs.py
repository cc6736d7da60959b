# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/triage_pairs.zip: a compact part of the fault sets, each plan clean, broken forward, backward and by NaN.

python -m bench.triage_pairs CORPUS GOLDEN_OF_ANOTHER_MACHINE
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

from bench.triage_score import Case, load

TARGET = Path(__file__).parent.parent / "tests" / "data" / "triage_pairs.zip"
KEPT = ("dense-fp32", "dense-bf16", "gpt2-fp32", "tied-bf16", "moe-fp32", "experts-bf16")


def main() -> int:
    corpus, elsewhere = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    chosen = [(case, corpus) for case in _chosen(load(corpus), own=True)]
    chosen += [(case, corpus) for case in _chosen(load(corpus, elsewhere), own=False)]
    index, written = [], set()
    with zipfile.ZipFile(TARGET, "w", zipfile.ZIP_LZMA) as archive:
        for case, _ in chosen:
            names = []
            for side in ("target", "golden"):
                source = corpus / case.pair[side]
                name = f"{'h200/' if source.is_relative_to(elsewhere) else ''}{source.parent.name}/{source.name}"
                names.append(name)
                for file in ("dump.json", "construct.json"):
                    member = f"{name}/rank0/{file}"
                    if member not in written:
                        written.add(member)
                        text = json.dumps(json.loads((source / "rank0" / file).read_text()), separators=(",", ":"))
                        archive.writestr(zipfile.ZipInfo(member), text, zipfile.ZIP_LZMA)
            index.append(
                {
                    "target": names[0],
                    "golden": names[1],
                    "evidence": case.evidence,
                    "module": case.module,
                    "direction": case.direction,
                    "fault": case.pair["fault"],
                    "noise": case.pair["noise"],
                    "structure": case.pair["structure"],
                }
            )
        archive.writestr(zipfile.ZipInfo("index.json"), json.dumps(index, indent=1), zipfile.ZIP_LZMA)
    print(f"{len(index)} pairs, {TARGET.stat().st_size} bytes in {TARGET}")
    return 0


def _chosen(cases: list[Case], *, own: bool) -> list[Case]:
    kept: list[Case] = []
    for plan in KEPT:
        mine = [
            case
            for case in cases
            if case.pair["plan"] == plan and case.pair["structure"] in {"plain", "recomputed", "renamed"}
        ]
        clean = [
            case for case in mine if case.evidence == "clean" and case.pair["noise"] == ("kernel" if own else "same")
        ]
        strong = [case for case in mine if case.evidence == "strong"]
        small = [
            case
            for case in strong
            if case.pair["fault"]["kind"].endswith("scale") and case.pair["fault"]["size"] <= 1.1
        ]
        kept += clean[:1]
        kept += [case for case in small if case.direction == "forward"][-1 if own else 1 :][:1]
        if own:
            kept += [case for case in strong if case.direction == "backward" and case.pair["fault"]["size"] < 1.2][:1]
            kept += [case for case in strong if case.direction == "parameters"][:1]
            kept += [case for case in mine if case.evidence == "nonfinite" and case.direction == "backward"][:1]
    return kept


if __name__ == "__main__":
    sys.exit(main())
