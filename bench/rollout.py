# SPDX-License-Identifier: Apache-2.0
"""Rollout text: how many rows of the labelled set are judged right, and how fast on one core.

The set is tests/data/rollout_text/labelled.jsonl.gz (`bench/rollout_text/build.py` made it). Thresholds were chosen on the split
`tune`; `held` has word lists, sentences and seeds of its own.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from sentinel.cli.text_scoring import score_texts
from sentinel.core.rollout.rows import judge_step
from sentinel.sources.rollout_text import Notices, read_rollouts
from sentinel.storage.text_set import read_text_set

SET = Path(__file__).parents[1] / "tests" / "data" / "rollout_text" / "labelled.jsonl.gz"
ROW_BYTES = 1000
ROWS = 4000
STEP_SECONDS, STEP_ROWS = 30.0, 1000


def run() -> list[dict]:
    """Rows for the bench's table."""
    rows = read_text_set(SET)
    text = score_texts(rows)
    out = [
        {
            "name": f"rows judged right, split {split}",
            "value": 100 * found["value"],
            "unit": "%",
            "limit": 99.0,
            "at_least": True,
            "peer": f"95 %: {100 * found['low']:.2f} to {100 * found['high']:.2f}",
        }
        for split, found in text["right"].items()
    ]
    out.append(
        {
            "name": f"healthy files of 25 rows called broken, of {text['healthy_files']}",
            "value": text["healthy_files_called_broken"],
            "unit": "files",
            "limit": 0,
        }
    )
    return out + _speed([row.output for row in rows if row.label == "ok" and len(row.output) > 100])


def _speed(texts: list[str]) -> list[dict]:
    """Read and judge a file of healthy rows of 1 kB: healthy text passes every test, so it is the slowest."""
    joined = "\n".join(texts)
    step = len(joined) // ROWS or 1
    starts = (at * step % len(joined) for at in range(ROWS))
    parts = ((joined[start:] + joined)[:ROW_BYTES].encode()[:ROW_BYTES] for start in starts)
    outputs = [part.decode("utf-8", "ignore") for part in parts]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "1.jsonl"
        lines = (
            json.dumps({"input": "q", "output": out, "score": 1.0, "step": 1}, ensure_ascii=False) for out in outputs
        )
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        size, best = path.stat().st_size, float("inf")
        for _ in range(3):
            began = time.process_time()
            for part in read_rollouts(path, Notices()):
                judge_step(part.step, part.rows)
            best = min(best, time.process_time() - began)
    return [
        {"name": "text judged, one core", "value": size / best / 1e6, "unit": "MB/s", "limit": 5, "at_least": True},
        {
            "name": "rows of 1 kB, one core",
            "value": ROWS / best,
            "unit": "rows/s",
            "limit": 5000,
            "at_least": True,
        },
        {
            "name": "live check of 1,000 rows of 1 kB a step, 30 s a step, of a core",
            "value": 100 * STEP_ROWS * best / ROWS / STEP_SECONDS,
            "unit": "%",
            "limit": 2.0,
        },
    ]
