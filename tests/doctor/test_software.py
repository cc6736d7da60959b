# SPDX-License-Identifier: Apache-2.0
"""What is said of torch, torch_npu, CANN, msprobe and verl, whatever the trials found."""

import pytest

from sentinel.doctor import software
from sentinel.trainer.driver import TESTED_VERL

BROKEN = {"error": "RuntimeError: Failed to load the backend extension: torch_npu. <- ImportError: libhccl.so"}
LATE = {"error": "no answer within 3 s", "timeout": True}
HOOKS = {"verl.utils.tracking:Tracking.log": "", "verl.trainer.ppo.v1.trainer_base:PPOTrainer._start_profiling": ""}


def test_a_torch_that_torch_npu_breaks_fails_and_says_how_to_go_on():
    check = software.torch({"torch": "2.5.1", "torch_npu": "2.5.1"}, BROKEN)

    assert check.status == "fail"
    assert "libhccl.so" in check.found
    assert "set_env.sh" in check.fix
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in check.fix


def test_what_ran_out_of_time_is_unknown():
    packages = {"torch": "2.5.1", "torch_npu": "2.5.1", "verl": "0.9.1", "mindstudio-probe": "26.2.0"}

    for check in (
        software.torch(packages, LATE),
        software.torch_npu(packages, {}, LATE),
        software.msprobe(packages, LATE),
        software.msprobe_names(packages, LATE),
        software.dump(packages, LATE),
        software.verl(packages, LATE),
        software.entry_point(packages, LATE, {}),
        software.hooks(packages, LATE),
    ):
        assert check.status == "unknown", check


def test_what_is_not_installed_never_passes():
    nothing = {"error": "ModuleNotFoundError: No module named 'torch'"}

    found = [
        software.torch({}, nothing),
        software.torch_npu({}, {}, nothing),
        software.cann({}, {}),
        software.msprobe({}, nothing),
        software.msprobe_names({}, nothing),
        software.dump({}, nothing),
        software.verl({}, nothing),
        software.entry_point({}, nothing, {}),
        software.hooks({}, nothing),
        software.transfer_queue({}),
        software.flash_attention({}),
        software.transformers({}),
    ]

    assert {check.status for check in found} == {"unknown", "warn"}


@pytest.mark.parametrize(
    ("packages", "hardware", "trial", "status", "said"),
    [
        ({}, {"npus": 8}, {}, "fail", "8 NPUs"),
        ({"torch": "2.5.1+cpu", "torch_npu": "2.1.0"}, {"npus": 8}, {}, "fail", "2.1.0 beside torch 2.5.1"),
        ({"torch": "2.5.1", "torch_npu": "2.5.1.post1"}, {"npus": 8}, BROKEN, "fail", "libhccl"),
        ({"torch": "2.5.1", "torch_npu": "2.5.1"}, {"npus": 8}, {"version": "2.5.1", "npu": False}, "fail", "False"),
        ({"torch": "2.5.1", "torch_npu": "2.5.1"}, {}, {"version": "2.5.1", "npu": False}, "warn", "0 NPUs"),
        ({"torch": "2.5.1", "torch_npu": "2.5.1"}, {"npus": 8}, {"npu": True, "devices": 8}, "pass", "8 devices"),
    ],
)
def test_torch_npu_must_fit_torch_and_find_its_devices(packages, hardware, trial, status, said):
    check = software.torch_npu(packages, hardware, trial)

    assert check.status == status
    assert said in check.found
    assert (check.fix == "") == (status == "pass")


def test_cann_must_be_there_where_it_is_needed_and_set_in_the_shell(monkeypatch):
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    assert software.cann({"torch_npu": "2.5.1"}, {}).status == "fail"
    assert software.cann({}, {"cann": "8.0.0", "driver": "24.1"}).status == "warn"
    monkeypatch.setenv("ASCEND_HOME_PATH", "/usr/local/Ascend/latest")
    assert software.cann({}, {"cann": "8.0.0", "driver": "24.1"}).status == "pass"


def test_an_unknown_verl_is_warned_of_and_a_missing_hook_fails():
    assert software.verl({"verl": TESTED_VERL[0]}, {"names": {}}).status == "pass"
    assert software.verl({"verl": "0.8.0"}, {"names": {}}).found == "0.8.0: its source was read, it was not run"
    assert software.verl({"verl": "1.2.0"}, {"names": {}}).found == "1.2.0: not known"

    gone = {**HOOKS, "verl.utils.tracking:Tracking.log": "AttributeError: log"}
    check = software.hooks({"verl": "1.2.0"}, {"names": gone})
    assert check.status == "fail"
    assert "Tracking.log: AttributeError: log" in check.found
    assert software.hooks({"verl": "0.9.1"}, {"names": HOOKS}).status == "pass"


def test_a_v1_trainer_that_is_not_there_leaves_v0():
    names = {**HOOKS, "verl.trainer.ppo.v1.trainer_base:PPOTrainer._start_profiling": "ModuleNotFoundError: v1"}

    check = software.hooks({"verl": "0.8.0"}, {"names": names})

    assert check.status == "warn"
    assert "V0 fits" in check.found


def test_a_plugin_that_verl_did_not_load_fails_with_the_reason():
    old = software.entry_point({"verl": "0.7.1"}, {"plugin": False}, {})
    shut = software.entry_point({"verl": "0.9.1"}, {"plugin": False}, {"VERL_USE_EXTERNAL_PLUGINS": "none"})
    loaded = software.entry_point({"verl": "0.9.1"}, {"plugin": True}, {})

    assert (old.status, shut.status, loaded.status) == ("fail", "fail", "pass")
    assert "VERL_USE_EXTERNAL_MODULES=sentinel.trainer.plugin" in old.fix
    assert "none" in shut.found


def test_transfer_queue_is_needed_by_the_v1_trainer():
    assert software.transfer_queue({"verl": "0.9.1"}).status == "fail"
    assert software.transfer_queue({"verl": "0.9.1", "TransferQueue": "0.1.9"}).status == "fail"
    assert software.transfer_queue({"verl": "0.9.1", "TransferQueue": "0.1.11"}).status == "pass"


def test_a_failed_dump_and_missing_parts_of_msprobe_fail():
    trial = {"names": {"a:b": "", "a:c": "AttributeError: c"}, "dump": {"ok": False, "said": "KeyError: 'x'"}}
    packages = {"mindstudio-probe": "27.0.0"}

    assert software.msprobe(packages, trial).status == "warn"
    assert software.msprobe_names(packages, trial).status == "fail"
    assert software.msprobe_names(packages, trial).found == "1 of 2: a:c: AttributeError: c"
    assert software.dump(packages, trial).status == "fail"
