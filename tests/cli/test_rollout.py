# SPDX-License-Identifier: Apache-2.0
"""`sentinel rollout check`: verdict, exit code and form, on the zoo and on bad input."""

import ast
import json
from pathlib import Path

import pytest

from sentinel.cli import main

ZOO = Path(__file__).parents[1] / "data" / "formats" / "verl_rollout"
CASES = sorted(path.name.removesuffix(".expected.json") for path in ZOO.glob("*.expected.json"))


def check(capsys, *words):
    code = main(["rollout", "check", *map(str, words), "--json"])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else None, out.err


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def row(output, prompt="q", score=1.0, **more):
    return {"input": prompt, "output": output, "score": score, **more}


@pytest.mark.parametrize("case", CASES)
def test_every_case_of_the_zoo_agrees(case, capsys):
    expected = json.loads((ZOO / f"{case}.expected.json").read_text())
    source = next(path for path in ZOO.glob(f"{case}.json*") if "expected" not in path.name)
    code, said, _ = check(capsys, source)
    assert said["verdict"] in {expected["verdict"], *expected.get("also_accept", ())}
    assert said["share"] == pytest.approx(expected["share"], abs=1e-6)
    assert said["rows"] == expected["rows"]
    assert set(expected["warnings"]) <= set(said["warnings"])
    assert code == (said["verdict"] != "healthy")
    for step, wanted in expected.get("by_step", {}).items():
        assert {key: said["by_step"][step][key] for key in wanted} == wanted


def test_the_zoo_is_whole():
    assert len(CASES) == 10


def test_a_folder_is_judged_step_by_step_and_says_what_it_passed_over(tmp_path, capsys):
    write(tmp_path / "1.jsonl", row("Fine, that is 4."))
    write(tmp_path / "3.jsonl", row("!" * 90))
    (tmp_path / "notes.txt").write_text("x")
    code, said, _ = check(capsys, tmp_path)
    assert code == 1
    assert {step: found["verdict"] for step, found in said["by_step"].items()} == {"1": "healthy", "3": "garbled"}
    assert {"other_files", "missing_steps"} <= set(said["warnings"])


def test_lines_that_are_damaged_or_still_written_are_left_out_and_said(tmp_path, capsys):
    path = tmp_path / "1.jsonl"
    whole = json.dumps(row("It is 4.")).encode()
    path.write_bytes(whole + b"\n{broken\n" + whole.replace(b"It", b"\xff\xfe") + b"\n" + whole[:-9])
    code, said, _ = check(capsys, path)
    assert code == 0
    assert len(said["rows"]) == 2
    assert set(said["warnings"]) == {"corrupt_line", "invalid_utf8", "truncated_line"}


def test_rows_are_aligned_by_step_and_prompt_whatever_their_order(tmp_path, capsys):
    write(tmp_path / "a" / "1.jsonl", row("The answer is 4.", "p1"), row("It is 5.", "p2"), row("It is 5.", "p2"))
    write(tmp_path / "b" / "1.jsonl", row("It is 5.", "p2"), row("The answer is 9.", "p1"), row("It is 5.", "p2", 0.0))
    _, said, _ = check(capsys, tmp_path / "a", "--against", tmp_path / "b")
    beside = said["against"]
    assert (beside["aligned_rows"], beside["identical_rows"], beside["first_different_step"]) == (3, 2, 1)
    (parting,) = beside["partings"]
    assert (parting["prompt"], parting["at_character"], parting["here"], parting["there"]) == ("p1", 14, "4.", "9.")
    assert beside["score_differs_rows"] == 1, "equal text, another score: the reward function"


def test_equal_rollouts_part_nowhere(tmp_path, capsys):
    write(tmp_path / "1.jsonl", row("It is 5.", score=float("nan")))
    code, said, _ = check(capsys, tmp_path, "--against", tmp_path)
    assert code == 0
    assert said["against"]["first_different_step"] is None
    assert said["against"]["score_differs_rows"] == 0
    assert "bare_nan" in said["warnings"]


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: folder / "absent",
        lambda folder: folder,
        lambda folder: write(folder / "1.jsonl"),
        lambda folder: write(folder / "1.jsonl", {"step": 1, "data": {"actor/loss": 1.0}}),
    ],
)
def test_what_is_no_rollout_text_is_one_line_and_exit_2(make, tmp_path, capsys):
    code, said, err = check(capsys, make(tmp_path))
    assert (code, said) == (2, None)
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


def test_a_terminal_obeys_nothing_of_the_model_output(tmp_path, capsys):
    write(tmp_path / "1.jsonl", *[row("\x1b[2J\x1b]0;owned\x07\x1b[31m\x00\x01\x02")] * 3)
    main(["rollout", "check", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\\x1b[2J" in shown


def test_a_smaller_reproduction_is_written_for_the_first_bad_row(tmp_path, capsys):
    hostile = '"""\nimport os\nos.system("x")\n' + "!" * 90
    write(
        tmp_path / "r" / "4.jsonl", row("It is 5."), row(hostile, "system\nBe brief.\nuser\nWhat is 2+3?\nassistant\n")
    )
    _, said, _ = check(capsys, tmp_path / "r", "--reproduce", tmp_path / "repro.py")
    made = (tmp_path / "repro.py").read_text()
    tree = ast.parse(made)
    assert (said["reproduction"]["step"], said["reproduction"]["row"]) == (4, 1)
    assert "QUESTION = 'What is 2+3?'" in made
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert "os.system" not in calls, "model output is data"
    assert "actor_rollout_ref.rollout.n=1" in said["reproduction"]["overrides"]


def test_a_threshold_that_is_no_share_is_refused(tmp_path, capsys):
    write(tmp_path / "1.jsonl", row("It is 5."))
    assert check(capsys, tmp_path, "--threshold", "0")[0] == 2


def test_evaluate_scores_a_labelled_set(capsys):
    path = Path(__file__).parents[1] / "data" / "rollout_text" / "labelled.jsonl.gz"
    assert main(["evaluate", str(path), "--json"]) == 0
    text = json.loads(capsys.readouterr().out)["text"]
    assert text["right"]["held"]["value"] >= 0.99
    assert text["healthy_files_called_broken"] == 0
