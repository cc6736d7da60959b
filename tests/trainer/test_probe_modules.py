# SPDX-License-Identifier: Apache-2.0
"""A dump beside verl holds every module that ran: msprobe itself would leave the first and the last out."""

import json
import sys
import types

import pytest

from sentinel.trainer.listing import every_module_listed
from sentinel.trainer.probe import Probe

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def network():
    body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    return torch.nn.Sequential(body, torch.nn.Linear(4, 2))


@pytest.mark.timeout(90)
@pytest.mark.filterwarnings("ignore")
def test_the_first_and_the_last_module_are_dumped(tmp_path, monkeypatch):
    pytest.importorskip("msprobe")
    monkeypatch.setitem(sys.modules, "verl", types.ModuleType("verl"))
    model = network()
    plan = {"root": str(tmp_path), "step": 3, "stages": ["actor_update"], "level": "L0", "min_free_bytes": 1}

    probe = Probe(plan, [model])
    probe.open()
    probe.around("actor_update", model, lambda: model(torch.ones(1, 4)).sum().backward())
    receipt = probe.close()

    assert not receipt["broken"]
    (path,) = tmp_path.glob("step_3/actor_update/step0/*/dump.json")
    forwards = [name for name in json.loads(path.read_text())["data"] if ".forward." in name]
    assert [name.split(".forward")[0] for name in forwards] == [
        "Module.0.0.Linear", "Module.0.1.ReLU", "Module.0.Sequential", "Module.1.Linear"
    ]  # fmt: skip


def test_a_model_lists_its_modules_as_before_afterwards():
    chunks = [network(), network()]
    before = [[name for name, _ in chunk.named_modules()] for chunk in chunks]

    with pytest.raises(RuntimeError), every_module_listed(chunks):
        raise RuntimeError

    assert [[name for name, _ in chunk.named_modules()] for chunk in chunks] == before
    assert all("named_modules" not in vars(chunk) for chunk in chunks)
