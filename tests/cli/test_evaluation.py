# SPDX-License-Identifier: Apache-2.0
"""`sentinel evaluate` runs the live engine over a corpus and says how well it did, beside the reference detectors."""

import json

import pytest

from sentinel.cli import main
from sentinel.cli.scoring import Options, evaluate, limited
from sentinel.storage.corpus import read_corpus
from tests.support import small_corpus

pytestmark = pytest.mark.timeout(60)


def evaluated(folder, capsys, *options):
    code = main(["evaluate", str(folder), "--json", "--jobs", "1", *options])
    return code, json.loads(capsys.readouterr().out)


def test_the_document_has_the_rows_and_references_of_the_contract(tmp_path, capsys):
    code, document = evaluated(small_corpus.write(tmp_path), capsys)

    assert code == 0
    row = document["rows"][0]
    assert (row["regime"], row["strength"], row["faults"], row["clean_steps"]) == ("free", "strong", 1, 60)
    assert row["recall"]["value"] == 1
    assert row["delay"]["median"]["value"] == 0
    assert row["stage_top1"]["value"] == 1
    assert {"NaN only", "ZClip 2.5", "verl FAQ 0.01", "msprobe Turbulence 0.5"} <= {
        reference["name"] for reference in document["references"]
    }


def test_a_reference_detector_is_scored_on_the_same_runs_and_names_no_stage(tmp_path, capsys):
    _, document = evaluated(small_corpus.write(tmp_path), capsys)

    nan_only = next(reference for reference in document["references"] if reference["name"] == "NaN only")
    assert nan_only["rows"][0]["recall"]["value"] == 1
    assert nan_only["rows"][0]["false_alarms"]["value"] == 0
    assert nan_only["rows"][0]["stage_top1"] is None


def test_details_tell_of_each_run_when_which_stage_and_why(tmp_path, capsys):
    _, document = evaluated(small_corpus.write(tmp_path), capsys, "--details")

    run = next(run for run in document["runs"] if run["run"] == "fault-0")
    assert run["alarms"][0]["step"] == 11
    assert run["alarms"][0]["stages"][0] == "actor_update"
    assert "actor/grad_norm" in run["alarms"][0]["because"]
    assert run["fault"]["class"] == "strong"
    assert {curve["name"] for curve in document["curves"]} == {r["name"] for r in document["references"]}


def test_several_processes_come_to_the_same_answer_as_one(tmp_path):
    corpus = read_corpus(small_corpus.write(tmp_path))

    one, two = evaluate(corpus, Options(jobs=1)), evaluate(corpus, Options(jobs=2))

    assert one.outcomes == two.outcomes
    assert [row.recall for row in one.rows] == [row.recall for row in two.rows]


def test_seeds_and_twins_can_be_left_out(tmp_path):
    def spoil(manifest):
        manifest["groups"][0] |= {"seeds": ["seed-0", "seed-1"], "twins": ["seed-2", "seed-3"]}

    group = read_corpus(small_corpus.write(tmp_path, spoil=spoil)).groups[0]

    assert [run.source for run in limited(group, Options(seeds=1, twins=False)).runs] == ["seed-0"]
    assert len(limited(group, Options()).runs) == 4


def test_people_get_tables(tmp_path, capsys):
    assert main(["evaluate", str(small_corpus.write(tmp_path)), "--jobs", "1"]) == 0

    text = capsys.readouterr().out
    assert "recall" in text
    assert "NaN only" in text


def test_no_corpus_is_one_line_and_exit_2(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path)]) == 2

    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_regime_that_the_corpus_has_not_gives_no_rows(tmp_path, capsys):
    code, document = evaluated(small_corpus.write(tmp_path), capsys, "--regime", "replayed")

    assert (code, document["rows"]) == (0, [])
