# SPDX-License-Identifier: Apache-2.0
"""What a process says of itself: the copy that an import would take, the variables that matter, the devices in files."""

import json
import subprocess
import sys
import time

import pytest

from sentinel.facts import process_facts
from sentinel.facts.hardware import hardware_facts
from sentinel.facts.packages import checkout_commit, package_facts
from sentinel.facts.variables import variable_facts


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Make packages that can be found, none of which may be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name, files):
        for path, text in {"__init__.py": "raise ImportError('must not be imported')", **files}.items():
            place = tmp_path / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return tmp_path / name

    return make


def test_a_checkout_on_the_path_says_its_version_without_being_imported(packages):
    packages("verlish", {"version/version": "0.9.2.dev\n"})
    packages("torchish", {"version.py": "__version__ = '2.7.1+npu'\ngit_version = 'abcdef0123456789'\n"})

    found = package_facts({"verlish": "verlish", "torchish": "torchish", "nothing-here": "nothing_here"})

    assert found == {
        "verlish": {"version": "0.9.2.dev"},
        "torchish": {"version": "2.7.1+npu", "commit": "abcdef0123456789"},
    }


def test_a_checkout_that_shadows_an_installed_package_wins(packages):
    packages("ray", {"_version.py": "version = '9.9.9'\n"})

    assert package_facts({"ray": "ray"})["ray"]["version"] == (
        "9.9.9" if "ray" not in sys.modules else sys.modules["ray"].__version__
    )


def test_the_commit_of_a_checkout_is_found_in_loose_and_in_packed_refs(tmp_path):
    package = tmp_path / "repo" / "verl"
    package.mkdir(parents=True)
    git = tmp_path / "repo" / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert checkout_commit(str(package)) == ""
    (git / "packed-refs").write_text(f"# pack-refs\n{'b' * 40} refs/heads/main\n")
    assert checkout_commit(str(package)) == "b" * 40
    (git / "refs" / "heads" / "main").write_text("a" * 40 + "\n")
    assert checkout_commit(str(package)) == "a" * 40
    (git / "HEAD").write_text("c" * 40 + "\n")
    assert checkout_commit(str(package)) == "c" * 40


def test_a_package_without_a_version_is_there_and_its_version_unknown(packages):
    packages("bare", {})

    assert package_facts({"bare": "bare"}) == {"bare": {"version": "unknown"}}


def test_only_the_variables_that_change_numbers_are_read_and_credentials_are_cut_out():
    found = variable_facts(
        {
            "HCCL_DETERMINISTIC": "true",
            "VLLM_API_KEY": "planted-secret",
            "HF_TOKEN": "planted-secret",
            "WANDB_API_KEY": "planted-secret",
            "ASCEND_HOME_PATH": "/home/alice/Ascend",
            "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
            "PYTHONHASHSEED": "1234",
            "USER": "alice",
        }
    )

    assert found == {
        "HCCL_DETERMINISTIC": "true",
        "VLLM_API_KEY": "<cut out>",
        "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
        "PYTHONHASHSEED": "1234",
    }


def write(root, path, text=""):
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_an_ascend_machine_is_read_from_its_files(tmp_path):
    for number in range(2):
        write(tmp_path, f"dev/davinci{number}")
    write(tmp_path, "dev/davinci_manager")
    write(tmp_path, "usr/local/Ascend/driver/version.info", "Version=25.0.rc1\nascendhal_version=7\n")
    write(tmp_path, "usr/local/Ascend/firmware/version.info", "Version=7.7.0.1\n")
    write(
        tmp_path,
        "usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info",
        "package_name=x\nversion=8.3.RC1\n",
    )

    found = hardware_facts({}, str(tmp_path))

    assert {key: found[key] for key in ("npus", "driver", "firmware", "cann")} == {
        "npus": 2,
        "driver": "25.0.rc1",
        "firmware": "7.7.0.1",
        "cann": "8.3.RC1",
    }


def test_a_toolkit_elsewhere_is_found_by_its_variable(tmp_path):
    write(tmp_path, "opt/cann/version.cfg", "# version\nruntime_running_version=[8.1.RC1:8.1.RC1]\n")

    assert hardware_facts({"ASCEND_HOME_PATH": str(tmp_path / "opt/cann")}, str(tmp_path))["cann"] == "8.1.RC1"


def test_an_nvidia_machine_is_read_from_its_files(tmp_path):
    write(tmp_path, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n")
    write(tmp_path, "proc/driver/nvidia/gpus/0000/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n")

    found = hardware_facts({}, str(tmp_path))

    assert (found["gpus"], found["gpu_names"], found["nvidia_driver"]) == (1, ["NVIDIA H200"], "550.54.15")


def test_a_machine_without_devices_claims_none(tmp_path):
    assert set(hardware_facts({}, str(tmp_path))) == {"machine", "cpus"}


def test_facts_take_under_three_seconds_and_import_nothing_heavy():
    code = (
        "import json, sys; from sentinel.facts import process_facts; facts = process_facts();"
        "print(json.dumps([sorted(sys.modules), facts]))"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded, facts = json.loads(done.stdout)
    assert time.monotonic() - began < 10  # 0.3 s on a quiet machine
    assert not {"torch", "ray", "verl", "numpy", "msprobe", "transformers"} & set(loaded)
    assert set(facts) == set(process_facts())
