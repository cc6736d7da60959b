# SPDX-License-Identifier: Apache-2.0
"""A corpus is read as groups with a reference each; a damaged one is refused in one line."""

import json
import math

import pytest

from sentinel.errors import UnreadableLog
from sentinel.storage.corpus import read_corpus
from tests.support import small_corpus


def test_the_reference_is_never_among_the_runs_to_be_judged(tmp_path):
    group = read_corpus(small_corpus.write(tmp_path)).groups[0]

    assert [run.source for run in group.reference.runs] == [f"seed-{n}" for n in range(5)]
    assert [run.id for run in group.judged] == ["clean-0", "clean-1", "fault-0"]


def test_absent_stays_absent_and_nan_stays_nan(tmp_path):
    run = read_corpus(small_corpus.write(tmp_path)).groups[0].judged[2]

    assert [reading.step for reading in run.readings] == list(range(1, 31))
    assert "val-core/acc" not in run.readings[8].metrics
    assert run.readings[9].metrics["val-core/acc"] == 1.0
    assert math.isfinite(run.readings[9].metrics["actor/grad_norm"])
    assert math.isnan(run.readings[10].metrics["actor/grad_norm"])


def test_a_fault_comes_with_its_strength_and_a_clean_run_with_none(tmp_path):
    judged = read_corpus(small_corpus.write(tmp_path)).groups[0].judged

    assert judged[0].fault is None
    assert judged[2].fault is not None
    assert judged[2].fault.strength == math.inf
    assert (judged[2].fault.stage, judged[2].fault.onset) == ("actor_update", 11)


def test_the_twins_of_a_group_are_marked(tmp_path):
    def spoil(manifest):
        manifest["groups"][0] |= {"regime": "replayed", "seeds": ["seed-0"], "twins": ["seed-1", "seed-2"]}

    reference = read_corpus(small_corpus.write(tmp_path, spoil=spoil)).groups[0].reference

    assert [run.twin for run in reference.runs] == [False, True, True]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda manifest: manifest.update(format="sentinel-corpus/9"),
        lambda manifest: manifest.pop("groups"),
        lambda manifest: manifest["groups"][0]["seeds"].append("nobody"),
        lambda manifest: manifest["runs"].append({"id": "x", "group": "free-a", "role": "clean", "fault": None}),
        lambda manifest: manifest["runs"][7]["fault"].pop("onset"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused_in_one_line(tmp_path, spoil):
    with pytest.raises(UnreadableLog) as refused:
        read_corpus(small_corpus.write(tmp_path, spoil=spoil))

    assert "\n" not in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_a_folder_without_a_corpus_is_refused(tmp_path):
    with pytest.raises(UnreadableLog, match=r"corpus\.json"):
        read_corpus(tmp_path)


def test_a_table_that_is_no_parquet_is_refused(tmp_path):
    small_corpus.write(tmp_path)
    (tmp_path / "runs.parquet").write_bytes(b"not a table")

    with pytest.raises(UnreadableLog, match="Parquet"):
        read_corpus(tmp_path)


def test_a_manifest_that_is_no_json_is_refused(tmp_path):
    small_corpus.write(tmp_path)
    (tmp_path / "corpus.json").write_text(json.dumps([1]))

    with pytest.raises(UnreadableLog, match="format"):
        read_corpus(tmp_path)
