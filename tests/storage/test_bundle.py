# SPDX-License-Identifier: Apache-2.0
"""A bundle gives back what went into it, anywhere, or says in one line why it cannot."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.errors import BaselineError
from sentinel.records import GoldenDump, Reading, ReferenceRun
from sentinel.storage.bundle import is_bundle, open_bundle, write_bundle
from tests.support.baselines import a_golden, a_run, same_readings
from tests.support.properties import unhurried

ROOT = Path(__file__).parents[2]


def a_bundle(folder: Path, name="b.sentinel", **changed) -> Path:
    """A bundle with two seeds, a twin, a golden dump of two ranks, two rollout files and a fingerprint."""
    rollouts = folder / "rollouts"
    rollouts.mkdir(exist_ok=True)
    for step in (1, 2):
        rollouts.joinpath(f"{step}.jsonl").write_text(json.dumps({"input": "q", "output": "中", "step": step}) + "\n\n")
    arguments = {
        "name": "grpo",
        "runs": [a_run("t.log", twin=True), a_run("1.log", resolution=0.001), a_run("2.log", offset=0.5)],
        "dumps": [a_golden(folder / "golden", ranks=(0, 1))],
        "rollouts": rollouts,
        "fingerprint": {"model": {"files": {}}},
        "made": "by a test",
        "created": "2026-01-31T12:00:00Z",
    }
    write_bundle(folder / name, **arguments | changed)
    return folder / name


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    return a_bundle(tmp_path_factory.mktemp("sealed")).read_bytes()


def test_a_reference_comes_back_whole(tmp_path):
    bundle = open_bundle(a_bundle(tmp_path))
    reference = bundle.reference()

    assert (reference.name, reference.rollout_steps) == ("grpo", (1, 2))
    assert reference.runs == (a_run("1.log", resolution=0.001), a_run("2.log", offset=0.5), a_run("t.log", twin=True))
    assert reference.dumps == (GoldenDump(3, "actor_update", (0, 1), "dumps/step_3/actor_update"),)
    assert reference.fingerprint == {"model": {"files": {}}}


def test_the_manifest_has_the_form_of_the_contract(tmp_path):
    manifest = open_bundle(a_bundle(tmp_path)).manifest

    assert manifest["name"] == "grpo"
    assert manifest["created"] == "2026-01-31T12:00:00Z"
    assert manifest["metrics"] == ["actor/grad_norm", "actor/loss"]
    assert manifest["rollout_steps"] == [1, 2]
    assert manifest["dumps"] == [{"step": 3, "stage": "actor_update", "ranks": [0, 1]}]
    assert manifest["fingerprint"] == {"model": {"files": {}}}
    assert {"source": "1.log", "steps": 5, "first_step": 1, "last_step": 5}.items() <= manifest["runs"][0].items()
    assert [run["twin"] for run in manifest["runs"]] == [False, False, True]
    json.dumps(manifest, allow_nan=False)


keys = st.text(max_size=12) | st.sampled_from(["step", "manifest.json"])
runs = st.lists(
    st.builds(
        ReferenceRun,
        source=st.text(max_size=12),
        readings=st.lists(
            st.builds(Reading, step=st.integers(0, 99), metrics=st.dictionaries(keys, st.floats(), max_size=4)),
            max_size=5,
        ).map(tuple),
        twin=st.booleans(),
        resolution=st.none() | st.floats(0.0, 1.0),
    ),
    max_size=3,
)


@unhurried
@given(runs=runs, name=st.text(max_size=20))
def test_any_metrics_come_back(tmp_path_factory, runs, name):
    path = tmp_path_factory.getbasetemp() / "any.sentinel"
    write_bundle(path, name=name, runs=runs)

    reference = open_bundle(path).reference()

    assert reference.name == name
    for before, after in zip(sorted(runs, key=lambda run: run.twin), reference.runs, strict=True):
        assert (before.source, before.twin, before.resolution) == (after.source, after.twin, after.resolution)
        assert same_readings(before.readings, after.readings)


@unhurried
@given(position=st.integers(min_value=0), bit=st.integers(0, 7))
def test_any_flipped_bit_is_refused(sealed, tmp_path_factory, position, bit):
    broken = bytearray(sealed)
    broken[position % len(broken)] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "flipped.sentinel"
    path.write_bytes(broken)

    with pytest.raises(BaselineError):
        open_bundle(path)


@unhurried
@given(cut=st.integers(min_value=0), tail=st.binary(max_size=8))
def test_any_cut_or_tail_is_refused(sealed, tmp_path_factory, cut, tail):
    cut %= len(sealed)
    path = tmp_path_factory.getbasetemp() / "cut.sentinel"
    for content in (sealed[:cut] + tail, sealed + b"\0" + tail):
        path.write_bytes(content)
        with pytest.raises(BaselineError):
            open_bundle(path)


def test_the_same_inputs_give_the_same_bytes(tmp_path):
    first = a_bundle(tmp_path).read_bytes()
    os.utime(tmp_path / "rollouts" / "1.jsonl", (1, 1))

    assert a_bundle(tmp_path, "again.sentinel").read_bytes() == first
    with zipfile.ZipFile(tmp_path / "again.sentinel") as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_golden_dumps_are_unpacked_as_they_were(tmp_path):
    bundle = open_bundle(a_bundle(tmp_path))

    folder = bundle.extract_dump(3, "actor_update", tmp_path / "out")

    assert folder == tmp_path / "out" / "step_3" / "actor_update"
    before = {p.relative_to(tmp_path / "golden"): p.read_bytes() for p in (tmp_path / "golden").rglob("*.json")}
    after = {p.relative_to(tmp_path / "out"): p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert len(after) == 6
    assert after == before
    with pytest.raises(BaselineError, match="no golden dump of step 4"):
        bundle.extract_dump(4, "actor_update", tmp_path / "out")


def test_rollouts_are_read_by_step_and_unpacked_whole(tmp_path):
    bundle = open_bundle(a_bundle(tmp_path))

    assert bundle.rollouts(2) == [{"input": "q", "output": "中", "step": 2}]
    assert bundle.extract_rollouts(tmp_path / "out") == tmp_path / "out"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["1.jsonl", "2.jsonl"]
    with pytest.raises(BaselineError, match="no rollout text of step 7"):
        bundle.rollouts(7)


def test_a_rollout_recording_travels_as_it_is(tmp_path):
    inner = tmp_path / "rollouts" / "exp_project" / "GBS8_N4_in16_out32" / "12"
    inner.mkdir(parents=True)
    (inner / "gen_batch.dp").write_bytes(b"\x80\x04never unpickled")
    (inner / "meta.json").write_text("{}")

    bundle = open_bundle(a_bundle(tmp_path))

    assert bundle.reference().rollout_steps == (1, 2, 12)
    out = bundle.extract_rollouts(tmp_path / "out")
    assert (out / inner.relative_to(tmp_path / "rollouts") / "gen_batch.dp").read_bytes() == b"\x80\x04never unpickled"


def test_rollouts_of_endless_repetition_do_not_look_like_a_bomb(tmp_path):
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "9.jsonl").write_bytes(b'"' + b"!" * (17 << 20) + b'"\n')

    assert len(open_bundle(a_bundle(tmp_path)).rollouts(9)) == 1


def test_a_bundle_without_anything_but_dumps_opens(tmp_path):
    reference = open_bundle(a_bundle(tmp_path, runs=[], rollouts=None, fingerprint=None)).reference()

    assert reference.runs == ()
    assert len(reference.dumps) == 1


def test_a_failed_write_leaves_the_old_bundle(tmp_path):
    path = a_bundle(tmp_path)
    before = path.read_bytes()

    with pytest.raises(BaselineError, match="holds no rollout files"):
        write_bundle(path, name="x", runs=[], rollouts=tmp_path / "nothing here")
    with pytest.raises(BaselineError, match="cannot be written"):
        write_bundle(tmp_path / "no" / "such" / "folder", name="x", runs=[])

    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".*.part"))


def test_a_golden_dump_that_was_never_finished_is_refused(tmp_path):
    golden = a_golden(tmp_path / "golden")
    dump = Path(golden.path) / "step0" / "rank0" / "dump.json"
    for content in ('{"data": {}}', '{"data": {"Mod', "[]"):
        dump.write_text(content)
        with pytest.raises(BaselineError, match="was not finished"):
            write_bundle(tmp_path / "b", name="x", runs=[], dumps=[golden])


def test_a_golden_dump_is_there_once(tmp_path):
    a, b = a_golden(tmp_path / "a"), a_golden(tmp_path / "b")

    with pytest.raises(BaselineError, match="is there already"):
        write_bundle(tmp_path / "x", name="x", runs=[], dumps=[a, b])


def repacked(path: Path, change) -> Path:
    """The bundle packed again by a stranger who may leave out, change or add members."""
    with zipfile.ZipFile(path) as old:
        members = {info.filename: old.read(info) for info in old.infolist()}
    change(members)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in members.items():
            new.writestr(name, content)
    return path


def with_manifest(**changes):
    def change(members):
        members["manifest.json"] = json.dumps(json.loads(members["manifest.json"]) | changes).encode()

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda m: None, "seal is broken"),
        (lambda m: m.pop("metrics.parquet"), "metrics.parquet is missing"),
        (lambda m: m.pop("rollouts/1.jsonl"), "rollouts/1.jsonl is missing"),
        (lambda m: m.pop("manifest.json"), "no baseline bundle"),
        (lambda m: m.update({"rollouts/1.jsonl": b"{}"}), "rollouts/1.jsonl was changed"),
        (lambda m: m.update({"more.txt": b""}), "does not name: more.txt"),
        (lambda m: m.update({"manifest.json": b"{"}), "manifest is no JSON"),
        (lambda m: m.update({"manifest.json": b"[" * 100_000}), "manifest is no JSON"),
        (with_manifest(format=2), "bundle format 2 is not known"),
        (with_manifest(format=None), "bundle format None is not known"),
        (with_manifest(runs="none"), "manifest is at fault"),
        (with_manifest(parts={}), "is missing"),
        (with_manifest(metrics=[]), "seal is broken"),
        (with_manifest(dumps=[{"step": 9, "stage": "../x", "ranks": [0]}]), "is missing"),
        (lambda m: m.update({"../../evil": b""}), "unsafe name"),
        (lambda m: m.update({"/etc/cron.d/evil": b""}), "unsafe name"),
        (lambda m: m.update({"rollouts/..\\evil": b""}), "unsafe name"),
        (lambda m: m.update({"rollouts/a\nb": b""}), "unsafe name"),
        (lambda m: m.update({"rollouts/3.jsonl": b"\0" * (64 << 20)}), "zip bomb"),
        (lambda m: m.update({"metrics.parquet": b"\0" * (64 << 20)}), "zip bomb"),
    ],
)
def test_what_strangers_do_to_a_bundle_is_told_in_one_line(tmp_path, change, why):
    path = repacked(a_bundle(tmp_path), change)

    with pytest.raises(BaselineError, match=why) as refused:
        open_bundle(path)

    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip", b"\x00" * 4096, b"PK\x05\x06" + b"\0" * 18])
def test_what_is_no_bundle_is_refused(tmp_path, content):
    path = tmp_path / "x.sentinel"
    path.write_bytes(content)

    with pytest.raises(BaselineError):
        open_bundle(path)


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(BaselineError, match="no such file"):
        open_bundle(tmp_path / "nowhere")
    with pytest.raises(BaselineError, match="cannot be read"):
        open_bundle(tmp_path)


def test_two_members_of_one_name_are_refused(tmp_path):
    path = a_bundle(tmp_path)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("metrics.parquet", b"")

    with pytest.raises(BaselineError, match="two parts named metrics"):
        open_bundle(path)


def test_an_encrypted_member_is_refused(tmp_path):
    content = bytearray(a_bundle(tmp_path).read_bytes())
    central = content.rindex(b"PK\x01\x02")  # the manifest, the last member
    content[central + 8] |= 1
    path = tmp_path / "encrypted"
    path.write_bytes(content)

    with pytest.raises(BaselineError):
        open_bundle(path)


def test_a_table_that_points_outside_the_file_is_refused(tmp_path):
    content = bytearray(a_bundle(tmp_path).read_bytes())
    central = content.rindex(b"PK\x01\x02")
    content[central + 42 : central + 46] = b"\xff\xff\xff\x7f"  # where the member begins
    path = tmp_path / "pointing"
    path.write_bytes(content)
    end = content.rindex(b"PK\x05\x06")
    before_the_beginning = content[: end + 16] + b"\xff\xff\xff\x7f" + content[end + 20 :]
    (tmp_path / "negative").write_bytes(before_the_beginning)

    for broken in (path, tmp_path / "negative"):
        with pytest.raises(BaselineError):
            open_bundle(broken)


def test_a_disk_that_fills_up_while_unpacking_is_no_damage_of_the_bundle(tmp_path):
    bundle = open_bundle(a_bundle(tmp_path))
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(BaselineError, match="cannot be unpacked to"):
        bundle.extract_rollouts(tmp_path / "file")


def test_a_part_that_changes_after_opening_is_noticed(tmp_path):
    path = a_bundle(tmp_path)
    bundle = open_bundle(path)
    path.write_bytes(path.read_bytes().replace(b"PK\x03\x04", b"PK\x03\x05"))

    with pytest.raises(BaselineError):
        bundle.extract_dump(3, "actor_update", tmp_path / "out")
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]


def test_a_bundle_is_known_by_its_content(tmp_path, sealed):
    path = tmp_path / "some.log"
    path.write_bytes(sealed)
    assert is_bundle(path)
    path.write_bytes(b"step:1 - actor/loss:0.5\n")
    assert not is_bundle(path)


def test_it_opens_without_torch_verl_or_ray(tmp_path):
    path = a_bundle(tmp_path)
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'verl', 'ray', 'msprobe']));"
        "from sentinel.storage.bundle import open_bundle; print(len(open_bundle(sys.argv[1]).reference().runs))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout == "3\n"


def test_nothing_in_the_reading_code_can_unpickle():
    for module in ("bundle", "archive", "metrics_table", "manifest", "recording", "dump_tree"):
        assert "pickle" not in (ROOT / "sentinel" / "storage" / f"{module}.py").read_text().replace(
            "unpickled", ""
        ).replace("pickles", "")


def test_a_thousand_steps_of_a_hundred_metrics_and_five_seeds_stay_under_five_megabytes(tmp_path):
    import random

    random_numbers = random.Random(1)
    big = [
        ReferenceRun(
            source=f"{seed}.log",
            readings=tuple(
                Reading(step=step, metrics={f"group/metric_{i}": random_numbers.gauss(i, 1.0) for i in range(100)})
                for step in range(1000)
            ),
        )
        for seed in range(5)
    ]
    write_bundle(tmp_path / "big", name="big", runs=big)

    assert (tmp_path / "big").stat().st_size < 5_000_000


def test_the_members_are_plain_zip_and_parquet(tmp_path):
    import pyarrow.parquet as pq

    with zipfile.ZipFile(a_bundle(tmp_path)) as archive:
        table = pq.read_table(io.BytesIO(archive.read("metrics.parquet")))

    assert table.num_rows == 15
