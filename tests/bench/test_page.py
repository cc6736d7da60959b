# SPDX-License-Identifier: Apache-2.0
"""The page of the docs says what the score says: table, curves, delays, misses with their reason."""

import json
from xml.etree import ElementTree as ET

import pytest

from bench.corpus import page, plots
from sentinel.cli import main
from tests.support import small_corpus

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def score(tmp_path, capsys):
    def spoil(manifest):
        # A fault that no run shows: it can only be missed.
        manifest["runs"][6] |= {"role": "fault", "fault": small_corpus.fault(strength=4.0) | {"kind": "unseen"}}

    folder = small_corpus.write(tmp_path / "corpus", spoil=spoil)
    assert main(["evaluate", str(folder), "--json", "--details", "--jobs", "1"]) == 0
    path = tmp_path / "score.json"
    path.write_text(capsys.readouterr().out)
    return path


def test_the_page_has_the_table_the_plots_and_every_miss_with_its_reason(score, tmp_path):
    page.write(score, tmp_path / "docs")

    text = (tmp_path / "docs" / "evaluation.md").read_text()
    assert "| free | strong | 1 | 100.0 %" in text
    assert "| free | medium | 1 | 0.0 %" in text
    assert "evaluation/roc_free.svg" in text
    missed = next(line for line in text.splitlines() if line.startswith("| clean-1 | unseen"))
    assert "nearest of its stage" in missed
    assert "replayed |" not in text


def test_the_score_without_twins_makes_a_second_table(score, tmp_path):
    page.write(score, tmp_path / "docs", bare=score)

    text = (tmp_path / "docs" / "evaluation.md").read_text()
    assert text.count("| free | strong | 1 |") == 2
    assert "Without twins, with one seed" in text


def test_variants_of_the_engine_stand_side_by_side(score, tmp_path):
    rows = json.loads(score.read_text())["rows"]
    (tmp_path / "variants.json").write_text(json.dumps({"as shipped": rows, "without the e-detector": rows}))

    page.write(score, tmp_path / "docs", variants=tmp_path / "variants.json")

    lines = (tmp_path / "docs" / "evaluation.md").read_text().splitlines()
    (shipped,) = [line for line in lines if line.startswith("| free | as shipped |")]
    assert "100.0 %" in shipped
    assert any(line.startswith("| free | without the e-detector |") for line in lines)


def test_the_plots_are_well_formed_and_name_every_line(score, tmp_path):
    page.write(score, tmp_path / "docs")

    for name in ("roc_free", "delay_free"):
        ET.parse(tmp_path / "docs" / "evaluation" / f"{name}.svg")
    curves = (tmp_path / "docs" / "evaluation" / "roc_free.svg").read_text()
    assert "Sentinel" in curves
    assert "ZClip 2.5" in curves


def test_each_fault_is_in_one_bar(score):
    drawn = page.delays(json.loads(score.read_text()), "free")

    heights = [float(rect.get("height")) for rect in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}rect")]
    full = plots.HEIGHT - plots.TOP - plots.BOTTOM
    # The frame; one full bar for the found strong fault and one for the missed medium one; all others empty.
    assert sorted(heights)[-4:] == [0, full, full, full]


def test_names_are_escaped():
    assert "a &lt; b" in plots.roc("t", [plots.Line("a < b", [(0, 0.5)])], most=10)
