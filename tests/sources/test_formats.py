# SPDX-License-Identifier: Apache-2.0
"""Recognition by content, and files that must be refused: one clear line, a code, bounded memory."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sentinel.errors import UnreadableLog
from sentinel.sources import read_file
from sentinel.sources.formats import FORMATS, PARSERS, Recogniser, make_reader

STEP = "step:1 - actor/loss:0.5 - actor/grad_norm:1.5\n"


def refusal(path) -> UnreadableLog:
    with pytest.raises(UnreadableLog) as refused:
        read_file(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    return refused.value


def test_each_format_has_a_name_of_its_own_and_a_reader():
    assert len(set(FORMATS)) == len(FORMATS)
    assert [make_reader(name).format for name in FORMATS] == list(FORMATS)
    with pytest.raises(ValueError, match="no format"):
        make_reader("excel")


def test_a_name_or_ending_tells_nothing(tmp_path):
    (tmp_path / "events.out.tfevents.1").write_text(STEP)
    (tmp_path / "trainer_state.json").write_text(STEP)

    assert {read_file(path).format for path in tmp_path.iterdir()} == {"verl_console"}


def test_a_first_step_far_behind_a_long_preparation_is_found(tmp_path):
    log = tmp_path / "run.log"
    log.write_text("loading weights: 7 of 9\n" * 200_000 + STEP)

    result = read_file(log)

    assert (result.format, len(result.steps)) == ("verl_console", 1)


@pytest.mark.parametrize(
    ("text", "format_name"),
    [
        ("(TaskRunner pid=9) {'actor_rollout_ref': {\n", "verl_console"),
        ("step:1 - actor/los", "verl_console"),
        ('{"step":1,"data":{"actor/l', "verl_file_logger"),
        ('{"t":"start","at":1.0,"facts":{}}\n', "sentinel_recording"),
        ("***** Running training *****\n", "hf_trainer"),
        ("{'loss': 0.5, 'grad_no", "hf_trainer"),
        (" iteration 1/ 9 | consumed samples: 3", "megatron"),
        ("2031/05/07 06:20:11 - mmengine - INFO - Distributed training\n", "mmengine"),
        ("[rank0]:[titan] 2031-02-11 12:00:00,123 - root - INFO - Training starts at step 1\n", "torchtitan"),
    ],
)
def test_a_run_without_a_step_is_known_by_its_marks_and_never_healthy(tmp_path, text, format_name):
    log = tmp_path / "run.log"
    log.write_text(text)

    result = read_file(log)

    assert result.format == format_name
    assert result.steps == ()
    assert "no_metrics_yet" in result.warnings


def test_the_format_with_most_records_is_meant(tmp_path):
    log = tmp_path / "run.log"
    log.write_text("{'loss': 0.5, 'epoch': 0.1}\n" + STEP + STEP.replace("step:1", "step:2"))

    assert read_file(log).format == "verl_console"


def test_a_missing_file_is_refused(tmp_path):
    assert refusal(tmp_path / "nothing.log").code == "unreadable"


def test_an_empty_folder_is_refused(tmp_path):
    assert refusal(tmp_path).code == "unknown_format"


def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    assert refusal(tmp_path / "pipe").code == "unreadable"


def test_an_empty_file_is_not_an_unknown_one(tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "b").write_text(" \n\n")

    assert refusal(tmp_path / "a").code == "empty_file"
    assert refusal(tmp_path / "b").code == "unknown_format"


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (gzip.compress(STEP.encode(), mtime=0), "unsupported_container", "gzip"),
        (b"PK\x03\x04" + b"\0" * 100, "unsupported_container", "zip"),
        (STEP.encode("utf-16"), "unsupported_container", "UTF-16"),
        (json.dumps({"cells": [STEP], "nbformat": 4}).encode(), "unsupported_container", "notebook"),
        (bytes(range(256)) * 20, "unknown_format", "binary"),
        (b'{"input": "a", "output": "b", "score": 1.0, "step": 3}\n', "unknown_format", "rollout check"),
        (b'{"log_history": [{"loss": 1.0, "st', "unknown_format", "damaged"),
        (b"[1, 2, 3]", "unknown_format", "no record of a known format"),
        (b'{"a": {"b": [1, 2]}}', "unknown_format", "no record of a known format"),
        (b"{" * 100_000, "unknown_format", "no record of a known format"),
        (b"[" * 100_000 + b"]" * 100_000, "unknown_format", "no record of a known format"),
    ],
)
def test_what_is_refused_says_what_it_is(tmp_path, data, code, says):
    path = tmp_path / "run.log"
    path.write_bytes(data)

    error = refusal(path)

    assert error.code == code
    assert says in str(error)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path):
    log = tmp_path / "run.log"
    log.write_text(STEP)
    log.chmod(0)

    assert refusal(log).code == "unreadable"


def test_mixed_line_ends_are_read(tmp_path):
    log = tmp_path / "run.log"
    log.write_bytes(
        b"".join(
            STEP.replace("step:1", f"step:{n}").strip().encode() + end
            for n, end in enumerate([b"\r\n", b"\r", b"\n", b"\n\n"])
        )
    )

    assert [reading.step for reading in read_file(log).steps] == [0, 1, 2, 3]


CHILD = """
import resource, sys
from sentinel.sources import read_file
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]) << 20,) * 2)
try:
    result = read_file(sys.argv[1])
    print(result.format, len(result.steps), *result.warnings)
except Exception as error:
    print(type(error).__name__, getattr(error, "code", ""))
"""


def in_little_memory(path: Path, mebibytes: int = 400) -> str:
    command = [sys.executable, "-c", CHILD, str(path), str(mebibytes)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={"PYTHONPATH": str(Path(__file__).parents[2])}, check=False
    )
    assert not done.stderr
    return done.stdout.strip()


@pytest.mark.timeout(120)
def test_a_hole_of_zeros_is_passed_over_in_bounded_memory_and_loses_no_line(tmp_path):
    log = tmp_path / "run.log"
    log.write_text(STEP)
    with log.open("r+b") as stream:
        stream.seek(1 << 29)  # what a writer leaves whose file was emptied; needs no disk
        stream.write(STEP.replace("step:1", "step:2").encode())

    assert in_little_memory(log) == "verl_console 2 zero_bytes"


@pytest.mark.timeout(120)
def test_a_file_of_zeros_is_refused_in_bounded_memory(tmp_path):
    log = tmp_path / "run.log"
    with log.open("wb") as stream:
        stream.truncate(256 << 20)

    assert in_little_memory(log) == "UnreadableLog unknown_format"


@pytest.mark.timeout(120)
def test_json_lines_of_another_kind_are_refused_in_bounded_memory(tmp_path):
    log = tmp_path / "rollouts.jsonl"
    with log.open("w") as stream:
        for _ in range(40):
            stream.write((json.dumps({"input": "x" * 1000, "output": "y", "score": 1.0, "step": 1}) + "\n") * 1000)

    assert in_little_memory(log, 250) == "UnreadableLog unknown_format"


def test_what_has_been_read_is_told(tmp_path):
    log = tmp_path / "run.log"
    log.write_text(STEP + "noise\n" * 400_000)
    told = []
    read_file(log, told.append)

    assert len(told) >= 3
    assert told[-1] == log.stat().st_size


def test_recognition_keeps_no_file_in_memory():
    recogniser = Recogniser()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for portion in [b"nothing of interest\n" * 50_000, b"x" * (1 << 20)] * 24:
        assert recogniser.feed(portion) is None

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_every_parser_lets_plain_text_pass():
    text = "Pancakes for four\n- flour: 250 g\nStep 1: mix. step: 2 | a: b\nloss of steam is normal, 'loss': 0.5\n"
    for parser in PARSERS:
        reader = make_reader(parser.format)
        assert reader.feed(text.encode()) + reader.finish() == []
