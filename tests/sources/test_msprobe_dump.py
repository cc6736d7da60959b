# SPDX-License-Identifier: Apache-2.0
"""Reading msprobe dumps: every level and task, any directory of the tree, and what must be refused."""

import contextlib
import json
import math
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel.errors import UnreadableDump
from sentinel.sources import msprobe_json
from sentinel.sources.msprobe_dump import find_dumps, read_dump, read_rank, steps_of
from tests.support.dumps import edit, tensors, unpack


@pytest.fixture
def tree(tmp_path):
    """A capture root of one step, two stages and two ranks."""
    source = unpack("l0", tmp_path / "source")
    for stage in ("actor_update", "ref_compute_log_prob"):
        for rank in (0, 1):
            shutil.copytree(source / "step0" / "rank0", tmp_path / "root" / "step_7" / stage / "step0" / f"rank{rank}")
    return tmp_path / "root"


@pytest.mark.parametrize(("name", "level", "task"), [
    ("l0", "L0", "statistics"), ("l1", "L1", "statistics"), ("mix", "mix", "statistics"),
    ("md5", "L0", "statistics"), ("xor", "L0", "statistics"), ("tensor", "L0", "tensor"),
])  # fmt: skip
def test_every_level_and_task_is_read(tmp_path, name, level, task):
    dump = read_dump(unpack(name, tmp_path))

    rows = dump.stages["unknown"][0]
    assert (dump.level, dump.task) == (level, task)
    assert len(rows) > 100
    assert [row.order for row in rows] == sorted(row.order for row in rows)


def test_a_row_says_module_direction_position_and_numbers(tmp_path):
    rows = read_dump(unpack("l0", tmp_path)).stages["unknown"][0]

    by_place = {(row.module, row.direction, row.position): row for row in rows}
    output = by_place["model.layers.0.mlp.up_proj", "forward", "output.0"]
    assert output.name == "Module.model.layers.0.mlp.up_proj.Linear.forward.0"
    assert (output.dtype, output.shape) == ("float32", (2, 24, 32))
    assert output.min < output.mean < output.max < output.norm
    assert output.parent == "Module.model.layers.0.mlp.Qwen2MLP.forward.0"
    assert ("model.layers.0.mlp.up_proj", "parameters", "parameters.weight") in by_place
    assert ("model.layers.0.mlp.up_proj", "parameters", "parameters_grad.weight") in by_place
    assert ("model.layers.0.mlp.up_proj", "backward", "input.0") in by_place
    assert ("model.layers.0.self_attn", "forward", "kwarg.position_embeddings.0") in by_place
    ids = by_place["model.embed_tokens", "forward", "input.0"]
    assert (ids.norm, ids.mean, ids.dtype) == (None, None, "int64")


def test_checksums_and_tensor_files_are_kept(tmp_path):
    md5 = read_dump(unpack("md5", tmp_path)).stages["unknown"][0]
    xor = read_dump(unpack("xor", tmp_path)).stages["unknown"][0]
    files = read_dump(unpack("tensor", tmp_path)).stages["unknown"][0]

    assert all(row.checksum and row.max is not None for row in md5)
    assert all(row.checksum and row.max is None for row in xor)
    assert all(row.data.endswith(".pt") for row in files)


def test_plain_numbers_among_the_arguments_of_an_operation_are_rows(tmp_path):
    rows = read_dump(unpack("mix", tmp_path)).stages["unknown"][0]

    assert any(row.dtype == "number" and row.max == row.norm == 0.5 for row in rows)


@pytest.mark.parametrize("below", ["", "step_7", "step_7/actor_update", "step_7/actor_update/step0"])
def test_any_directory_of_the_tree_will_do(tree, below):
    dump = read_dump(tree / below)

    assert dump.step == 7
    assert set(dump.stages["actor_update"]) == {0, 1}


@pytest.mark.parametrize("below", ["step_7/actor_update/step0/rank1", "step_7/actor_update/step0/rank1/dump.json"])
def test_one_rank_alone_will_do(tree, below):
    dump = read_dump(tree / below)

    assert (dump.step, list(dump.stages), list(dump.stages["actor_update"])) == (7, ["actor_update"], [1])


def test_only_the_wanted_stages_are_read(tree):
    assert set(read_dump(tree, stages=("actor_update",)).stages) == {"actor_update"}
    with pytest.raises(UnreadableDump, match="holds no dump of critic_update"):
        read_dump(tree, stages=("critic_update",))


def test_several_steps_are_told_apart(tree):
    shutil.copytree(tree / "step_7", tree / "step_8")

    assert steps_of(find_dumps(tree)) == (7, 8)
    assert read_dump(tree, step=8).step == 8
    with pytest.raises(UnreadableDump, match="holds the steps 7, 8: name one"):
        read_dump(tree)
    with pytest.raises(UnreadableDump, match="7, 8 and not 9"):
        read_dump(tree, step=9)


def test_msprobes_own_tree_gives_the_step(tmp_path):
    root = unpack("l0", tmp_path)
    shutil.move(root / "step0", root / "step3")

    assert read_dump(root).step == 3


def test_a_dump_without_a_process_group_is_rank_zero(tmp_path):
    root = unpack("l0", tmp_path)
    shutil.move(root / "step0" / "rank0", root / "step0" / "proc4711")

    assert set(read_dump(root).stages["unknown"]) == {0}


@pytest.mark.parametrize("other", ["proc12", "rank1"])
def test_process_folders_of_several_runs_are_refused(tmp_path, other):
    root = unpack("l0", tmp_path)
    shutil.move(root / "step0" / "rank0", root / "step0" / "proc4711")
    shutil.copytree(root / "step0" / "proc4711", root / "step0" / other)

    with pytest.raises(UnreadableDump, match="proc4711 of several runs"):
        read_dump(root)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is empty"),
        ("[]", "not a dump.json"),
        ("nonsense", "not a dump.json"),
        ('{"data": {}}', "not a dump.json of msprobe"),
        ('{"task": "statistics", "level": "L0", "data": {}}', "only just begun"),
        (
            '{"task": "statistics", "level": "L0", "data": {"Module.a.B.forward.0": {"input_args": [',
            "still being written",
        ),
    ],
)
def test_what_is_no_whole_dump_is_refused_in_one_line(tmp_path, content, why):
    (tmp_path / "dump.json").write_text(content)

    with pytest.raises(UnreadableDump, match=why) as caught:
        read_dump(tmp_path)

    assert "\n" not in str(caught.value)


def test_missing_paths_and_folders_without_a_dump_are_refused(tmp_path):
    with pytest.raises(UnreadableDump, match="does not exist"):
        read_dump(tmp_path / "nothing")
    with pytest.raises(UnreadableDump, match=r"no dump\.json in it"):
        read_dump(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "dump.json").write_bytes(b'{"task": "\xff\xfe"}')

    with pytest.raises(UnreadableDump, match="cannot be read"):
        read_dump(tmp_path)


def test_bare_nan_and_infinity_are_numbers(tmp_path):
    def spoil(found):
        tensors(found["data"]["Module.lm_head.Linear.forward.0"]["output"])[0].update(Max=math.inf, Mean=math.nan)

    root = edit(unpack("l0", tmp_path), spoil)

    row = next(
        row for row in read_dump(root).stages["unknown"][0] if row.module == "lm_head" and row.position == "output.0"
    )
    assert row.max == math.inf
    assert math.isnan(row.mean)


@pytest.mark.parametrize("spoilt", ["missing", "cut"])
def test_without_construct_json_the_dump_is_read_and_a_note_says_so(tmp_path, spoilt):
    root = unpack("mix", tmp_path)
    path = next(root.rglob("construct.json"))
    path.unlink() if spoilt == "missing" else path.write_text('{"a"')

    dump = read_dump(root)

    assert "construct.json" in dump.notes[0]
    assert {row.parent for row in dump.stages["unknown"][0]} == {""}


def test_megatrons_parents_come_with_a_micro_step(tmp_path):
    def pair(found):
        for key, value in found.items():
            found[key] = [value, 0]

    root = edit(unpack("mix", tmp_path), pair, file="construct.json")

    assert "Module.lm_head.Linear.forward.0" in {row.parent for row in read_dump(root).stages["unknown"][0]}


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
def test_the_size_of_a_chunk_does_not_matter(tmp_path, monkeypatch, size):
    root = unpack("l0", tmp_path)
    whole = read_dump(root).stages

    monkeypatch.setattr(msprobe_json, "CHUNK_CHARS", size)

    assert read_dump(root).stages == whole


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_dump_cut_anywhere_is_refused(tmp_path, data):
    file = tmp_path / "l0" / "step0" / "rank0" / "dump.json"
    text = file.read_text() if file.exists() else next(unpack("l0", tmp_path).rglob("dump.json")).read_text()
    cut = tmp_path / "dump.json"
    cut.write_text(text[: data.draw(st.integers(0, len(text) - 1))])

    with pytest.raises(UnreadableDump):
        read_rank(cut)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["task", "level", "data", "framework"]), st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["Module.a.B.forward.0", "input_args", "output", "type", "dtype", "shape", "Max", "value", "parameters"]), inner, max_size=4),
    max_leaves=12,
)))  # fmt: skip
def test_any_json_is_read_or_refused_but_never_an_accident(tmp_path, document):
    (tmp_path / "dump.json").write_text(json.dumps(document))

    with contextlib.suppress(UnreadableDump):
        read_rank(tmp_path / "dump.json")


def test_a_file_of_another_kind_is_no_dump_and_the_message_says_what_is_one(tmp_path):
    (tmp_path / "gpu.sentinel").write_bytes(b"\x1f\x8b\xfe")

    with pytest.raises(UnreadableDump, match=r"give a dump folder or a dump\.json"):
        find_dumps(tmp_path / "gpu.sentinel")
