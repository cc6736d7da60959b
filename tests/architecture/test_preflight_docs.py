# SPDX-License-Identifier: Apache-2.0
"""The table of docs/preflight.md maps every section of the guide and every check."""

import contextlib
import re
from pathlib import Path

from sentinel.cli import build_parser
from sentinel.core.checklist import CHECKS

TEXT = (Path(__file__).parents[2] / "docs" / "preflight.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.partition("## The guide")[2].partition("## What counts")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| Section")
]


def test_every_check_stands_in_the_table_and_no_other():
    named = [name for row in ROWS for name in re.findall(r"`(\w+\.\w+)`", row[3])]

    assert sorted(named) == sorted(CHECKS)


def test_every_section_of_the_guide_and_every_item_of_its_closing_list_is_mapped():
    sections = {section for row in ROWS for section in row[0].split(", ")}
    items = {row[1] for row in ROWS if row[1]}

    assert sections >= {"2.1", "2.2", "3", "4.1", "4.2", "5.1", "5.2", "6.2", "6.3", "6.4", "7.1", "7.2", "8"}
    assert items == {str(number) for number in range(1, 9)}


def test_every_option_that_the_page_names_is_one(capsys):
    with contextlib.suppress(SystemExit):
        build_parser().parse_args(["preflight", "--help"])
    shown = capsys.readouterr().out

    for option in set(re.findall(r"`(--[a-z]+)", TEXT)) - {"--runtime", "--fingerprint"}:
        assert option in shown
