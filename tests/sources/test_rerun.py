# SPDX-License-Identifier: Apache-2.0
"""Dumped calls computed again from their own inputs and weights: clean ones agree, wrong ones are named, and nothing else is needed."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="tensors are computed with")
pytest.importorskip("msprobe.pytorch", reason="the dumps are msprobe's")

from sentinel.daemon.recomputing import is_tensor_dump, recompute, tensor_bytes  # noqa: E402
from sentinel.sources.rerun import compute_again, first_out  # noqa: E402
from sentinel.trainer import arming  # noqa: E402
from tests.support.workers import WorkerActor  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
STAGE = "actor_update"


@pytest.fixture
def rank_zero():
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    yield
    torch.distributed.destroy_process_group()


def dumped(root, spoil=None, dtype=torch.float32, task="tensor", modules=()):
    """A dump of an update in which `spoil` breaks the output of `first`."""
    actor = WorkerActor()
    model = actor.main.actor.engine.module.to(dtype)
    if spoil is not None:
        original = model.first.forward
        model.first.forward = lambda x: spoil(original(x))
    plan = {"root": str(root), "step": 7, "stages": [STAGE], "level": "mix", "task": task, "min_free_bytes": 1}
    arming.arm(actor, {**plan, "modules": list(modules)})
    actor.run_step()
    arming.disarm(actor)
    return root / "step_7" / STAGE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_healthy_dump_agrees_with_itself(rank_zero, tmp_path, dtype):
    path = dumped(tmp_path, dtype=dtype)

    answer = recompute(7, STAGE, str(path))

    assert answer.verdict == "same", answer
    assert answer.compared >= 8, "linears, the embedding and activations, forward and backward"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernel_that_is_one_percent_off_is_named_without_any_golden(rank_zero, tmp_path, dtype):
    path = dumped(tmp_path, spoil=lambda y: y * 1.012, dtype=dtype, modules=["first"])

    answer = recompute(7, STAGE, str(path))

    assert answer.verdict == "diverged"
    assert answer.first.module == "first"
    assert answer.first.name.startswith("Tensor.__mul__")
    assert "computed again in fp32" in answer.first.why
    assert answer.first.golden is None


def test_an_operation_whose_dumped_result_is_wrong_is_named_itself(rank_zero, tmp_path):
    path = dumped(tmp_path)
    (folder,) = path.rglob("dump_tensor_data")
    file = folder / "Functional.linear.1.forward.output.0.pt"
    torch.save(torch.load(file) * 1.01, file)

    answer = recompute(7, STAGE, str(path))

    assert answer.first.name == "Functional.linear.1.forward"
    assert answer.first.module == "middle.0"


def test_a_gradient_that_is_not_what_the_weights_say_is_named(rank_zero, tmp_path):
    path = dumped(tmp_path)
    (folder,) = path.rglob("dump_tensor_data")
    file = folder / "Module.middle.0.Linear.backward.0.output.0.pt"
    torch.save(torch.load(file) * 1.01, file)

    answer = recompute(7, STAGE, str(path))

    assert (answer.first.module, answer.first.direction) == ("middle.0", "backward")


def test_a_result_that_is_not_a_number_is_out(rank_zero, tmp_path):
    path = dumped(tmp_path)
    (folder,) = path.rglob("dump_tensor_data")
    file = folder / "Functional.gelu.0.forward.output.0.pt"
    torch.save(torch.load(file) * float("nan"), file)

    assert recompute(7, STAGE, str(path)).first.name == "Functional.gelu.0.forward"


def test_statistics_alone_cannot_be_computed_again_and_that_is_no_agreement(rank_zero, tmp_path):
    path = dumped(tmp_path, task="statistics")

    assert not is_tensor_dump(str(path))
    assert recompute(7, STAGE, str(path)).verdict == "not_comparable"


def test_a_tensor_file_that_is_no_tensor_costs_its_own_call_only(rank_zero, tmp_path):
    path = dumped(tmp_path)
    (folder,) = path.rglob("dump_tensor_data")
    (folder / "Functional.linear.0.forward.input.0.pt").write_bytes(b"\x80\x04garbage")

    calls, why = compute_again(next(path.rglob("dump.json")))

    assert why == ""
    assert "Functional.linear.0.forward" not in {call.name for call in calls}
    assert first_out(calls) is None
    assert len(calls) >= 6


def test_a_dump_that_reaches_out_of_its_folder_is_not_followed(rank_zero, tmp_path):
    path = dumped(tmp_path)
    file = next(path.rglob("dump.json"))
    document = json.loads(file.read_text())
    document["data"]["Functional.linear.0.forward"]["input_args"][0]["data_name"] = "../../../secret.pt"
    file.write_text(json.dumps(document))

    calls, _ = compute_again(file)

    assert "Functional.linear.0.forward" not in {call.name for call in calls}


def test_a_child_that_takes_too_long_is_said(rank_zero, tmp_path):
    path = dumped(tmp_path)

    calls, why = compute_again(next(path.rglob("dump.json")), limit_seconds=0.05)

    assert calls == []
    assert "within 0.05 s" in why


def test_the_price_of_a_modules_tensors_is_read_from_the_shapes(rank_zero, tmp_path):
    statistics = dumped(tmp_path / "statistics", task="statistics")
    tensors = dumped(tmp_path / "tensors", modules=["first"])
    real = sum(Path(file).stat().st_size for file in tensors.rglob("*.pt"))

    price = tensor_bytes(str(statistics), "first")

    data = sum(torch.load(file).nbytes for file in tensors.rglob("*.pt"))
    assert data <= price <= 3 * data
    assert real > data, "files have headers"
