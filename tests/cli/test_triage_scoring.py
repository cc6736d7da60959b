# SPDX-License-Identifier: Apache-2.0
"""`sentinel evaluate` on a set of dump pairs: the committed one, and what is no set."""

import json
import zipfile
from pathlib import Path

import pytest

from sentinel.cli import main
from sentinel.cli.triage_scoring import judged

SET = Path(__file__).parent.parent / "data" / "triage_pairs.zip"
TRUE = {"module": "model.layers.1.mlp", "direction": "forward", "fault": {"kind": "scale"}}


@pytest.mark.timeout(300)
def test_the_committed_pairs_are_scored_beside_msprobes_answers(capsys):
    assert main(["evaluate", str(SET), "--json"]) == 0

    triage = json.loads(capsys.readouterr().out)["triage"]
    shares = {row["evidence"]: row["wanted"]["value"] for row in triage["rows"]}
    assert shares == {"strong": 1.0, "nonfinite": 1.0, "clean": 1.0}
    assert triage["pairs"] == sum(row["pairs"] for row in triage["rows"]) == 42
    peers = {reference["name"]: reference["rows"] for reference in triage["references"]}
    assert "three times the noise" in peers
    assert set(peers) <= {"msprobe compare", "msprobe compare -da", "three times the noise"}
    for name, rows in peers.items():
        assert [(row["evidence"], row["pairs"]) for row in rows] == [
            (row["evidence"], row["pairs"]) for row in triage["rows"]
        ]
        strong = next(row for row in rows if row["evidence"] == "strong")
        assert strong["wanted"]["value"] < (0.7 if name == "three times the noise" else 0.5)


@pytest.mark.parametrize(("answer", "word"), [
    ((None, None), "silent"),
    (("model.layers.1.mlp", "forward"), "right"),
    (("model.layers.1.mlp", None), "right"),
    (("model.layers.1.mlp", "backward"), "wrong"),
    (("model.layers.1.mlp.up_proj", "forward"), "parent"),
    (("model.layers.1", "forward"), "parent"),
    (("model.layers.10.mlp", "forward"), "wrong"),
])  # fmt: skip
def test_an_answer_is_right_only_at_the_true_module_and_direction(answer, word):
    assert judged(TRUE, answer) == word


def test_a_name_on_a_clean_pair_is_wrong():
    assert judged({"module": None}, ("model", "forward")) == "wrong"


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"target": "a"}]'])
def test_a_set_whose_index_is_at_fault_is_one_line(tmp_path, capsys, text):
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.writestr("index.json", text)

    assert main(["evaluate", str(tmp_path / "set.zip")]) == 2
    assert capsys.readouterr().err.strip().count("\n") == 0
