# SPDX-License-Identifier: Apache-2.0
"""A stage run again on the inputs of the step itself: what is kept, what is refused, what stays as it was."""

import json

import pytest

torch = pytest.importorskip("torch", reason="the recorder keeps tensors")
pytest.importorskip("msprobe.pytorch", reason="the capture is msprobe's")

from sentinel.trainer import flight_recorder  # noqa: E402
from tests.support.workers import WorkerActor, hooks_on  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
LOGP, REF, VALUES = "actor_compute_log_prob", "ref_compute_log_prob", "compute_values"
PLENTY = 1 << 20


@pytest.fixture
def rank_zero():
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def actor(rank_zero):
    return WorkerActor(critic=True)


def plan(root, stages, step=7, **more):
    return {"root": str(root), "step": step, "stages": list(stages), "level": "L0", "min_free_bytes": 1, **more}


def norms(root, step, stage):
    data = json.loads((root / f"step_{step}" / stage / "step0" / "rank0" / "dump.json").read_text())["data"]
    return {name: entry["output"][0]["Norm"] for name, entry in data.items() if "forward" in name}


def again(actor, root, *stages, **more):
    calls = {stage: flight_recorder.held(actor)["calls"][stage] for stage in stages}
    return flight_recorder.again(actor, plan(root, stages, calls=calls, **more))


def test_the_stages_without_side_effects_are_kept_and_no_update_is(actor):
    assert flight_recorder.keep(actor, PLENTY) == {"rank": 0, "stages": [LOGP, VALUES, REF], "error": ""}

    actor.run_step()

    assert flight_recorder.held(actor)["calls"] == {LOGP: 1, VALUES: 1, REF: 1}


def test_a_frozen_stage_run_again_shows_the_numbers_of_the_step_itself(actor, tmp_path):
    from sentinel.trainer import arming

    flight_recorder.keep(actor, PLENTY)
    arming.arm(actor, plan(tmp_path / "first", [REF]))
    actor.run_step()
    arming.disarm(actor)

    answer = again(actor, tmp_path / "again", REF)

    assert answer["error"] == ""
    assert answer["weights"] == {REF: "same"}
    assert norms(tmp_path / "again", 7, REF) == norms(tmp_path / "first", 7, REF)


def test_weights_that_an_update_moved_since_are_said_to_have_changed(actor, tmp_path):
    flight_recorder.keep(actor, PLENTY)
    actor.run_step()

    answer = again(actor, tmp_path, LOGP, REF, VALUES)

    assert answer["weights"] == {LOGP: "changed", REF: "same", VALUES: "changed"}


def test_training_goes_on_bit_for_bit_as_if_nothing_had_been_run_again(rank_zero, tmp_path):
    plain, watched = WorkerActor(critic=True), WorkerActor(critic=True)
    flight_recorder.keep(watched, PLENTY)
    losses = [plain.run_step() for _ in range(4)]
    state = torch.get_rng_state()
    seen = []
    for step in range(4):
        seen.append(watched.run_step())
        again(watched, tmp_path, LOGP, REF, VALUES, step=step, level="mix")

    assert seen == losses
    assert torch.equal(state, torch.get_rng_state())
    assert hooks_on(watched.models()) == 0
    assert torch.is_grad_enabled()


def test_inputs_beyond_the_bound_are_not_kept_and_that_is_said(actor):
    size = actor.data["ids"].numel() * 8
    flight_recorder.keep(actor, size)
    actor.run_step()

    told = flight_recorder.held(actor)

    assert [call for call in told["calls"].values() if call is not None] == [1]
    assert f"its inputs take {size} bytes" in told["why"][REF]


def test_the_inputs_of_another_call_are_never_taken_for_those_that_were_meant(actor, tmp_path):
    flight_recorder.keep(actor, PLENTY)
    actor.run_step()
    calls = {LOGP: flight_recorder.held(actor)["calls"][LOGP]}
    actor.run_step()

    answer = flight_recorder.again(actor, plan(tmp_path, [LOGP], calls=calls))

    assert "not kept any more" in answer["error"]
    assert not list(tmp_path.iterdir())


def test_what_the_stage_does_to_its_inputs_does_not_reach_the_kept_ones(actor, tmp_path):
    worker = actor.main.actor
    original = worker.infer_batch

    def greedy(data):
        return original({"ids": data.pop("ids")})

    worker.infer_batch = greedy
    flight_recorder.keep(actor, PLENTY)
    worker.infer_batch(dict(actor.data))

    assert again(actor, tmp_path, LOGP)["error"] == ""
    assert again(actor, tmp_path, LOGP)["error"] == ""


def test_a_stage_that_fails_when_run_again_costs_an_answer_and_nothing_else(actor, tmp_path):
    flight_recorder.keep(actor, PLENTY)
    actor.run_step()
    kept = actor._sentinel_flight.kept[REF]
    kept.args = ({},)

    answer = again(actor, tmp_path, REF)

    assert "KeyError" in answer["error"]
    assert hooks_on(actor.models()) == 0
    actor.run_step()


def test_a_dump_that_cannot_be_opened_still_runs_the_stage_with_the_other_ranks(actor, tmp_path):
    """The stage has collectives; a rank that stood aside would leave the others waiting."""
    flight_recorder.keep(actor, PLENTY)
    actor.run_step()
    kept = actor._sentinel_flight.kept[REF]
    ran = []
    original = kept.original
    kept.original = lambda *args, **kwargs: ran.append(1) or original(*args, **kwargs)

    answer = again(actor, tmp_path, REF, min_free_bytes=1 << 60)

    assert "bytes free" in answer["error"]
    assert ran == [1]


def test_switched_off_nothing_is_kept_and_the_methods_are_as_before(actor):
    flight_recorder.keep(actor, PLENTY)
    actor.run_step()

    flight_recorder.keep(actor, 0)

    assert "infer_batch" not in vars(actor.main.actor)
    assert not hasattr(actor, "_sentinel_flight")
    assert flight_recorder.held(actor)["calls"] == {LOGP: None, REF: None, VALUES: None}


def test_weights_that_cannot_be_looked_at_are_unknown_and_the_stage_runs_all_the_same(actor, tmp_path, monkeypatch):
    """A rank that failed before its stage would leave the others waiting in a collective."""
    flight_recorder.keep(actor, PLENTY)
    actor.run_step()
    kept = actor._sentinel_flight.kept[REF]

    def unreadable(_):
        raise RuntimeError("the device is busy")

    monkeypatch.setattr(flight_recorder, "weights_mark", unreadable)
    ran = []
    original = kept.original
    kept.original = lambda *args, **kwargs: ran.append(1) or original(*args, **kwargs)

    answer = again(actor, tmp_path, REF)

    assert answer["weights"] == {REF: "unknown"}
    assert ran == [1]


def test_switched_off_in_the_middle_of_a_capture_nothing_is_kept_afterwards(actor, tmp_path):
    from sentinel.trainer import arming

    flight_recorder.keep(actor, PLENTY)
    recorder = actor._sentinel_flight
    arming.arm(actor, plan(tmp_path, [REF]))
    flight_recorder.keep(actor, 0)
    arming.disarm(actor)

    actor.run_step()

    assert recorder.kept == {}
