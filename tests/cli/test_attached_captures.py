# SPDX-License-Identifier: Apache-2.0
"""A script that uses PrecisionDebugger and knows nothing of Sentinel: dumped when its log goes wrong, by its own config.json."""

import json
import subprocess
import sys
import time

import pytest

from sentinel.cli.attached_captures import AttachedCaptures
from sentinel.cli.attaching import Attachment, Local
from sentinel.errors import SettingsError
from sentinel.sinks.msprobe_config import KEPT, MsprobeSwitch

SCRIPT = """
import json, sys, time
import torch
from msprobe.pytorch import PrecisionDebugger
config, log, bad = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
debugger = PrecisionDebugger(config_path=config)
with open(log, "w") as file:
    for step in range(1, 400):
        debugger.start(model=model)
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        debugger.stop()
        debugger.step()
        optimizer.step()
        optimizer.zero_grad()
        norm = None if step == bad else 1.0
        file.write(json.dumps({"step": step, "data": {"actor/grad_norm": norm, "actor/pg_loss": loss.item()}}) + "\\n")
        file.flush()
        time.sleep(0.1)
        if json.load(open(config)).get("stop"):
            break
"""
OWN = {"task": "statistics", "level": "L0", "rank": [], "step": [], "dump_enable": False, "extra_info": False}


def own_config(folder, **more):
    path = folder / "config.json"
    about = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    path.write_text(json.dumps({**OWN, "dump_path": str(folder / "own"), "statistics": about, **more}))
    return path


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_a_script_with_its_own_debugger_is_dumped_when_its_log_goes_wrong(tmp_path):
    pytest.importorskip("msprobe.pytorch", reason="the script uses it")
    config, log = own_config(tmp_path), tmp_path / "metrics.jsonl"
    # Steps of 0.1 s, and msprobe looks at its file every 3 s: many steps pass before the receipt.
    engine = "{receipt_grace_steps: 200, incidents: {close_non_finite_after_steps: 300}}"
    settings = f"home: {tmp_path / 'home'}\nengine: {engine}\n"
    script = subprocess.Popen([sys.executable, "-c", SCRIPT, str(config), str(log), "20"], cwd=tmp_path)
    try:
        while not log.exists() and script.poll() is None:
            time.sleep(0.1)
        captures = AttachedCaptures(MsprobeSwitch(config), "actor_update")
        listener = Local(settings, None, "script", serve=False)
        attachment = Attachment(
            log, "script", listener, {"path": None, "text": settings}, tmp_path / "place", captures=captures
        )
        end = time.monotonic() + 60
        document = attachment.document()
        while time.monotonic() < end and script.poll() is None:
            attachment.take(attachment.follower.poll(time.time()))
            document = attachment.document()
            if document["incidents"] and document["incidents"][0]["triage"]:
                break
            time.sleep(0.2)
        attachment.close()
        listener.close()
    finally:
        script.kill()
        script.wait()

    (incident,) = document["incidents"]
    receipt = incident["receipt"]
    assert (incident["kind"], incident["opened_at_step"]) == ("non_finite", 20)
    assert (receipt["outcome"], receipt["stages"]) == ("complete", ["actor_update"])
    assert 20 < receipt["first_step"] < receipt["last_step"] == receipt["first_step"] + 1
    for path in receipt["paths"]:
        (file,) = (tmp_path / "home" / "dumps").rglob(f"{path.split('/dumps/')[1]}/step0/rank0/dump.json")
        assert any(name.startswith("Module.0.Linear.forward") for name in json.loads(file.read_text())["data"])
    assert incident["triage"]["verdict"] == "clean"
    after = json.loads(config.read_text())
    assert (after["dump_enable"], after["dump_path"], after["level"]) == (False, str(tmp_path / "own"), "L0")
    assert not (tmp_path / "own").exists(), "the script's own dumping stays off"


def order(**more):
    return {"id": "r:1/c1", "first_step": 5, "last_step": 5, "stages": ["actor_update"], "level": "L0", **more}


def reply(tmp_path, *orders, cancelled=()):
    return {"orders": list(orders), "cancelled": list(cancelled), "settings": {"dump_root": str(tmp_path / "dumps")}}


def msprobe_wrote(tmp_path, step, rank="proc17", data='{"data": {"x": {}}}'):
    folder = tmp_path / "dumps" / next((tmp_path / "dumps").glob(".msprobe_*")) / f"step{step}" / rank
    folder.mkdir(parents=True)
    (folder / "dump.json").write_text(data)


@pytest.fixture
def captures(tmp_path):
    return AttachedCaptures(MsprobeSwitch(own_config(tmp_path)), "actor_update")


def outcome(records):
    return [record["receipt"]["outcome"] for record in records]


def test_a_dump_is_taken_over_once_the_next_step_has_begun(captures, tmp_path):
    assert captures.take(reply(tmp_path, order()), 4) == []
    msprobe_wrote(tmp_path, 5)
    assert captures.look(5) == []
    msprobe_wrote(tmp_path, 6)

    (record,) = captures.look(6)

    receipt = record["receipt"]
    assert (receipt["outcome"], receipt["first_step"], receipt["ranks"]) == ("complete", 6, [0])
    assert (tmp_path / "dumps" / "step_6" / "actor_update" / "step0" / "rank0" / "dump.json").is_file()
    assert not list((tmp_path / "dumps").glob(".msprobe_*"))
    assert not json.loads((tmp_path / "config.json").read_text())["dump_enable"]


def test_an_order_for_another_stage_is_refused(captures, tmp_path):
    (record,) = captures.take(reply(tmp_path, order(stages=["compute_values"])), 4)

    assert record["receipt"]["outcome"] == "refused"
    assert "dumps actor_update only" in record["receipt"]["why"]


def test_a_run_that_dumps_nothing_is_given_up_and_switched_off(captures, tmp_path, monkeypatch):
    captures.take(reply(tmp_path, order()), 4)
    captures._going.since -= 1000

    (record,) = captures.take(reply(tmp_path, order()), 40)

    assert record["receipt"]["outcome"] == "failed"
    assert "does the running debugger use" in record["receipt"]["why"]
    assert captures.take(reply(tmp_path, order()), 41) == [], "it is not tried again"
    assert not json.loads((tmp_path / "config.json").read_text())["dump_enable"]


def test_an_order_that_is_taken_back_switches_the_dump_off(captures, tmp_path):
    captures.take(reply(tmp_path, order()), 4)

    assert outcome(captures.take(reply(tmp_path, cancelled=["r:1/c1"]), 5)) == ["cancelled"]
    assert not json.loads((tmp_path / "config.json").read_text())["dump_enable"]


def test_the_end_of_the_log_takes_over_what_is_there(captures, tmp_path):
    captures.take(reply(tmp_path, order(last_step=6)), 4)
    msprobe_wrote(tmp_path, 5)

    assert outcome(captures.close(6)) == ["partial"]


def test_two_orders_are_obeyed_one_after_the_other(captures, tmp_path):
    both = (order(), order(id="r:1/c2"))
    captures.take(reply(tmp_path, *both), 4)
    msprobe_wrote(tmp_path, 5)
    msprobe_wrote(tmp_path, 6)

    records = captures.take(reply(tmp_path, *both), 6)

    assert [record["capture"] for record in records] == ["r:1/c1"]
    assert captures._going.order.id == "r:1/c2"


def test_a_file_that_a_killed_watcher_left_switched_on_is_put_back(tmp_path):
    path = own_config(tmp_path)
    own = json.loads(path.read_text())
    MsprobeSwitch(path).on(tmp_path / "dumps", level="mix")
    assert json.loads(path.read_text())[KEPT] == own

    MsprobeSwitch(path)

    assert json.loads(path.read_text()) == own


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting"),
        ("[1]", "expected the keys"),
        ('{"task": "statistics"}', 'has no "dump_enable"'),
        ('{"dump_enable": "yes"}', 'has no "dump_enable"'),
    ],
)
def test_a_config_that_cannot_be_switched_is_refused_in_one_line(tmp_path, text, why):
    path = tmp_path / "config.json"
    path.write_text(text)

    with pytest.raises(SettingsError, match=why) as caught:
        MsprobeSwitch(path)

    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="No such file"):
        MsprobeSwitch(tmp_path / "config.json")


def test_a_folder_that_msprobe_refuses_is_said(captures, tmp_path):
    settings = {"orders": [order()], "settings": {"dump_root": str(tmp_path / "lr=1 a")}}

    (record,) = captures.take(settings, 4)

    assert record["receipt"]["outcome"] == "failed"
    assert "letters, digits" in record["receipt"]["why"]
