# SPDX-License-Identifier: Apache-2.0
"""How far clean repeats part: per metric and step, between the GPU's own twins and between the GPU and this CPU.

Same rollouts, same starting weights; another attention kernel, another micro-batch split, or another machine. A difference is a share
of the reference's value; metrics that are zero in exact arithmetic have no share and are left out.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

from sentinel.storage.bundle import open_bundle

from .bundles import EXAMPLES

HERE = Path(__file__).parent
BUNDLES = {path.stem: path for folder in (EXAMPLES, HERE / "data") for path in sorted(folder.glob("*.sentinel"))}
METRICS = (
    "critic/score/mean", "response_length/mean", "actor/entropy", "actor/grad_norm", "actor/pg_loss", "actor/kl_loss",
    "training/rollout_probs_diff_mean", "rollout_corr/kl", "critic/values/mean", "critic/vf_loss", "critic/grad_norm",
)  # fmt: skip
STEPS = ((1, 1), (2, 5), (6, 20), (21, 60), (61, 120))
SAME_TEXTS = (("tiny-grpo-fp32", "cpu-free-42.jsonl", 1), ("tiny-gae-bf16", "cpu-gae-bf16-42.jsonl", 3))
LEAST = 1e-7
"""Values of the reference below this are zero: their share of it means nothing."""
Series = dict[int, dict[str, float]]


def series_of(bundle: Path) -> tuple[Series, dict[str, Series]]:
    """The reference of a bundle, and its twins by name."""
    reference, twins = None, {}
    for run in open_bundle(bundle).reference().runs:
        found = {reading.step: dict(reading.metrics) for reading in run.readings}
        if run.twin:
            twins[Path(run.source).stem] = found
        elif reference is None:
            reference = found
    assert reference is not None
    return reference, twins


def of_this_machine(bundle: str) -> Iterator[tuple[str, Series]]:
    """Healthy replays on this CPU of that bundle's rollouts."""
    for path in sorted((HERE / "results").glob("healthy-replay-*.jsonl")):
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if about["bundle"] == bundle:
            lines = path.read_text(encoding="utf-8").splitlines()
            yield f"CPU, {about['attention']}", {row["step"]: row["data"] for row in map(json.loads, lines)}


def same_texts(bundle: str) -> Iterator[tuple[str, Series]]:
    """The first steps of free runs of the reference's seed on this CPU, as long as they wrote the same texts."""
    for name, file, last in SAME_TEXTS:
        if name == bundle:
            lines = (HERE / "data" / file).read_text(encoding="utf-8").splitlines()
            yield "CPU, same seed", {row["step"]: row["data"] for row in map(json.loads, lines) if row["step"] <= last}


def shares(one: Mapping[int, Mapping[str, float]], other: Series, metric: str, first: int, last: int) -> list[float]:
    """Differences as shares of the reference's value, for the steps of both runs."""
    found = []
    for step in range(first, last + 1):
        a, b = one.get(step, {}).get(metric), other.get(step, {}).get(metric)
        if a is not None and b is not None and abs(a) >= LEAST:
            found.append(abs(a - b) / abs(a))
    return found


def table() -> list[dict]:
    """One row for each recipe, pair and metric: the median share in each stretch of steps, and the largest of all."""
    rows = []
    for name, path in BUNDLES.items():
        reference, twins = series_of(path)
        for pair, series in (*twins.items(), *of_this_machine(name), *same_texts(name)):
            for metric in METRICS:
                stretches = [shares(reference, series, metric, first, last) for first, last in STEPS]
                every = [share for stretch in stretches for share in stretch]
                if every:
                    rows.append(
                        {
                            "recipe": name, "pair": pair, "metric": metric, "steps": len(every),
                            "medians": [statistics.median(s) if s else None for s in stretches],
                            "p99": sorted(every)[min(len(every) - 1, int(0.99 * len(every)))], "largest": max(every),
                        }
                    )  # fmt: skip
    return rows
