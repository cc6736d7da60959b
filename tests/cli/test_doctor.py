# SPDX-License-Identifier: Apache-2.0
"""The verb `doctor`: its document, its exit code, its text."""

import json

import pytest

from sentinel.cli import main
from sentinel.cli.doctor import show
from sentinel.cli.output import console
from sentinel.doctor.check import Check


@pytest.mark.live
@pytest.mark.timeout(400)
def test_the_document_has_the_form_of_the_contract(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    settings = tmp_path / "sentinel.yaml"
    settings.write_text(f"home: {tmp_path}/home\nhttp: {{port: 0}}\n")

    code = main(["doctor", "--json", "--npu", "--config", str(settings)])
    document = json.loads(capsys.readouterr().out)

    by_id = {check["id"]: check for check in document["checks"]}
    assert len(by_id) == len(document["checks"])
    for check in document["checks"]:
        assert set(check) == {"id", "title", "status", "found", "fix"}
        assert check["status"] in {"pass", "fail", "warn", "unknown"}
        assert check["found"]
        assert check["fix"] or check["status"] in {"pass", "unknown"}
    assert code == (1 if any(check["status"] == "fail" for check in document["checks"]) else 0)
    for name in ("verl", "verl.plugin", "verl.hooks", "msprobe", "msprobe.names", "msprobe.dump", "torch", "python"):
        assert by_id[name]["status"] == "pass", by_id[name]
    assert by_id["npu.compute"]["status"] == "unknown"


def test_settings_that_are_at_fault_end_in_one_line_and_2(tmp_path, capsys):
    settings = tmp_path / "sentinel.yaml"
    settings.write_text("hom: x\n")

    assert main(["doctor", "--config", str(settings)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_people_read_what_to_do_below_what_was_found(capsys):
    checks = [
        Check(id="a", title="A", status="pass", found="fine"),
        Check(id="b", title="B", status="fail", found="broken", fix="mend it"),
    ]

    show(checks, console())

    assert capsys.readouterr().out.splitlines() == [
        "pass    A: fine",
        "fail    B: broken",
        "        -> mend it",
        "1 pass, 1 fail",
    ]
