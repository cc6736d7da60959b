# SPDX-License-Identifier: Apache-2.0
"""The operator's page speaks of checks, tests, settings and log lines that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_every_check_of_the_doctor_stands_in_the_table_and_no_other():
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sentinel" / "doctor").glob("*.py"))
    checks = set(re.findall(r'id="([a-z_]+(?:\.[a-z_]+)?)"', sources))
    section = PAGE[PAGE.index("## What usually goes wrong") :]
    table = set(re.findall(r"\| `([a-z_.]+)` \|$", section, re.MULTILINE))

    assert table == checks
    assert len(table) >= 20


@pytest.mark.parametrize("name", re.findall(r"`(?:tests/[\w/]+\.py|test_\w+)", PAGE))
def test_a_test_that_shows_something_is_there(name):
    name = name.strip("`")
    if name.endswith(".py"):
        assert (ROOT / name).is_file()
    else:
        assert any(f"def {name}" in path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


def test_every_event_of_the_log_is_explained():
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sentinel" / "daemon").glob("*.py"))
    events = set(re.findall(r'diary\.write\(\s*"(\w+)"', sources)) | set(re.findall(r'"event": "(\w+)"', sources))
    section = PAGE[PAGE.index("## The log") : PAGE.index("## Ray's token")]

    assert events <= set(re.findall(r"`(\w+)`", section)), events
