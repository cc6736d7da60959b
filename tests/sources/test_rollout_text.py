# SPDX-License-Identifier: Apache-2.0
"""Rollout text is read as it is found: cut anywhere, with foreign keys, from one file or a folder."""

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel.errors import UnreadableLog
from sentinel.sources.rollout_text import Notices, read_rollouts, read_step

ROWS = [{"input": f"q{n}", "output": f"answer {n} 答案", "gts": None, "score": n / 2, "step": 7} for n in range(5)]
WHOLE = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, len(WHOLE)))
def test_a_file_cut_anywhere_yields_its_whole_rows(tmp_path, at):
    path = tmp_path / "7.jsonl"
    path.write_bytes(WHOLE[:at])
    notices = Notices()
    part = read_step(path, notices)
    ends = [n for n in range(len(WHOLE)) if WHOLE[n : n + 1] == b"\n"]
    # The last row counts with its closing brace, with or without the line end.
    whole = sum(at >= end for end in ends)
    assert (0 if part is None else len(part.rows)) == whole
    assert [row.output for row in part.rows] == [row["output"] for row in ROWS[:whole]] if part else True
    assert set(notices.codes) <= {"truncated_line", "invalid_utf8", "empty_files"}


def test_scores_may_be_missing_nan_or_no_number(tmp_path):
    path = tmp_path / "3.jsonl"
    path.write_text('{"output": "a", "score": NaN}\n{"output": "b"}\n{"output": "c", "score": "high"}\n')
    part = read_step(path)
    assert part.step == 3, "from the name of the file"
    scores = [row.score for row in part.rows]
    assert math.isnan(scores[0])
    assert scores[1:] == [None, None]


def test_a_folder_is_read_in_order_of_steps_and_files_of_other_names_are_passed_over(tmp_path):
    for step in (10, 9, 2):
        (tmp_path / f"{step}.jsonl").write_text(json.dumps({"output": "x", "step": step}) + "\n")
    (tmp_path / "log.jsonl").write_text("{}\n")
    (tmp_path / ".hidden").write_text("x")
    notices = Notices()
    assert [part.step for part in read_rollouts(tmp_path, notices)] == [2, 9, 10]
    assert notices.codes == ["other_files", "missing_steps"]


def test_metrics_are_no_rollout_text(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "data": {"actor/loss": 1.0}}\n')
    with pytest.raises(UnreadableLog, match="no line has an `output`"):
        list(read_rollouts(path, Notices()))


def test_a_row_of_ten_megabytes_is_read(tmp_path):
    path = tmp_path / "1.jsonl"
    path.write_text(json.dumps({"output": "word " * 2_000_000, "step": 1}) + "\n")
    assert len(read_step(path).rows[0].output) == 10_000_000
