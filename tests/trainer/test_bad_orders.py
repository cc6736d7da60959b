# SPDX-License-Identifier: Apache-2.0
"""Everything that may be wrong around a capture: each ends in a receipt that says so, and the training step is what it was."""

import json
import os
import shutil
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="loops train torch models")
pytest.importorskip("msprobe.pytorch", reason="the capture is msprobe's")

from sentinel.trainer.loop import Loop  # noqa: E402
from tests.support.workers import TinyModel, hooks_on  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
ORDER = {"id": "o", "first_step": 2, "last_step": 2, "stages": ["actor_update"], "level": "L0", "why": "test"}


class World:
    """A loop of four steps with orders from a file and receipts in a recording."""

    def __init__(self, folder):
        self.folder = folder
        self.record = folder / "record.jsonl"
        self.root = folder / "record.jsonl.dumps"
        self.losses = []

    def run(self, *orders, before=lambda step: None, min_free_bytes=1, root=None):
        """Train, and return the receipts by order."""
        (self.folder / "orders.json").write_text(json.dumps(list(orders)))
        environment = {"SENTINEL_RECORD": str(self.record), "SENTINEL_ORDERS": str(self.folder / "orders.json")}
        torch.manual_seed(0)
        model, ids = TinyModel(), torch.arange(12).reshape(3, 4) % 16
        watch = Loop(model, environment=environment)
        watch.session.min_free_bytes = min_free_bytes
        if root is not None:
            watch.session._own_root = str(root)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(1, 5):
            before(step)
            with watch.step(step):
                loss = model(ids).square().mean()
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            self.losses.append(loss.item())
            watch.log(step, {"loss": self.losses[-1]})
        watch.close()
        self.hooks = hooks_on([model])
        records = [json.loads(line) for line in self.record.read_text().splitlines()]
        return {r["capture"]: r["receipt"] for r in records if r["t"] == "receipt"}


@pytest.fixture
def world(tmp_path):
    """The world; whatever went wrong, training was the same and nothing is left on the model."""
    made = World(tmp_path)
    yield made
    plain = World(tmp_path / "plain")
    plain.folder.mkdir()
    plain.run()
    assert made.losses == plain.losses
    assert made.hooks == 0


@pytest.fixture
def mounted(tmp_path):
    """Return what mounts a small file system of its own; needs root."""
    places = []

    def mount(options):
        place = tmp_path / "mounted"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("a file system can be mounted by root only")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_disk_that_has_too_little_room_beforehand(world, mounted):
    receipt = world.run(ORDER, root=mounted("size=1m"), min_free_bytes=1 << 30)["o"]

    assert receipt["outcome"] == "failed"
    assert "bytes free, 1073741824 are asked for" in receipt["why"]


def test_room_is_asked_for_what_a_dump_is_expected_to_take(world, mounted):
    receipt = world.run({**ORDER, "expected_bytes": 1 << 33}, root=mounted("size=8m"))["o"]

    assert receipt["outcome"] == "failed"
    assert "8589934593 are asked for" in receipt["why"]


def test_a_disk_that_fills_up_in_the_middle_of_a_tensor_dump(world, mounted):
    place = mounted("size=24k")

    receipt = world.run({**ORDER, "level": "mix", "task": "tensor"}, root=place)["o"]

    assert receipt["outcome"] in ("failed", "partial")
    assert receipt["why"], "the reason is said"
    assert not any(path.name.startswith(".sentinel") for path in place.iterdir()), "room is given back"


def test_a_folder_that_is_read_only(world, mounted):
    place = mounted("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)

    receipt = world.run(ORDER, root=place)["o"]

    assert receipt["outcome"] == "failed"
    assert "Read-only" in receipt["why"] or "not writable" in receipt["why"]


def test_a_folder_that_is_a_file(world, tmp_path):
    (tmp_path / "file").write_text("in the way")

    receipt = world.run(ORDER, root=tmp_path / "file" / "dumps")["o"]

    assert receipt["outcome"] == "failed"
    assert "Not a directory" in receipt["why"]


def test_a_folder_that_vanishes_between_two_steps(world):
    def before(step):
        if step == 3:
            shutil.rmtree(world.root)

    receipt = world.run({**ORDER, "last_step": 3}, before=before)["o"]

    assert (receipt["outcome"], receipt["last_step"]) == ("complete", 3)
    assert os.path.isdir(receipt["paths"][-1])


@pytest.mark.parametrize("name", ["with blank", "lr=1e-5", "数据", "a" * 200])
def test_a_path_that_msprobe_refuses(world, tmp_path, name):
    receipt = world.run(ORDER, root=tmp_path / name)["o"]

    assert (receipt["outcome"], receipt["why"]) == ("complete", "")
    assert receipt["paths"] == [str(tmp_path / name / "step_2" / "actor_update")]


def test_msprobe_that_a_failed_construction_has_poisoned(world):
    from msprobe.pytorch import PrecisionDebugger

    kept = PrecisionDebugger._instance
    with pytest.raises(Exception):  # noqa: B017  # whatever it raises
        PrecisionDebugger(config_path="/nowhere.json")

    receipt = world.run(ORDER)["o"]

    assert receipt["outcome"] == "complete"
    PrecisionDebugger._instance = kept


def test_the_runs_own_debugger_that_is_dumping(world):
    from msprobe.core.common.runtime import Runtime

    def before(step):
        Runtime.is_running = step == 2

    receipt = world.run(ORDER, before=before)["o"]

    assert receipt["outcome"] == "failed"
    assert "own PrecisionDebugger is dumping" in receipt["why"]


def test_two_orders_at_once(world):
    receipts = world.run(ORDER, {**ORDER, "id": "p", "level": "mix"}, {**ORDER, "id": "q"})

    assert receipts["o"]["outcome"] == receipts["q"]["outcome"] == "complete", "of one manner they share the step"
    assert (receipts["p"]["outcome"], receipts["p"]["first_step"]) == ("skipped", 2), "an exact one of another cannot"


def test_a_stage_that_the_run_does_not_have(world):
    receipt = world.run({**ORDER, "stages": ["compute_values", "actor_update"]})["o"]

    assert (receipt["outcome"], receipt["stages"]) == ("partial", ["actor_update"])
    assert "not dumped: compute_values at step 2" in receipt["why"]


def test_a_module_that_the_model_does_not_have(world):
    receipt = world.run({**ORDER, "modules": ["layers.99"]})["o"]

    assert receipt["outcome"] == "failed"
    assert "holds nothing of layers.99" in receipt["why"]


def test_a_step_that_is_over(world):
    receipt = world.run({**ORDER, "first_step": 0, "last_step": 0})["o"]

    assert (receipt["outcome"], receipt["why"]) == ("skipped", "only of use at its own step; step 1 has begun")


def test_a_level_that_msprobe_does_not_know(world):
    receipt = world.run({**ORDER, "level": "L9"})["o"]

    assert receipt["outcome"] == "failed"
    assert receipt["why"]


def test_ranks_that_the_run_does_not_have(world):
    receipt = world.run({**ORDER, "ranks": [7]})["o"]

    assert receipt["outcome"] == "failed"
    assert "not dumped: actor_update at step 2" in receipt["why"]
