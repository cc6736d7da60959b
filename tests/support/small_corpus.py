# SPDX-License-Identifier: Apache-2.0
"""A corpus of a few made-up runs, written in the form that `sentinel evaluate` reads."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STEPS = 30
METRICS = ("actor/grad_norm", "actor/entropy", "actor/pg_loss", "critic/score/mean", "training/rollout_probs_diff_mean")


def values_of(seed, steps=STEPS):
    """A calm run: [steps, metrics]."""
    rng = np.random.default_rng(seed)
    level = np.array([1.0, 0.5, 0.0, 0.6, 0.002])
    spread = np.array([0.1, 0.01, 0.02, 0.02, 0.0001])
    return (level + spread * rng.standard_normal((steps, len(METRICS)))).astype(np.float32)


def fault(onset=11, strength="inf"):
    return {
        "kind": "gradient_nan",
        "stage": "actor_update",
        "size": 1,
        "magnitude": "large",
        "onset": onset,
        "strength": strength,
        "visible_from": onset,
    }


def write(folder, *, spoil=None):
    """Five seeds, two clean runs, one run whose gradient norm is NaN from step 11; `spoil` edits the manifest."""
    runs, tables = [], []
    for number in range(5):
        runs.append({"id": f"seed-{number}", "group": "free-a", "role": "seed", "seed": number, "fault": None})
        tables.append(values_of(number))
    for number in range(2):
        runs.append({"id": f"clean-{number}", "group": "free-a", "role": "clean", "seed": 50 + number, "fault": None})
        tables.append(values_of(50 + number))
    broken = values_of(99)
    broken[10:, 0] = np.nan
    runs.append({"id": "fault-0", "group": "free-a", "role": "fault", "seed": 99, "fault": fault()})
    tables.append(broken)
    manifest = {
        "format": "sentinel-corpus/1",
        "split": "made-up",
        "groups": [
            {"id": "free-a", "regime": "free", "recipe": "none", "seeds": [f"seed-{n}" for n in range(5)], "twins": []}
        ],
        "runs": runs,
    }
    if spoil is not None:
        spoil(manifest)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.json").write_text(json.dumps(manifest))
    columns = {
        "run": pa.array(np.repeat(np.arange(len(tables)), STEPS).astype(np.int32)),
        "step": pa.array(np.tile(np.arange(1, STEPS + 1), len(tables)).astype(np.int32)),
    }
    whole = np.concatenate(tables)
    for place, metric in enumerate(METRICS):
        columns[metric] = pa.array(whole[:, place])
    # A metric that only every tenth step has.
    steps = columns["step"].to_numpy()
    columns["val-core/acc"] = pa.array(np.ones(len(steps), dtype=np.float32), mask=steps % 10 != 0)
    pq.write_table(pa.table(columns), folder / "runs.parquet")
    return folder
