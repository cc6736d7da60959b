# SPDX-License-Identifier: Apache-2.0
"""SENTINEL_SEED_ALL: workers are seeded at the head of their file, once, say so, and go on where it cannot be done."""

import subprocess
import sys
import textwrap

import pytest

from sentinel.trainer.after_import import AfterImport
from sentinel.trainer.seeding import WORKER_MODULES, Seeding

WORKER = WORKER_MODULES[0]


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A verl whose worker's file draws a number when a worker is made, and an msprobe that tells its calls."""
    for folder in ("verl", "verl/workers", "msprobe", "msprobe/pytorch"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "verl/workers/engine_workers.py").write_text(
        "import random\nclass Worker:\n    def __init__(self):\n        self.drawn = random.random()\n"
    )
    (tmp_path / "msprobe/pytorch/__init__.py").write_text(
        "import random\nCALLS = []\ndef seed_all(seed=0, mode=False, rm_dropout=False, is_enhanced=False):\n    CALLS.append((seed, mode))\n    random.seed(seed)\n"
    )
    tops = ("verl", "msprobe")
    saved = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in tops}
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] in tops]:
        del sys.modules[name]
    sys.modules.update(saved)


def imported(environment):
    finder, seeding = AfterImport(), Seeding()
    seeding.prepare(environment, finder)
    try:
        import importlib

        module = importlib.import_module(WORKER)
    finally:
        finder.remove()
    return module, seeding


def test_a_worker_is_seeded_before_it_draws_a_number_and_says_so(fake):
    module, seeding = imported({"SENTINEL_SEED_ALL": "1"})

    import random

    assert seeding.said == {"called": True, "mode": True, "seed": 1234}
    assert module.Worker().drawn == random.Random(1234).random()
    assert sys.modules["msprobe.pytorch"].CALLS == [(1234, True)]
    seeding.on_import(module)
    assert len(sys.modules["msprobe.pytorch"].CALLS) == 1


@pytest.mark.parametrize("environment", [{}, {"SENTINEL_SEED_ALL": "0"}, {"SENTINEL_SEED_ALL": ""}])
def test_nobody_is_seeded_unasked(fake, environment):
    _, seeding = imported(environment)

    assert seeding.said["called"] is False
    assert "msprobe.pytorch" not in sys.modules


def test_a_seeding_that_fails_leaves_the_worker_as_it_is_and_says_why(fake, caplog):
    (fake / "msprobe/pytorch/__init__.py").write_text("raise OSError('libhccl.so')")

    module, seeding = imported({"SENTINEL_SEED_ALL": "1"})

    assert module.Worker().drawn >= 0
    assert seeding.said == {"called": False, "failed": True, "why": "OSError: libhccl.so"}
    assert "Training is not affected" in caplog.text


def test_the_plugin_seeds_only_where_it_is_not_switched_off(fake):
    code = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(fake)!r})
        import sentinel.trainer.plugin, {WORKER}
        from sentinel.trainer.seeding import SEEDING
        print(SEEDING.said["called"])
        """
    )

    def called(**environment):
        given = {"PATH": "/usr/bin:/bin", **environment}
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=given
        ).stdout.strip()

    assert called(SENTINEL_SEED_ALL="1") == "True"
    assert called(SENTINEL_SEED_ALL="1", SENTINEL_DISABLED="1") == "False"
    assert called() == "False"


@pytest.mark.torch
@pytest.mark.timeout(120)
def test_the_real_seed_all_makes_two_processes_draw_the_same_numbers(tmp_path):
    for folder in ("verl", "verl/workers"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "verl/workers/engine_workers.py").write_text("import torch\n")
    code = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import sentinel.trainer.plugin, {WORKER}, torch, random
        from sentinel.trainer.seeding import SEEDING
        print(SEEDING.said, torch.are_deterministic_algorithms_enabled(), torch.rand(3).tolist(), random.random(), "tensorflow" in sys.modules)
        """
    )

    def drawn():
        given = {"PATH": "/usr/bin:/bin", "SENTINEL_SEED_ALL": "1", "MSPROBE_LOG_LEVEL": "4"}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=given)
        return done.stdout.strip().splitlines()[-1]

    first = drawn()
    assert first == drawn()
    assert first.startswith("{'called': True, 'mode': True, 'seed': 1234} True")
    assert first.endswith("False")
