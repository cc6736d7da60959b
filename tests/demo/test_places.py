# SPDX-License-Identifier: Apache-2.0
"""A demo takes only a folder of its own."""

import pytest

from sentinel.demo.places import MARKER, DemoError, claim


def test_a_new_folder_is_made(tmp_path):
    places = claim(tmp_path / "demo")

    assert places.runs.is_dir()
    assert (tmp_path / "demo" / MARKER).is_file()


def test_what_an_earlier_demo_left_is_cleared_but_its_model_is_kept(tmp_path):
    places = claim(tmp_path / "demo")
    for old in (places.runs / "x", places.home / "journal", places.recordings / "r", places.rollouts / "1"):
        old.parent.mkdir(parents=True, exist_ok=True)
        old.write_text("old")
    places.bundle.write_text("old")
    (places.assets / "model").mkdir(parents=True)

    claim(tmp_path / "demo")

    assert not any(places.runs.iterdir())
    assert not places.home.exists()
    assert not places.rollouts.exists()
    assert not places.bundle.exists()
    assert (places.assets / "model").is_dir()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")

    with pytest.raises(DemoError, match="was not made by"):
        claim(tmp_path)

    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(DemoError, match="was not made by"):
        claim(tmp_path / "file")


@pytest.mark.parametrize("name", ["a b", "a=b", "a,b"])
def test_a_path_that_msprobe_refuses_is_refused_first(tmp_path, name):
    with pytest.raises(DemoError, match="msprobe"):
        claim(tmp_path / name)
