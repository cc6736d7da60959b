# SPDX-License-Identifier: Apache-2.0
"""`sentinel replay` on files."""

import json
import math

import pytest

from sentinel.cli import main
from tests.support.runs import a_grpo_run, changed, repeated, replaced, scaled

RUN = a_grpo_run(steps=12)


def a_file(folder, name, run):
    path = folder / f"{name}.jsonl"
    path.write_text(
        "".join(json.dumps({"step": reading.step, "data": dict(reading.metrics)}) + "\n" for reading in run)
    )
    return str(path)


@pytest.fixture
def files(tmp_path):
    return {
        name: a_file(tmp_path, name, run)
        for name, run in {
            "golden": RUN,
            "twin": repeated(RUN, seed=3),
            "healthy": repeated(RUN, seed=4),
            "bad": changed(RUN, at=5, change=scaled("actor/kl_loss", 1.2)),
            "nan": changed(RUN, at=5, change=replaced(actor__grad_norm=math.nan)),
            "other": changed(RUN, at=1, change=lambda metrics: {f"x/{key}": value for key, value in metrics.items()}),
        }.items()
    }


def asked(capsys, *words):
    code = main(["replay", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_healthy_replay_is_healthy(files, capsys):
    code, answer = asked(capsys, files["healthy"], "--baseline", files["golden"], "--twin", files["twin"])

    assert code == 0
    assert (answer["verdict"], answer["regime"], answer["steps"], answer["incidents"]) == (
        "healthy",
        "replayed",
        12,
        [],
    )


def test_a_fault_is_a_finding_and_exit_code_1(files, capsys):
    code, answer = asked(capsys, files["bad"], "--baseline", files["golden"], "--twin", files["twin"])

    assert code == 1
    assert answer["verdict"] == "diverged"
    (incident,) = answer["incidents"]
    assert (incident["opened_at_step"], incident["stage"], incident["capture"]) == (5, "ref_compute_log_prob", None)
    assert incident["receipt"]["outcome"] == "refused"


def test_without_a_baseline_the_rules_that_need_none_apply(files, capsys):
    code, answer = asked(capsys, files["nan"])

    assert code == 1
    assert (answer["regime"], answer["incidents"][0]["findings"][0]["value"]) == ("alone", "nan")
    assert any(warning.startswith("no_baseline") for warning in answer["warnings"])


def test_the_regime_can_be_said(files, capsys):
    _, answer = asked(capsys, files["healthy"], "--baseline", files["golden"], "--regime", "free")

    assert answer["regime"] == "free"


def test_a_baseline_of_another_metric_set_is_not_comparable(files, capsys):
    code, answer = asked(capsys, files["other"], "--baseline", files["golden"])

    assert (code, answer["verdict"]) == (1, "not_comparable")


def test_a_file_without_steps_has_no_metrics(tmp_path, files, capsys):
    empty = tmp_path / "started.log"
    empty.write_text("(TaskRunner pid=1) INFO: step:0 is coming\nTraining Progress:   0%|          | 0/10\n")

    code = main(["replay", str(empty), "--baseline", files["golden"], "--json"])
    out = capsys.readouterr()

    assert (code, json.loads(out.out)["verdict"]) == (1, "no_metrics") if code == 1 else (2, "")
    assert "Traceback" not in out.err


def test_people_read_what_where_since_when(files, capsys):
    code = main(["replay", files["bad"], "--baseline", files["golden"], "--twin", files["twin"]])
    text = capsys.readouterr().out

    assert code == 1
    assert "diverged: 12 steps against golden, regime replayed" in text
    assert "ref_compute_log_prob since step 5" in text


@pytest.mark.parametrize("words", [("nowhere.jsonl",), ()])
def test_what_cannot_be_read_is_one_line_and_exit_code_2(words, capsys):
    try:
        code = main(["replay", *words])
    except SystemExit as left:
        code = left.code
    error = capsys.readouterr().err

    assert code == 2
    assert "Traceback" not in error
