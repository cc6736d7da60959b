# SPDX-License-Identifier: Apache-2.0
"""Makes sentinel/data/triage_calibration.json out of clean pairs, none of which has the weights or rows of the scored pairs.

python -m bench.triage_corpus clean CLEAN                                    pairs of other kernels, seeds 2 to 6
python -m bench.triage_calibration CLEAN CORPUS GOLDEN_OF_ANOTHER_MACHINE    and those across hardware, of the other seed
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.triage_score import sides
from sentinel.core.triage.calibration import Calibration, calibrate, calibration_to_plain, together
from sentinel.core.triage.sides import Side

TARGET = Path(__file__).parent.parent / "sentinel" / "data" / "triage_calibration.json"


def main() -> int:
    clean, corpus, elsewhere = (Path(part).resolve() for part in sys.argv[1:4])
    learnt = together(calibrate(pair) for pair in _pairs(clean, corpus, elsewhere))
    # The walk's own factors cover these pairs; only how rows deviate together is counted here.
    plain = calibration_to_plain(Calibration({}, learnt.noise, learnt.pairs))
    head = json.dumps({"pairs": plain["pairs"], "widened": []}, indent=1).removesuffix("\n}")
    rows = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in plain["noise"])
    TARGET.write_text(f'{head},\n "noise": [\n  {rows}\n ]\n}}\n', encoding="utf-8")
    print(
        f"{learnt.pairs} clean pairs, {len(learnt.noise.seen)} kinds of rows, {TARGET.stat().st_size} bytes in {TARGET}"
    )
    return 0


def _pairs(clean: Path, corpus: Path, elsewhere: Path) -> Iterator[tuple[Side, Side]]:
    for file in sorted(clean.glob("*/pairs.json")):
        for pair in json.loads(file.read_text()):
            yield sides(clean, pair["target"]), sides(clean, pair["golden"])
    seen = set()
    for file in sorted(corpus.glob("*/pairs.json")):
        for pair in json.loads(file.read_text()):
            target, golden = pair["calibration"]
            if target not in seen and (elsewhere / golden).exists():
                seen.add(target)
                yield sides(corpus, target), sides(elsewhere, golden)


if __name__ == "__main__":
    sys.exit(main())
