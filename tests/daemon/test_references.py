# SPDX-License-Identifier: Apache-2.0
"""Whatever holds a reference run can be compared with."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sentinel.daemon.references import gather, golden_path, load_reference, load_references
from sentinel.errors import BaselineError, UnreadableLog
from sentinel.storage.bundle import write_bundle
from tests.support.baselines import (
    a_golden,
    a_run,
    receipt_record,
    start_record,
    step_record,
    write_dump,
    write_recording,
)


def a_log(path, steps=3):
    path.write_text("".join(json.dumps({"step": s, "data": {"actor/loss": s / 2}}) + "\n" for s in range(1, steps + 1)))
    return path


def a_recording(folder):
    write_dump(folder / "gpu.rec.dumps", 3, "actor_update")
    return write_recording(
        folder / "gpu.rec", start_record(), step_record(1, actor__loss=0.5), receipt_record(3, "actor_update")
    )


def test_a_bundle_a_recording_and_a_log_are_all_references(tmp_path):
    write_bundle(tmp_path / "b", name="grpo", runs=[a_run(), a_run("2.log")])

    bundle, recording, log = (
        load_reference(p) for p in (tmp_path / "b", a_recording(tmp_path), a_log(tmp_path / "x.jsonl"))
    )

    assert (bundle.name, len(bundle.runs)) == ("grpo", 2)
    assert (recording.name, len(recording.runs), recording.dumps[0].step) == ("exp", 1, 3)
    assert (log.name, [r.metrics["actor/loss"] for r in log.runs[0].readings]) == ("x", [0.5, 1.0, 1.5])


def test_what_is_no_reference_is_refused(tmp_path):
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "zip").write_bytes(b"PK\x03\x04 and then nothing")

    with pytest.raises(UnreadableLog):
        load_reference(tmp_path / "text")
    with pytest.raises(BaselineError, match="not a whole zip"):
        load_reference(tmp_path / "zip")
    with pytest.raises(BaselineError, match="no such file"):
        load_reference(tmp_path / "nowhere")


def test_several_sources_make_one_reference_with_twins_last(tmp_path):
    write_bundle(tmp_path / "b", name="grpo", runs=[a_run(), a_run("t.log", twin=True)])
    log, twin = a_log(tmp_path / "2.jsonl"), a_log(tmp_path / "twin.jsonl")

    reference = load_references([tmp_path / "b", log], [twin])

    assert reference.name == "grpo"
    assert [(run.source, run.twin) for run in reference.runs] == [
        ("seed1.log", False),
        (str(log), False),
        ("t.log", True),
        (str(twin), True),
    ]
    assert load_references([]) is None


def test_a_golden_dump_is_found_on_disk_from_a_bundle_and_from_a_recording(tmp_path):
    write_bundle(tmp_path / "b", name="grpo", runs=[a_run()], dumps=[a_golden(tmp_path / "golden")])
    recording = a_recording(tmp_path)

    for path in (tmp_path / "b", recording):
        reference = load_reference(path)
        folder = golden_path(path, reference, 3, "actor_update", tmp_path / "cache")

        assert folder is not None
        assert folder.endswith("step_3/actor_update")
        assert "Module.model.lm_head" in (Path(folder) / "step0" / "rank0" / "dump.json").read_text(encoding="utf-8")
        assert golden_path(path, reference, 4, "actor_update", tmp_path / "cache") is None


def test_a_changed_bundle_is_unpacked_beside_the_old_one(tmp_path):
    for norm, root in ((1.0, "one"), (2.0, "two")):
        write_dump(tmp_path / root, 3, "actor_update", norm=norm)
    golden = a_golden(tmp_path / "x")
    folders = []
    for root in ("one", "two"):
        dump = replace(golden, path=str(tmp_path / root / "step_3" / "actor_update"))
        write_bundle(tmp_path / "b", name="grpo", runs=[a_run()], dumps=[dump])
        folders.append(
            golden_path(tmp_path / "b", load_reference(tmp_path / "b"), 3, "actor_update", tmp_path / "cache")
        )

    assert folders[0] != folders[1]


def test_a_recording_says_what_it_left_out_and_where_its_rollouts_lie(tmp_path):
    (tmp_path / "rollouts").mkdir()
    path = write_recording(
        tmp_path / "r", start_record(rollout_data_dir=str(tmp_path / "rollouts")), step_record(1, m=1.0)
    )

    material = gather(path, tmp_path)

    assert any("has not said goodbye" in note for note in material.notes)
    assert material.rollouts_elsewhere == tmp_path / "rollouts"
