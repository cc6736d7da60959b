# SPDX-License-Identifier: Apache-2.0
import json
import math

from sentinel.trainer.recording import RecordingFile


def test_records_are_lines_and_not_finite_numbers_come_back(tmp_path):
    path = tmp_path / "deep" / "run.jsonl"
    file = RecordingFile(str(path))
    file.send([{"t": "step", "step": 1, "values": {"a": math.nan, "b": -math.inf, "键": 2.0}}])
    file.send([{"t": "end"}])
    file.close()

    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    assert math.isnan(lines[0]["values"]["a"])
    assert lines[0]["values"]["b"] == -math.inf
    assert lines[0]["values"]["键"] == 2.0
    assert lines[1] == {"t": "end"}


def test_every_line_is_on_disk_before_the_next_one_is_asked_for(tmp_path):
    path = tmp_path / "run.jsonl"
    file = RecordingFile(str(path))

    file.send([{"n": 1}])

    assert path.read_text() == '{"n": 1}\n'
    file.close()


def test_a_second_run_appends_and_a_torn_last_line_does_not_swallow_its_first(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"n": 1}\n{"n": 2, "val')
    file = RecordingFile(str(path))
    file.send([{"n": 3}])
    file.close()

    assert path.read_text().splitlines() == ['{"n": 1}', '{"n": 2, "val', '{"n": 3}']
