# SPDX-License-Identifier: Apache-2.0
"""`sentinel baseline`: forms and exit codes of the contract."""

import json
from pathlib import Path

import pytest

from sentinel.cli import main
from sentinel.storage.bundle import open_bundle
from tests.support.baselines import receipt_record, start_record, step_record, write_dump, write_recording


def a_log(path: Path, offset=0.0, key="actor/loss") -> str:
    lines = [json.dumps({"step": step, "data": {key: step + offset}}) for step in range(1, 5)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with two seeds, a twin, golden dumps, rollouts, a model and a configuration; the working directory."""
    monkeypatch.chdir(tmp_path)
    a_log(tmp_path / "1.jsonl")
    a_log(tmp_path / "2.jsonl", offset=0.5)
    a_log(tmp_path / "twin.jsonl", offset=0.001)
    write_dump(tmp_path / "golden", 3, "actor_update")
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "1.jsonl").write_text('{"output": "x"}\n')
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "config.yaml").write_text("lr: 0.1\n")
    return tmp_path


def sentinel(capsys, *words):
    """Run a verb; return its exit code, its JSON document (None where there is none) and its standard error."""
    code = main(["baseline", *" ".join(words).split()])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out.startswith("{") else None, err


OPTIONS = "--twin twin.jsonl --dumps golden --rollouts rollouts --model model --config config.yaml"
RECORD = f"record 1.jsonl 2.jsonl -o b {OPTIONS}"


def test_record_makes_a_bundle_and_prints_its_manifest(here, capsys):
    code, manifest, err = sentinel(capsys, RECORD, "--name", "grpo", "--json")

    assert (code, err) == (0, "")
    assert manifest == open_bundle("b").manifest
    assert manifest["name"] == "grpo"
    assert [(r["source"], r["twin"], r["steps"]) for r in manifest["runs"]] == [
        ("1.jsonl", False, 4),
        ("2.jsonl", False, 4),
        ("twin.jsonl", True, 4),
    ]
    assert manifest["dumps"] == [{"step": 3, "stage": "actor_update", "ranks": [0]}]
    assert manifest["rollout_steps"] == [1]
    assert list(manifest["fingerprint"]) == ["config", "model"]
    assert manifest["made"].startswith("sentinel baseline record 1.jsonl 2.jsonl -o b")


def test_a_sample_of_the_rollouts_is_the_first_rows_of_each_step(here, capsys):
    (here / "rollouts" / "2.jsonl").write_text('{"output": "a"}\n{"output": "b"}\n{"output": "c"}\n')
    (here / "rollouts" / "notes.txt").write_text("no text of a step")

    code, manifest, _ = sentinel(capsys, "record 1.jsonl -o b --rollouts rollouts --rollout-rows 2 --json")

    assert (code, manifest["rollout_steps"]) == (0, [1, 2])
    assert open_bundle("b").rollouts(2) == [{"output": "a"}, {"output": "b"}]
    assert "--rollout-rows 2" in manifest["made"]
    assert sorted(path.name for path in here.iterdir() if path.name.startswith(".")) == []


def test_show_prints_the_same_manifest(here, capsys):
    recorded = sentinel(capsys, RECORD, "--json")[1]

    assert sentinel(capsys, "show", "b", "--json")[:2] == (0, recorded)


def test_show_has_a_form_for_people(here, capsys):
    sentinel(capsys, RECORD)
    main(["baseline", "show", "b"])
    text = capsys.readouterr().out

    for word in ("1.jsonl", "twin", "actor_update", "metrics: 1", "config, model"):
        assert word in text


def test_add_adds_seeds_twins_and_dumps_and_keeps_the_rest(here, capsys):
    created = sentinel(capsys, "record", "1.jsonl", "-o", "b", "--rollouts", "rollouts", "--json")[1]["created"]

    code, manifest, _ = sentinel(capsys, "add b 2.jsonl --twin twin.jsonl --dumps golden --json")

    assert code == 0
    assert [(run["source"], run["twin"]) for run in manifest["runs"]] == [
        ("1.jsonl", False),
        ("2.jsonl", False),
        ("twin.jsonl", True),
    ]
    assert (manifest["created"], manifest["rollout_steps"], len(manifest["dumps"])) == (created, [1], 1)
    assert len(manifest["made"].splitlines()) == 2
    assert len(open_bundle("b").reference().runs) == 3


def test_rollout_text_and_a_rollout_recording_travel_together(here, capsys):
    inner = here / "skip" / "exp_proj" / "GBS8_N4_in16_out32" / "3"
    inner.mkdir(parents=True)
    (inner / "gen_batch.dp").write_bytes(b"never opened")
    sentinel(capsys, "record 1.jsonl -o b --rollouts rollouts")

    code, manifest, _ = sentinel(capsys, "add b --rollouts skip --json")

    assert (code, manifest["rollout_steps"]) == (0, [1, 3])
    assert sentinel(capsys, "add b --rollouts rollouts")[2].endswith("1.jsonl are there already; keep one\n")


def test_two_bundles_are_merged_and_the_first_ones_rollouts_are_kept(here, capsys):
    sentinel(capsys, "record 1.jsonl -o one --rollouts rollouts")
    (here / "rollouts" / "1.jsonl").write_text('{"output": "y"}\n')
    sentinel(capsys, "record 2.jsonl -o two --rollouts rollouts --dumps golden")

    code, manifest, err = sentinel(capsys, "record one two -o b --json")

    assert (code, [run["source"] for run in manifest["runs"]]) == (0, ["1.jsonl", "2.jsonl"])
    assert open_bundle("b").rollouts(1) == [{"output": "x"}]
    assert len(manifest["dumps"]) == 1
    assert "the rollouts of 2 are left out" in err


def test_a_recording_tells_where_its_rollouts_are(here, capsys):
    write_recording(here / "gpu.rec", start_record(rollout_data_dir=str(here / "rollouts")), step_record(1, m=1.0))

    assert str(here / "rollouts") in sentinel(capsys, "record gpu.rec -o b")[2]
    assert "takes them along" not in sentinel(capsys, "record gpu.rec -o b --rollouts rollouts")[2]


def test_add_of_nothing_and_to_no_bundle_is_refused(here, capsys):
    sentinel(capsys, RECORD)

    assert sentinel(capsys, "add", "b")[0] == 2
    assert sentinel(capsys, "add", "1.jsonl", "2.jsonl")[0] == 2
    assert sentinel(capsys, "add", "nowhere", "2.jsonl")[0] == 2


def test_a_recording_is_shown_as_it_is_and_closed_into_a_bundle(here, capsys):
    write_recording(
        here / "gpu.rec",
        start_record(),
        step_record(1, actor__loss=0.5),
        receipt_record(3, "actor_update"),
        {"t": "end"},
    )
    write_dump(here / "gpu.rec.dumps", 3, "actor_update")

    shown = sentinel(capsys, "show", "gpu.rec", "--json")[1]
    recorded = sentinel(capsys, "record", "gpu.rec", "-o", "b", "--json")[1]

    assert shown["dumps"] == recorded["dumps"] == [{"step": 3, "stage": "actor_update", "ranks": [0]}]
    assert shown["runs"] == recorded["runs"]
    assert (
        shown["fingerprint"]
        == recorded["fingerprint"]
        == {"facts": {"verl": "0.9.1", "trainer": "v1", "experiment": "exp"}}
    )
    assert sentinel(capsys, "diff", "gpu.rec", "b", "--json")[:1] == (0,)


def test_equal_contents_are_the_same_whatever_they_are_called(here, capsys):
    sentinel(capsys, RECORD)
    sentinel(capsys, "record", "2.jsonl", "1.jsonl", "-o", "c", "--name", "other", OPTIONS)

    code, difference, _ = sentinel(capsys, "diff", "b", "c", "--json")

    assert (code, difference["same"]) == (0, True)


def test_diff_names_every_difference(here, capsys):
    sentinel(capsys, RECORD)
    a_log(here / "2.jsonl", offset=0.75)
    a_log(here / "3.jsonl", key="critic/loss")
    write_dump(here / "golden", 3, "actor_update", norm=2.0)
    write_dump(here / "golden", 4, "actor_update")
    (here / "rollouts" / "1.jsonl").write_text('{"output": "y"}\n')
    (here / "config.yaml").write_text("lr: 0.2\n")
    sentinel(capsys, "record", "3.jsonl", "2.jsonl", "-o", "c", OPTIONS)

    code, difference, _ = sentinel(capsys, "diff", "b", "c", "--json")

    assert code == 1
    assert difference == {
        "same": False,
        "metrics": {"only_in_a": [], "only_in_b": ["critic/loss"]},
        "runs": {
            "only_in_a": ["1.jsonl"],
            "only_in_b": ["3.jsonl"],
            "changed": [{"source": "2.jsonl", "first_step": 1}],
        },
        "dumps": {
            "only_in_a": [],
            "only_in_b": ["step_4/actor_update/rank0"],
            "changed": ["step_3/actor_update/rank0"],
        },
        "rollouts": {"only_in_a": [], "only_in_b": [], "changed": ["1.jsonl"]},
        "fingerprint": [{"key": "config.values.lr", "a": 0.1, "b": 0.2}],
    }
    main(["baseline", "diff", "b", "c"])
    assert "config.values.lr: 0.1 in a, 0.2 in b" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        "record nowhere -o b",
        "record 1.jsonl -o b --dumps model",
        "record 1.jsonl -o b --dumps nowhere",
        "record 1.jsonl -o b --model nowhere",
        "record 1.jsonl -o b --config nowhere",
        "record 1.jsonl -o b --rollouts nowhere",
        "record 1.jsonl -o b --rollout-rows 2",
        "record 1.jsonl -o b --rollouts rollouts --rollout-rows 0",
        "record 1.jsonl -o b --rollouts model --rollout-rows 2",
        "record 1.jsonl -o no/such/folder/b",
        "record config.yaml -o b",
        "record 1.jsonl",
        "show nowhere",
        "show config.yaml",
        "diff 1.jsonl nowhere",
        "show",
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(here, capsys, words):
    code = main(["baseline", *words.split()])
    out, err = capsys.readouterr()

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Traceback" not in err
    assert not (here / "b").exists()


def test_a_damaged_bundle_is_one_line_and_exit_code_2(here, capsys):
    sentinel(capsys, RECORD)
    content = bytearray((here / "b").read_bytes())
    content[len(content) // 2] ^= 1
    (here / "b").write_bytes(content)

    code, _, err = sentinel(capsys, "show", "b")

    assert (code, err.count("\n")) == (2, 1)


def test_a_seed_that_is_there_twice_is_said(here, capsys):
    a_log(here / "copy.jsonl")

    code, _, err = sentinel(capsys, "record", "1.jsonl", "copy.jsonl", "-o", "b")

    assert code == 0
    assert "copy.jsonl has exactly the metrics of 1.jsonl" in err


def test_recorded_seeds_that_dumped_the_same_steps_give_one_golden_dump_of_each(here, capsys):
    sentinel(capsys, "record 1.jsonl -o one --dumps golden")
    sentinel(capsys, "record 2.jsonl -o two --dumps golden")

    code, manifest, err = sentinel(capsys, "record one two -o b --json")

    assert (code, len(manifest["runs"]), len(manifest["dumps"])) == (0, 2, 1)
    assert "1 of its golden dumps are left out" in err
