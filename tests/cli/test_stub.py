# SPDX-License-Identifier: Apache-2.0
"""`sentinel stub`: from a launch script and a recording to the overrides, or to what is missing."""

import json

import pytest

from sentinel.cli import main
from sentinel.storage.bundle import write_bundle
from tests.sources.test_rollout_recording import SHAPE, write_v0
from tests.support.baselines import a_run

pytest.importorskip("verl")
pytest.importorskip("hydra")

SCRIPT = """python -m verl.trainer.main_ppo trainer.use_v1=False trainer.experiment_name={name} trainer.project_name=demo \\
  data.train_batch_size=8 data.max_prompt_length=48 data.max_response_length=16 data.shuffle=False \\
  actor_rollout_ref.rollout.n=4 trainer.total_training_steps=3
"""


@pytest.fixture
def launch(tmp_path):
    def make(name="tiny"):
        path = tmp_path / "run.sh"
        path.write_text(SCRIPT.format(name=name))
        return str(path)

    return make


def asked(capsys, *words):
    code = main(["stub", *words, "--json"])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else None, out.err


def test_record_takes_trainer_and_steps_from_the_launch_script(tmp_path, launch, capsys):
    code, said, _ = asked(capsys, "record", "--launch", launch(), "--dump-dir", str(tmp_path / "r"))
    assert code == 0
    assert said["trainer"] == "v0"
    assert said["recording"] is None
    assert f"skip.rollout.dump_dir={tmp_path / 'r'}" in said["overrides"]
    assert "skip.rollout.steps=[1,2,3]" in said["overrides"]


def test_replay_checks_the_recording_against_the_launch_script(tmp_path, launch, capsys):
    for step in (1, 2, 3):
        write_v0(tmp_path / "r", step)
    code, said, _ = asked(capsys, "replay", "--launch", launch(), "--from", str(tmp_path / "r"))
    assert (code, said["ready"]) == (0, True)
    assert said["recording"]["steps"] == [1, 2, 3]
    code, said, _ = asked(capsys, "replay", "--launch", launch("npu"), "--from", str(tmp_path / "r"))
    assert (code, said["ready"]) == (1, False)
    assert "npu_demo" in said["problems"][0]


def test_a_bundle_is_unpacked_under_the_names_that_the_run_looks_for(tmp_path, launch, capsys):
    for step in (1, 2, 3):
        write_v0(tmp_path / "r", step)
    write_bundle(tmp_path / "b.sentinel", name="b", runs=(a_run(),), rollouts=tmp_path / "r")
    words = ("--launch", launch("npu"), "--from", str(tmp_path / "b.sentinel"), "--into", str(tmp_path / "into"))
    code, said, _ = asked(capsys, "replay", *words)
    assert (code, said["problems"]) == (0, [])
    assert (tmp_path / "into" / "npu_demo" / SHAPE / "2" / "gen_batch.dp").read_bytes() == b"pickle"
    assert asked(capsys, "replay", *words)[0] == 0, "once more, over what is there"


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--from", "/nonexistent"),
        ("replay", "--from", __file__),
        ("record", "--steps", "5-1"),
        ("record", "--steps", "one"),
        ("record", "--launch", "/nonexistent.sh"),
    ],
)
def test_bad_input_is_one_line(words, capsys):
    code, said, err = asked(capsys, *words)
    assert code == 2
    assert said is None
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


def test_without_a_launch_script_the_overrides_are_printed_and_it_is_said_what_was_not_checked(tmp_path, capsys):
    write_v0(tmp_path, 1)
    assert main(["stub", "replay", "--from", str(tmp_path), "--trainer", "v0"]) == 1
    out = capsys.readouterr().out
    assert "skip.rollout.steps=[1]" in out
    assert "was not checked: give --launch SCRIPT" in out
