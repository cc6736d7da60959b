# SPDX-License-Identifier: Apache-2.0
"""Trials in processes of their own: they answer, fail, crash or hang, and the doctor goes on."""

import ast
import os
import textwrap
import time
from pathlib import Path

import pytest

from sentinel.doctor import trials
from sentinel.doctor.trial import run_trial

PROBE = Path(trials.__file__).parents[1] / "trainer" / "probe.py"


def fake_torch(folder, body):
    """A package `torch` that does what `body` says when it is imported."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(textwrap.dedent(body))
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(Path(trials.__file__).parents[2])])}


def test_an_import_error_becomes_the_answer(tmp_path):
    answer = run_trial("torch", 30, fake_torch(tmp_path, "raise ImportError('libhccl.so: cannot open')"))

    assert answer == {"error": "ImportError: libhccl.so: cannot open"}


def test_a_crash_becomes_the_answer(tmp_path):
    answer = run_trial(
        "torch",
        30,
        fake_torch(
            tmp_path,
            "import os, signal\nprint('EZ9999: inner error', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)",
        ),
    )

    assert answer == {"error": "the process ended with SIGSEGV: EZ9999: inner error"}


def test_a_hang_is_ended_with_what_it_started(tmp_path):
    body = f"""
        import subprocess, time
        child = subprocess.Popen(['sleep', '60'])
        open({str(tmp_path / "pid")!r}, 'w').write(str(child.pid))
        time.sleep(60)
    """
    began = time.monotonic()
    answer = run_trial("torch", 3, fake_torch(tmp_path, body))

    assert answer == {"error": "no answer within 3 s", "timeout": True}
    assert time.monotonic() - began < 15
    child = Path("/proc") / (tmp_path / "pid").read_text() / "stat"
    assert not child.exists() or child.read_text().split()[2] == "Z"


def test_a_trial_does_not_join_the_run_that_is_named_here(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTINEL_RUN", "production")
    body = "import os\n__version__ = os.environ.get('SENTINEL_RUN', 'none')\nclass cuda:\n    is_available = bool"

    assert run_trial("torch", 30, fake_torch(tmp_path, body)) == {"version": "none", "cuda": False}


def test_every_name_that_the_probe_takes_from_msprobe_is_looked_for():
    looked_for = {name.partition(":")[0] for name in trials.MSPROBE_NAMES}
    taken = {
        node.module
        for node in ast.walk(ast.parse(PROBE.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msprobe")
    }
    bare = {"msprobe.core.common", "msprobe.pytorch.common", "msprobe.pytorch.dump.module_dump"}

    assert taken
    assert taken - bare <= looked_for
    for parent in taken & bare:
        assert any(name.startswith(f"{parent}.") for name in looked_for)


@pytest.mark.torch
@pytest.mark.timeout(240)
def test_the_trials_of_the_device_hold_on_the_cpu():
    answer = run_trial("cpu", 200)

    assert answer["device"] == "cpu"
    for question in ("compute", "repeat", "dump"):
        assert answer[question]["ok"], answer[question]
    assert "bit for bit" in answer["dump"]["said"]


@pytest.mark.torch
@pytest.mark.timeout(240)
def test_every_private_name_of_msprobe_is_in_the_installed_version():
    answer = run_trial("dump", 200)

    assert set(answer["names"]) == set(trials.MSPROBE_NAMES)
    assert not any(answer["names"].values())
    assert answer["dump"]["ok"]


@pytest.mark.torch
@pytest.mark.timeout(240)
def test_a_torch_npu_without_cann_breaks_torch_and_not_the_doctor(tmp_path):
    """The real torch: it loads every installed backend, and this one fails as without CANN."""
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text(
        "raise ImportError('libhccl.so: cannot open shared object file: No such file or directory')\n"
    )
    info = tmp_path / "torch_npu-2.13.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.13.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    path = os.pathsep.join([str(tmp_path), str(Path(trials.__file__).parents[2])])

    answer = run_trial("torch", 200, {"PYTHONPATH": path})

    assert "Failed to load the backend extension: torch_npu" in answer["error"]
    assert "libhccl.so" in answer["error"]
