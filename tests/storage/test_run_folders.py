# SPDX-License-Identifier: Apache-2.0
"""Any run name has a folder of its own, and nothing but that folder."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.storage.run_folders import journal_folder, journalled_runs, read_run_name, run_slug, write_run_name
from tests.support.properties import unhurried

HOSTILE = [
    "",
    ".",
    "..",
    "../../etc/passwd",
    "/",
    "a/b",
    "a\nb",
    'say "x"',
    "运行-一",
    "x" * 10_000,
    "\0",
    "\ud800",
    "CON",
]


@unhurried
@given(st.text())
def test_a_folder_name_is_safe_short_and_the_same_every_time(name):
    slug = run_slug(name)

    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,70}", slug)
    assert slug == run_slug(name)


@unhurried
@given(st.lists(st.text(), unique=True, max_size=20))
def test_two_names_never_meet_even_where_case_is_ignored(names):
    assert len({run_slug(name).lower() for name in names}) == len(names)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_folder_of_a_hostile_name_lies_in_the_journal_and_knows_the_true_name(tmp_path, name):
    folder = journal_folder(tmp_path, name)
    folder.mkdir(parents=True)
    write_run_name(folder, name)

    assert folder.parent == tmp_path / "journal"
    assert folder.resolve().parent == (tmp_path / "journal").resolve()
    assert read_run_name(folder) == name


def test_a_readable_name_stays_readable():
    assert run_slug("grpo qwen/8B").startswith("grpo_qwen_8B-")


def test_all_journalled_runs_are_listed_by_their_true_names(tmp_path):
    for name in ("b/2", "a 1"):
        folder = journal_folder(tmp_path, name)
        folder.mkdir(parents=True)
        write_run_name(folder, name)
    (tmp_path / "journal" / "stray").mkdir()
    (tmp_path / "journal" / "file").write_text("x")

    assert list(journalled_runs(tmp_path)) == ["a 1", "b/2"]
    assert journalled_runs(tmp_path / "nowhere") == {}
