# SPDX-License-Identifier: Apache-2.0
"""The corpora in the repository are what the plan says, and their strengths are the definition's."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("torch", reason="the plan names the trainer, which is torch's")

from bench.corpus import plan
from bench.corpus.strength import clean_band, strength

DATA = Path(__file__).parents[2] / "bench" / "corpus" / "data"

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", params=["tuning", "validation"])
def split(request):
    folder = DATA / request.param
    manifest = json.loads((folder / "corpus.json").read_text())
    table = pq.read_table(folder / "runs.parquet")
    return request.param, manifest, table


def test_every_run_is_planned_with_its_fault_and_seed(split):
    name, manifest, _ = split
    planned = {run.id: run for run in plan.runs(name)}

    assert {entry["id"] for entry in manifest["runs"]} == set(planned)
    for entry in manifest["runs"]:
        run = planned[entry["id"]]
        assert entry["seed"] == run.seed
        told = entry["fault"] and (entry["fault"]["kind"], entry["fault"]["size"], entry["fault"]["onset"])
        assert told == (run.fault and (run.fault.kind, run.fault.size, run.fault.onset))


def test_every_run_has_all_its_steps(split):
    name, manifest, table = split
    planned = {run.id: run for run in plan.runs(name)}

    owners, steps = table["run"].to_numpy(), table["step"].to_numpy()

    for number, entry in enumerate(manifest["runs"]):
        assert steps[owners == number].tolist() == list(range(1, planned[entry["id"]].steps + 1))


def test_the_strengths_are_the_definitions(split):
    _, manifest, table = split
    metrics = [name for name in table.column_names if name not in ("run", "step")]
    values = np.stack([table[name].to_numpy(zero_copy_only=False).astype(float) for name in metrics], 1)
    owners = table["run"].to_numpy()
    for group in manifest["groups"]:
        members = [(n, entry) for n, entry in enumerate(manifest["runs"]) if entry["group"] == group["id"]]
        band = clean_band(metrics, np.array([values[owners == n] for n, entry in members if entry["fault"] is None]))
        for number, entry in members:
            if entry["fault"] is None:
                continue
            fault = entry["fault"]
            size, seen = strength(values[owners == number], band, fault["stage"], fault["onset"])
            # The builder computes in double precision, the table holds single: a step at the border may move.
            assert size == pytest.approx(float(fault["strength"]), rel=1e-2, abs=1e-2), entry["id"]
            assert seen == fault["visible_from"] or abs((seen or 0) - (fault["visible_from"] or 0)) <= 2


@pytest.mark.parametrize("regime", ["replayed", "free"])
def test_the_validation_split_is_large_enough(regime):
    manifest = json.loads((DATA / "validation" / "corpus.json").read_text())
    groups = {group["id"] for group in manifest["groups"] if group["regime"] == regime}
    mine = [entry for entry in manifest["runs"] if entry["group"] in groups]

    assert sum(80 for entry in mine if entry["role"] == "clean") >= 10_000
    assert sum(float(entry["fault"]["strength"]) > 3 for entry in mine if entry["fault"]) >= 150
    assert {entry["kernel"]["device"] for entry in mine if entry["role"] == "clean"} == {"cpu", "cuda"}
