# SPDX-License-Identifier: Apache-2.0
"""`sentinel triage`: exit codes, the JSON form, and one line for whatever is wrong."""

import json
import shutil

import pytest

from sentinel import cli
from tests.support.dumps import edit, tensors, unpack

FIELDS = {"verdict", "comparable", "first", "compared", "only_in_target", "only_in_golden", "ranks"}
FIRST = {"stage", "name", "module", "direction", "position", "why", "target", "golden"}


def broken(found):
    for tensor in tensors(found["data"]["Module.model.layers.1.mlp.up_proj.Linear.forward.0"]["output"]):
        for key in ("Max", "Min", "Mean", "Norm"):
            tensor[key] *= 1.05


def noisy(found):
    for tensor in tensors(found["data"]["Module.model.layers.1.mlp.up_proj.Linear.forward.0"]["output"]):
        for key in ("Max", "Min", "Mean", "Norm"):
            tensor[key] *= 1.0001


def not_a_number(found):
    for tensor in tensors(found["data"]["Module.lm_head.Linear.forward.0"]["output"]):
        tensor.update(Max=float("nan"), Min=float("nan"), Mean=float("nan"), Norm=float("inf"))


@pytest.fixture
def golden(tmp_path):
    return str(unpack("l0", tmp_path / "golden"))


@pytest.fixture
def target(tmp_path):
    return lambda change: str(edit(unpack("l0", tmp_path / "target"), change))


def ask(capsys, *words):
    code = cli.main(["triage", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_same_is_exit_code_zero(capsys, golden):
    code, out, err = ask(capsys, golden, golden, "--json")

    assert (code, err) == (0, "")
    found = json.loads(out)
    assert set(found) >= FIELDS
    assert (found["verdict"], found["first"]) == ("same", None)
    assert found["comparable"] == {"step": True, "rows": True, "weights": True}


def test_a_divergence_is_exit_code_one_and_names_the_module(capsys, golden, target):
    code, out, _ = ask(capsys, target(broken), golden, "--json")

    found = json.loads(out)
    assert (code, found["verdict"]) == (1, "diverged")
    assert set(found["first"]) == FIRST
    assert found["first"]["module"] == "model.layers.1.mlp.up_proj"
    assert found["first"]["direction"] == "forward"


def test_people_read_the_module_and_both_columns(capsys, golden, target):
    code, out, _ = ask(capsys, target(broken), golden)

    assert code == 1
    for words in ("diverged", "model.layers.1.mlp.up_proj", "step agrees", "target", "golden", "norm"):
        assert words in out


def test_one_dump_alone_is_searched_for_nan(capsys, golden, target):
    code, out, _ = ask(capsys, golden, "--json")
    assert (code, json.loads(out)["verdict"], json.loads(out)["comparable"]) == (0, "clean", None)

    code, out, _ = ask(capsys, target(not_a_number), "--json")
    found = json.loads(out)
    assert (code, found["verdict"], found["first"]["module"]) == (1, "non_finite", "lm_head")
    assert (found["first"]["target"]["max"], found["first"]["target"]["norm"]) == ("nan", "inf")


def test_a_clean_pair_and_a_mapping_are_taken(capsys, tmp_path, golden, target):
    sick = target(broken)
    names = tmp_path / "names.yaml"
    names.write_text("model: model\n")

    assert ask(capsys, sick, golden, "--clean", sick, golden, "--map", str(names), "--json")[0] == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["{golden}", "{golden}/nothing"], "does not exist"),
        (["{empty}", "{golden}"], "no dump.json"),
        (["{golden}", "--clean", "{golden}", "{golden}"], "need a GOLDEN"),
        (["{golden}", "{golden}", "--map", "{golden}"], "cannot be read"),
        (["{golden}", "{golden}", "--map", "{list}"], "mapping of names"),
        ([], "required"),
    ],
)
def test_what_is_wrong_with_the_input_is_one_line(capsys, tmp_path, golden, words, why):
    (tmp_path / "empty").mkdir()
    (tmp_path / "list").write_text("[1, 2]")
    places = {"golden": golden, "empty": tmp_path / "empty", "list": tmp_path / "list"}

    code, out, err = ask(capsys, *(word.format(**places) for word in words))

    assert (code, out) == (2, "")
    assert why in err
    assert err.count("\n") == 1


def test_the_twins_of_a_baseline_show_how_far_the_two_machines_part(capsys, golden, target, tmp_path):
    step = tmp_path / "g" / "step_0" / "actor_update"
    shutil.copytree(golden, step)
    twin = tmp_path / "t" / "step_0" / "actor_update"
    shutil.copytree(target(noisy), twin)
    log = tmp_path / "run.jsonl"
    log.write_text('{"step": 1, "data": {"actor/loss": 0.5}}\n')
    bundle = str(tmp_path / "b.sentinel")
    parts = ["--dumps", str(tmp_path / "g"), "--twin-dumps", str(tmp_path / "t")]
    assert cli.main(["baseline", "record", str(log), "-o", bundle, *parts]) == 0
    capsys.readouterr()

    alone, _, _ = ask(capsys, str(twin), str(step), "--json")
    known, out, _ = ask(capsys, str(twin), str(step), "--baseline", bundle, "--json")

    assert (alone, known) == (1, 0)
    assert json.loads(out)["verdict"] == "same"
    # What was learnt stays when something is added.
    assert cli.main(["baseline", "add", bundle, "--twin", str(log)]) == 0
    capsys.readouterr()
    assert ask(capsys, str(twin), str(step), "--baseline", bundle, "--json")[0] == 0


def test_a_baseline_that_is_no_bundle_is_one_line(capsys, golden):
    code, out, err = ask(capsys, golden, golden, "--baseline", golden)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no baseline bundle" in err
