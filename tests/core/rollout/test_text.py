# SPDX-License-Identifier: Apache-2.0
"""Model output is judged by its characters alone; sound text of any kind passes, broken text is named."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.rollout.rows import Tally, judge_step, total
from sentinel.core.rollout.text import LABELS, judge_text
from sentinel.records import RolloutRow
from sentinel.storage.text_set import read_text_set

DATA = Path(__file__).parents[2] / "data"
ROWS = read_text_set(DATA / "rollout_text" / "labelled.jsonl.gz")


@pytest.mark.parametrize("split", ["tune", "held"])
def test_99_of_100_rows_of_the_labelled_set_are_right(split):
    rows = [row for row in ROWS if row.split == split]
    wrong = Counter(row.kind for row in rows if judge_text(row.output).label != row.label)
    assert len(rows) >= 1500
    assert sum(wrong.values()) <= 0.01 * len(rows), wrong


def test_the_labelled_set_has_the_kinds_that_were_asked_for():
    kinds = {row.kind: row.label for row in ROWS}
    assert sum(label == "ok" for label in kinds.values()) >= 12
    assert sum(label != "ok" for label in kinds.values()) >= 8
    assert len(ROWS) >= 2000


def test_no_healthy_row_of_either_split_is_called_broken():
    assert [row.output for row in ROWS if row.label == "ok" and judge_text(row.output).label != "ok"] == []


def test_the_splits_share_no_sound_text_but_short_answers():
    tune, held = (
        {row.output for row in ROWS if row.split == split and row.label == "ok"} for split in ("tune", "held")
    )
    assert max(map(len, tune & held), default=0) < 60, "a decimal fraction may stand in both"


@given(st.text(max_size=400))
def test_any_text_gets_a_label_and_a_broken_one_a_reason(text):
    verdict = judge_text(text)
    assert verdict.label in LABELS
    assert bool(verdict.why) == (verdict.label != "ok")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("1/7 = 0." + "142857" * 12, "ok"),
        ("\n".join(["=" * 70, "Result: 42", "=" * 70]), "ok"),
        ("English: good morning. Русский: доброе утро. 日本語: おはよう。 العربية: صباح الخير. हिन्दी: सुप्रभात", "ok"),
        ("[" + ", ".join(["0"] * 60) + "]", "ok"),
        ("<think>\n\n</think>", "empty"),
        ("\u200b\u200b", "empty"),
        ("Sure! " + "ha" * 200, "repetitive"),
        ("The sum is 4. " * 2, "ok"),
        ("\ufffd\ufffd\ufffd ab \ufffd\ufffd", "garbled"),
        ("Done in one line. \x1b[31mred\x1b[0m", "ok"),
    ],
)
def test_the_borders(text, label):
    assert judge_text(text).label == label


def test_ten_megabytes_of_output_are_judged_by_their_beginning_middle_and_end():
    long = "\n".join(row.output for row in ROWS if row.kind in {"english", "chinese", "code"}) * 2
    assert len(long) > 60000
    assert judge_text(long[:30000]).label == "ok"
    assert judge_text(long[:30000] + "!" * (1 << 20)).label == "garbled"


def test_a_step_counts_its_rows_and_keeps_a_few_bad_ones():
    rows = [RolloutRow("q", "!" * 100)] * 20 + [RolloutRow("q", "The answer is 4.")] * 20
    step = judge_step(3, rows, keep=5)
    assert step.tally.share == 0.5
    assert step.tally.verdict() == "garbled"
    assert [row.place for row in step.worst] == [0, 1, 2, 3, 4]


def test_single_bad_rows_leave_a_file_healthy_and_the_most_frequent_kind_names_it():
    assert Tally(counts={"ok": 98, "repetitive": 2}).verdict() == "healthy"
    assert Tally(counts={"ok": 90, "repetitive": 6, "empty": 4}).verdict() == "repetitive"
    assert Tally().verdict() == "healthy"
    assert total([Tally(counts={"ok": 1}), Tally(counts={"ok": 1, "empty": 1}, truncated=2)]).rows == 3


def test_text_that_stops_in_the_middle_is_counted_as_truncated():
    rows = [
        RolloutRow("q", "<think>" + "so we go on and " * 3),
        RolloutRow("q", "```python\nprint(1)"),
        RolloutRow("q", "4."),
    ]
    assert judge_step(1, rows).tally.truncated == 2


def test_the_zoo_of_rollouts_agrees_row_by_row():
    for path in sorted((DATA / "formats" / "verl_rollout").glob("*.jsonl")):
        expected = json.loads(path.with_suffix("").with_suffix(".expected.json").read_text())
        outputs = [json.loads(line)["output"] for line in path.read_text().splitlines()]
        assert [judge_text(output).label for output in outputs] == expected["rows"], path.name
