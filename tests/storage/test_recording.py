# SPDX-License-Identifier: Apache-2.0
"""A recording is read as it is: growing, killed, started again."""

import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.errors import BaselineError
from sentinel.records import Reading
from sentinel.storage.recording import is_recording, read_recording
from sentinel.trainer.recording import RecordingFile
from tests.support.baselines import receipt_record, start_record, step_record, write_dump, write_recording
from tests.support.properties import unhurried

ROOT = Path(__file__).parents[2]
END = {"t": "end", "at": 9.0, "finished": True}


def test_steps_facts_and_settings_are_read(tmp_path):
    path = write_recording(
        tmp_path / "gpu.rec",
        start_record(ranks=2),
        step_record(1, actor__loss=0.5),
        step_record(2, actor__loss=0.25),
        END,
    )

    recording = read_recording(path)

    assert recording.run.readings == (Reading(1, {"actor/loss": 0.5}), Reading(2, {"actor/loss": 0.25}))
    assert (recording.run.source, recording.run.twin) == (str(path), False)
    assert recording.facts["ranks"] == 2
    assert recording.config == "run: exp"
    assert (recording.created, recording.ended, recording.notes) == ("2023-11-14T22:13:20Z", True, ())


def test_numbers_that_are_not_finite_are_values_and_text_is_none(tmp_path):
    record = step_record(1, a=math.nan, b=math.inf, c=7)
    record["values"] |= {"text": "x", "flag": True, "none": None}
    path = write_recording(tmp_path / "r", start_record(), record)

    (reading,) = read_recording(path).run.readings

    assert reading.metrics.keys() == {"a", "b", "c"}
    assert math.isnan(reading.metrics["a"])
    assert (reading.metrics["b"], reading.metrics["c"]) == (math.inf, 7.0)


def test_a_restart_in_the_same_file_is_another_attempt(tmp_path):
    path = write_recording(
        tmp_path / "r",
        start_record(),
        step_record(1, m=1.0),
        step_record(2, m=2.0),
        END,
        start_record(pid=8),
        start_record(pid=9),
        step_record(2, m=2.5),
    )

    recording = read_recording(path)

    assert [(r.attempt, r.step, r.metrics["m"]) for r in recording.run.readings] == [
        (1, 1, 1.0),
        (1, 2, 2.0),
        (2, 2, 2.5),
    ]
    assert recording.facts["pid"] == 9
    assert not recording.ended


def test_a_step_that_is_logged_twice_is_one_step(tmp_path):
    path = write_recording(
        tmp_path / "r",
        start_record(),
        step_record(1, m=1.0, n=1.0),
        step_record(1, m=2.0),
        step_record(1, val__acc=0.5),
    )

    assert read_recording(path).run.readings == (
        Reading(1, {"m": 2.0, "n": 1.0}),
        Reading(1, {"val/acc": 0.5}, kind="val"),
    )


def test_a_dump_counts_only_with_a_receipt(tmp_path):
    path = write_recording(
        tmp_path / "r",
        start_record(),
        receipt_record(2, "actor_update"),
        receipt_record(3, "actor_update", outcome="failed"),
    )
    root = tmp_path / "r.dumps"
    for step, stage in [(2, "actor_update"), (2, "compute_values"), (3, "actor_update")]:
        write_dump(root, step, stage)

    recording = read_recording(path)

    assert [(d.step, d.stage, d.ranks) for d in recording.dumps] == [(2, "actor_update", (0,))]
    assert recording.dumps[0].path == str(root / "step_2" / "actor_update")
    assert sum("has no receipt" in note for note in recording.notes) == 2


def test_a_receipt_vouches_for_the_paths_and_ranks_that_it_names(tmp_path):
    receipt = receipt_record(2, "actor_update", outcome="recording")
    receipt["receipt"] |= {"last_step": 9, "paths": ["/on/the/gpu/machine/step_2/actor_update"], "ranks": [0]}
    path = write_recording(tmp_path / "r", start_record(), receipt)
    for step, rank in [(2, 0), (2, 1), (3, 0)]:
        write_dump(tmp_path / "r.dumps", step, "actor_update", rank)

    recording = read_recording(path)

    assert [(d.step, d.ranks) for d in recording.dumps] == [(2, (0,))]
    assert ["step 3" in note for note in recording.notes] == [True]


def test_what_the_trainer_side_writes_is_what_is_read(tmp_path):
    path = tmp_path / "deep" / "r"
    outlet = RecordingFile(str(path))
    outlet.send([start_record() | {"run": "grpo"}, step_record(1, m=math.nan)])
    outlet.send([step_record(2, m=2.0)])
    outlet.close()
    with path.open("ab") as stream:
        stream.write(b'{"t":"step","step":3,"val')
    again = RecordingFile(str(path))
    again.send([start_record(), step_record(2, m=3.0), END])
    again.close()

    recording = read_recording(path)

    assert [(r.attempt, r.step) for r in recording.run.readings] == [(1, 1), (1, 2), (2, 2)]
    assert (recording.name, recording.ended, recording.notes) == (None, True, ("damaged lines that were left out: 1",))


def test_damaged_lines_are_left_out_and_said(tmp_path):
    path = write_recording(tmp_path / "r", start_record(), step_record(1, m=1.0))
    with path.open("ab") as stream:
        stream.write(b'{"t":"step"\n\xff\xfe\n{"t":"step","step":"x","values":{}}\n[]\n')
        stream.write(json.dumps(step_record(2, m=2.0)).encode() + b'\n{"t":"st')

    recording = read_recording(path)

    assert [r.step for r in recording.run.readings] == [1, 2]
    assert recording.notes == ("the last line was cut off and left out", "damaged lines that were left out: 4")


@unhurried
@given(cut=st.integers(min_value=0))
def test_any_cut_keeps_the_steps_up_to_the_last_whole_line(tmp_path_factory, cut):
    path = tmp_path_factory.getbasetemp() / "cut.rec"
    write_recording(path, start_record(), *(step_record(step, m=step / 3) for step in range(1, 9)))
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    cut = first + cut % (len(content) - first + 1)
    path.write_bytes(content[:cut])

    steps = [reading.step for reading in read_recording(path).run.readings]

    whole = content[:cut].count(b"\n") - 1
    assert steps in (list(range(1, whole + 1)), list(range(1, whole + 2)))  # whole, but for its line break
    assert len(steps) <= 8


@pytest.mark.parametrize(
    "content", [b"", b"step:1 - a:1\n", b'{"step": 1, "data": {}}\n', b"\x00" * 100, b'{"t":"start"}\n']
)
def test_what_is_no_recording_is_refused(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)

    assert not is_recording(path)
    with pytest.raises(BaselineError, match="is no recording"):
        read_recording(path)


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(BaselineError, match="no such file"):
        read_recording(tmp_path / "nowhere")


WRITER = """
    import os, sys
    from support.baselines import json, start_record, step_record
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (json.dumps(start_record()) + "\\n").encode())
    step = 0
    while True:
        step += 1
        os.write(file, (json.dumps(step_record(step, m=step / 7, text="x")) + "\\n").encode())
        print(step, flush=True)
"""


def test_a_killed_run_has_recorded_up_to_its_last_step(tmp_path):
    path = tmp_path / "r"
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(path)],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(50):
        told = int(writer.stdout.readline())
    writer.kill()
    rest = writer.stdout.read().split()
    writer.wait()
    writer.stdout.close()
    told = int(rest[-1]) if rest else told

    steps = [reading.step for reading in read_recording(path).run.readings]

    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) in (told, told + 1)
