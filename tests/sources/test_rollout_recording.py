# SPDX-License-Identifier: Apache-2.0
"""verl's recordings on disk are recognised without being opened; a step that was cut off is said."""

import json

import pytest

from sentinel.errors import BaselineError
from sentinel.sources.rollout_recording import recordings

SHAPE = "GBS8_N4_in48_out16"


def write_v0(root, step, *, meta=True, data=b"pickle", says=None):
    folder = root / "tiny_demo" / SHAPE / str(step)
    folder.mkdir(parents=True)
    (folder / "gen_batch.dp").write_bytes(data)
    if meta:
        (folder / "meta.json").write_text(json.dumps({"global_steps": step if says is None else says}))


def write_v1(root, step, *inner):
    for number in inner:
        folder = root / "tiny_demo" / SHAPE / str(step) / str(number)
        folder.mkdir(parents=True)
        (folder / "tq_batch.pt").write_bytes(b"pickle")
        (folder / "meta.json").write_text(json.dumps({"global_steps": step, "num_trajectories": 32}))


def test_both_layouts_are_told_apart(tmp_path):
    write_v0(tmp_path / "a", 1)
    write_v1(tmp_path / "b", 1, 0, 1)
    (old,), (new,) = recordings(tmp_path / "a"), recordings(tmp_path / "b")
    assert (old.layout, old.steps, old.names, old.shape) == ("v0", (1,), "tiny_demo", SHAPE)
    assert (new.layout, new.steps, new.inner) == ("v1", (1,), 2)


def test_steps_that_are_not_whole_are_no_steps_and_are_explained(tmp_path):
    write_v0(tmp_path, 1)
    write_v0(tmp_path, 2, meta=False)
    write_v0(tmp_path, 3, data=b"")
    write_v0(tmp_path, 4, says=9)
    write_v1(tmp_path, 5, 0, 2)
    (tmp_path / "tiny_demo" / SHAPE / "6").mkdir()
    (found,) = recordings(tmp_path)
    assert found.steps == (1,)
    assert set(found.broken) == {2, 3, 4, 5, 6}
    assert "no meta.json" in found.broken[2]
    assert "empty" in found.broken[3]
    assert "step 9" in found.broken[4]
    assert "mini-batch is missing" in found.broken[5]


def test_the_folder_may_be_named_at_any_depth(tmp_path):
    write_v0(tmp_path, 1)
    for folder in (tmp_path, tmp_path / "tiny_demo", tmp_path / "tiny_demo" / SHAPE):
        assert [found.names for found in recordings(folder)] == ["tiny_demo"]


def test_no_folder_is_an_error_and_an_empty_one_holds_nothing(tmp_path):
    assert recordings(tmp_path) == []
    with pytest.raises(BaselineError, match="no such folder"):
        recordings(tmp_path / "x")
