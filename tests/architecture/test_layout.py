# SPDX-License-Identifier: Apache-2.0
"""Rules about files that no other tool checks."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "sentinel").rglob("*.py"))
FORBIDDEN_NAMES = {"utils", "common", "helpers", "misc", "const", "base_cls", "manager"}
ENVIRONMENT = {
    "SENTINEL_DISABLED",
    "SENTINEL_RUN",
    "SENTINEL_RECORD",
    "SENTINEL_ORDERS",
    "SENTINEL_SEED_ALL",
    "SENTINEL_CONFIG",
}


def named(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_a_module_says_its_licence_and_what_it_is_for_and_stays_readable(path):
    text = path.read_text(encoding="utf-8")

    assert path.stem not in FORBIDDEN_NAMES
    if text.strip():
        assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
        assert text.split("\n", 2)[1].startswith('"""')
    assert text.count("\n") < 500, "more than one idea?"


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_no_module_keeps_state_through_global(path):
    assert not re.search(r"^\s+global \w", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_only_the_documented_environment_variables_are_read():
    used = {name for path in SOURCES for name in re.findall(r"SENTINEL_[A-Z_]+", path.read_text(encoding="utf-8"))}

    assert used <= ENVIRONMENT
