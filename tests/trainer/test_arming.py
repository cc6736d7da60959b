# SPDX-License-Identifier: Apache-2.0
"""Captures with the real msprobe on a worker in miniature: what is dumped, what is left behind, what may fail."""

import gc
import json
import os
import sys

import pytest

torch = pytest.importorskip("torch", reason="the capture is msprobe's, which needs torch")
pytest.importorskip("msprobe.pytorch", reason="the capture is msprobe's")

from sentinel.trainer import arming  # noqa: E402
from sentinel.trainer.footprint import ProcessFootprint  # noqa: E402
from tests.support.workers import WorkerActor, hooks_on  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(120),
    # msprobe hooks modules whose inputs need no gradient, and torch says so.
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
ALL = ["actor_compute_log_prob", "ref_compute_log_prob", "actor_update"]


def plan(root, step=7, stages=ALL, **more):
    return {"root": str(root), "step": step, "stages": list(stages), "level": "L0", "min_free_bytes": 1, **more}


def dumped(root, step, stage):
    return json.loads((root / f"step_{step}" / stage / "step0" / "rank0" / "dump.json").read_text())["data"]


@pytest.fixture
def rank_zero(monkeypatch):
    """msprobe names its folder rank<R> only under a process group; the miniature has one of size one."""
    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def actor(rank_zero):
    return WorkerActor()


def capture(actor, *args, **kwargs):
    armed = arming.arm(actor, plan(*args, **kwargs))
    actor.run_step()
    return armed, arming.disarm(actor)


def test_exactly_the_ordered_stages_of_the_step_are_on_disk(actor, tmp_path):
    armed, answer = capture(actor, tmp_path, stages=["ref_compute_log_prob", "actor_update"])

    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == [
        f"step_7/{stage}/step0/rank0/{name}.json"
        for stage in ("actor_update", "ref_compute_log_prob")
        for name in ("construct", "dump", "stack")
    ]
    assert armed == {"rank": 0, "armed": ["actor_update", "ref_compute_log_prob"], "absent": [], "error": ""}
    assert answer["bytes"] == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert answer["broken"] == ""


def test_a_dump_has_no_white_space_and_keeps_what_is_not_finite(actor, tmp_path):
    """Half of what msprobe writes is white space, and a disk is shared by everybody."""
    torch.nn.init.constant_(actor.main.ref.engine.module.head.bias, float("nan"))
    _, answer = capture(actor, tmp_path, stages=["ref_compute_log_prob"])

    (file,) = tmp_path.rglob("dump.json")
    text = file.read_text()
    assert "NaN" in text
    assert not any(character in text for character in " \n\t")
    assert answer["bytes"] == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())


def test_the_update_is_dumped_with_its_backward_pass_and_the_log_prob_without(actor, tmp_path):
    capture(actor, tmp_path)

    assert any(".backward." in name for name in dumped(tmp_path, 7, "actor_update"))
    assert any("parameters_grad" in name for name in dumped(tmp_path, 7, "actor_update"))
    assert not any(".backward." in name for name in dumped(tmp_path, 7, "actor_compute_log_prob"))


def test_two_captures_name_their_calls_alike(actor, tmp_path):
    """Otherwise target and golden could not be aligned."""
    capture(actor, tmp_path, step=7)
    capture(actor, tmp_path, step=8)

    for stage in ALL:
        assert list(dumped(tmp_path, 7, stage)) == list(dumped(tmp_path, 8, stage))


def test_a_critic_is_dumped_through_its_own_stages(rank_zero, tmp_path):
    actor = WorkerActor(critic=True)

    armed, answer = capture(actor, tmp_path, stages=["compute_values", "critic_update"])

    assert armed["armed"] == ["compute_values", "critic_update"]
    assert sorted(answer["stages"]) == ["compute_values", "critic_update"]
    assert any(".backward." in name for name in dumped(tmp_path, 7, "critic_update"))


def test_a_stage_that_the_process_does_not_have_is_named_and_nothing_is_hooked(actor, tmp_path):
    armed = arming.arm(actor, plan(tmp_path, stages=["compute_values"]))

    assert armed["absent"] == ["compute_values"]
    assert armed["armed"] == []
    assert hooks_on(actor.models()) == 0
    assert arming.disarm(actor) == {}


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_after_a_capture_nothing_of_it_is_left(actor, tmp_path, level):
    import torch.nn.modules._functions as functions
    from torch.utils import hooks

    before = {
        "linear": torch.nn.functional.linear,
        "add": torch.Tensor.__add__,
        "setup": vars(hooks.BackwardHook)["setup_input_hook"],
        "apply": vars(functions.BackwardHookFunction).get("apply"),
        "wait": torch.distributed.Work.wait,
        "script": torch.jit.script,
        "clip": torch.nn.utils.clip_grad_norm_,
        "tensorflow": sys.modules.get("tensorflow"),
    }
    optimizer_hooks = len(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks)
    state = torch.get_rng_state()
    environment = dict(os.environ)

    armed, answer = capture(actor, tmp_path, level=level)

    assert answer["bytes"] > 0, (armed, answer)
    assert before == {
        "linear": torch.nn.functional.linear,
        "add": torch.Tensor.__add__,
        "setup": vars(hooks.BackwardHook)["setup_input_hook"],
        "apply": vars(functions.BackwardHookFunction).get("apply"),
        "wait": torch.distributed.Work.wait,
        "script": torch.jit.script,
        "clip": torch.nn.utils.clip_grad_norm_,
        "tensorflow": sys.modules.get("tensorflow"),
    }
    assert len(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks) == optimizer_hooks
    assert hooks_on(actor.models()) == 0
    assert not any(
        name.startswith("msprobe") for model in actor.models() for module in model.modules() for name in vars(module)
    )
    assert all(
        not getattr(p, "_post_accumulate_grad_hooks", None) for model in actor.models() for p in model.parameters()
    )
    assert torch.equal(state, torch.get_rng_state())
    assert torch.is_grad_enabled()
    assert dict(os.environ) == environment
    assert "infer_batch" not in vars(actor.main.actor)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "the staging folder is gone"


def test_hooks_on_gradient_accumulators_are_taken_off_too(actor, tmp_path):
    """Under FSDP these nodes live as long as the model, and so would the hooks."""
    from msprobe.core.dump.hook_manager import BaseHookManager

    nodes = [p.expand_as(p).grad_fn.next_functions[0][0] for p in actor.main.actor.engine.module.parameters()]
    arming.arm(actor, plan(tmp_path, stages=["actor_update"]))
    actor.run_step()
    handles = list(BaseHookManager.hook_handle_dict.values())
    arming.disarm(actor)

    assert len(handles) >= len(nodes) / 2
    assert all(handle.id not in (handle.hooks_dict_ref() or {}) for handle in handles)
    assert BaseHookManager.hook_handle_dict == {}


def test_training_goes_on_bit_for_bit_as_if_there_had_been_no_capture(rank_zero, tmp_path):
    plain, watched = WorkerActor(), WorkerActor()
    plain_losses, watched_losses = [], []
    for step in range(6):
        plain_losses.append(plain.run_step())
        if step in (2, 3):
            arming.arm(watched, plan(tmp_path, step=step, level="mix" if step == 3 else "L0"))
        watched_losses.append(watched.run_step())
        arming.disarm(watched)

    assert watched_losses == plain_losses
    assert (tmp_path / "step_3").is_dir()


def test_the_runs_own_debugger_is_set_aside_and_put_back(actor, tmp_path):
    from msprobe.pytorch import PrecisionDebugger

    config = tmp_path / "own.json"
    own_dump = tmp_path / "own"
    config.write_text(
        json.dumps(
            {
                "task": "statistics",
                "level": "L0",
                "rank": [],
                "step": [],
                "dump_path": str(own_dump),
                "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
            }
        )
    )
    model = actor.main.actor.engine.module
    own = PrecisionDebugger(config_path=str(config))
    own.start(model)
    actor.main.compute_log_prob(actor.data)
    own.stop()
    own.step()
    hooked = hooks_on([model])

    _, answer = capture(actor, tmp_path / "ours")

    assert answer["bytes"] > 0
    assert PrecisionDebugger._instance is own
    assert hooks_on([model]) == hooked > 0
    own.start(model)
    actor.main.compute_log_prob(actor.data)
    own.stop()
    first, second = (json.loads((own_dump / f"step{n}" / "rank0" / "dump.json").read_text())["data"] for n in (0, 1))
    assert list(first) == list(second), "the run's own dumps go on as before, without Sentinel's entries"
    # leave the process as the other tests expect it
    PrecisionDebugger._instance = None
    for module in model.modules():
        module._forward_pre_hooks.clear()


def test_a_capture_is_refused_while_the_runs_own_debugger_is_dumping(actor, tmp_path):
    from msprobe.core.common.runtime import Runtime

    Runtime.is_running = True
    try:
        armed = arming.arm(actor, plan(tmp_path))
    finally:
        Runtime.is_running = False

    assert "own PrecisionDebugger is dumping" in armed["error"]
    assert arming.disarm(actor) == {}


@pytest.mark.parametrize("name", ["with blank", "lr=1e-5", "数据"])
def test_a_path_that_msprobe_refuses_is_written_all_the_same(actor, tmp_path, name):
    root = tmp_path / name

    _, answer = capture(actor, root)

    assert answer["broken"] == ""
    assert dumped(root, 7, "actor_update")


def test_a_full_disk_is_refused_before_anything_is_touched(actor, tmp_path):
    armed = arming.arm(actor, plan(tmp_path, min_free_bytes=1 << 60))

    assert "bytes free" in armed["error"]
    assert hooks_on(actor.models()) == 0
    actor.run_step()


def test_a_dump_folder_that_cannot_be_made_is_an_error_in_the_answer_only(actor, tmp_path):
    (tmp_path / "file").write_text("in the way")

    armed = arming.arm(actor, plan(tmp_path / "file" / "dumps"))

    assert "dump folder" in armed["error"]
    actor.run_step()


@pytest.mark.parametrize(
    "where",
    ["forward_input_data_collect", "forward_output_data_collect", "backward_data_collect", "params_data_collect"],
)
def test_a_failure_inside_a_hook_breaks_the_dump_off_and_not_the_step(rank_zero, tmp_path, where):
    """A full disk raises inside backward; it must not reach the optimizer step."""
    from msprobe.core.dump.data_dump.data_collector import DataCollector

    plain, actor = WorkerActor(), WorkerActor()
    original = getattr(DataCollector, where)
    calls = []

    def full_disk(self, *args, **kwargs):
        calls.append(1)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")
        return original(self, *args, **kwargs)

    setattr(DataCollector, where, full_disk)
    try:
        arming.arm(actor, plan(tmp_path, stages=["actor_update"]))
        loss = actor.run_step()
        answer = arming.disarm(actor)
    finally:
        setattr(DataCollector, where, original)

    assert loss == plain.run_step()
    assert actor.run_step() == plain.run_step()
    assert "No space left" in answer["broken"]
    assert hooks_on(actor.models()) == 0


def test_a_vanished_dump_folder_costs_the_dump_and_not_the_step(actor, tmp_path):
    import shutil

    arming.arm(actor, plan(tmp_path / "dumps", stages=["actor_update"]))
    shutil.rmtree(tmp_path / "dumps")
    actor.run_step()
    answer = arming.disarm(actor)

    assert answer["broken"] == "" or "actor_update" in answer["broken"]
    assert hooks_on(actor.models()) == 0


def test_a_stage_that_itself_fails_raises_its_own_error_and_the_process_is_clean(actor, tmp_path):
    arming.arm(actor, plan(tmp_path))
    with pytest.raises(KeyError):
        actor.main.compute_log_prob({})
    arming.disarm(actor)

    assert hooks_on(actor.models()) == 0
    actor.run_step()


def test_arming_twice_takes_the_first_off_again(actor, tmp_path):
    arming.arm(actor, plan(tmp_path, step=7))
    arming.arm(actor, plan(tmp_path, step=8))
    actor.run_step()
    arming.disarm(actor)

    assert not (tmp_path / "step_7").exists()
    assert dumped(tmp_path, 8, "actor_update")
    assert hooks_on(actor.models()) == 0


def test_many_captures_keep_neither_collectors_nor_hooks_nor_wrappers(actor, tmp_path):
    from msprobe.core.dump.data_dump.data_collector import DataCollector

    footprint = ProcessFootprint()
    for step in range(12):
        capture(actor, tmp_path, step=step)
    gc.collect()
    alive = [thing for thing in gc.get_objects() if type(thing) is DataCollector]

    assert len(alive) <= 2
    assert hooks_on(actor.models()) == 0
    assert [
        getattr(owner, name)
        for owner, name, value in footprint._functions
        if vars(owner).get(name) is not value and name in vars(owner)
    ] == []


def test_with_lora_the_reference_is_the_actor_without_its_adapter(actor, tmp_path):
    arming.arm(actor, plan(tmp_path, stages=["ref_compute_log_prob"]))
    actor.main.actor.infer_batch({**actor.data, "no_lora_adapter": True})
    actor.main.actor.infer_batch(actor.data)
    answer = arming.disarm(actor)

    assert list(answer["stages"]) == ["ref_compute_log_prob"]
    assert answer["stages"]["ref_compute_log_prob"]["calls"] == 1


def test_without_msprobe_the_order_is_answered_and_the_stage_runs_as_ever(actor, tmp_path):
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "msprobe"}
    sys.modules["msprobe"] = None
    try:
        armed = arming.arm(actor, plan(tmp_path))
    finally:
        del sys.modules["msprobe"]
        sys.modules.update(hidden)

    assert "msprobe cannot be imported" in armed["error"]
    assert hooks_on(actor.models()) == 0
    actor.run_step()
