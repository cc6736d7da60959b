# SPDX-License-Identifier: Apache-2.0
"""Orders to run a stage again, through to the dump: workers that are this process, real inputs, the real msprobe."""

import time
import types

import pytest

torch = pytest.importorskip("torch", reason="the recorder keeps tensors")
pytest.importorskip("msprobe.pytorch", reason="the capture is msprobe's")

from sentinel.trainer import reach  # noqa: E402
from sentinel.trainer.orders import Order  # noqa: E402
from sentinel.trainer.reruns import Reruns  # noqa: E402
from tests.support.workers import WorkerActor, hooks_on  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
LOGP, REF = "actor_compute_log_prob", "ref_compute_log_prob"


@pytest.fixture
def rank_zero():
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    yield
    torch.distributed.destroy_process_group()


def a_trainer(*workers):
    for worker in workers:
        worker.__ray_call__ = reach.InThisProcess(worker)
    return types.SimpleNamespace(actor_rollout_wg=types.SimpleNamespace(workers=list(workers)))


def order(stages=(REF,), step=5, name="r:1/r1"):
    return Order(name, step, step, tuple(stages), rerun=True, asked_first_step=step)


class Sent(list):
    def __call__(self, given, receipt):
        self.append((given.id, receipt))

    def wait(self, count=1):
        end = time.monotonic() + 30
        while len(self) < count and time.monotonic() < end:
            time.sleep(0.02)
        return self[count - 1][1]


def test_the_step_itself_is_dumped_before_the_next_one_and_the_receipt_says_whose_weights(rank_zero, tmp_path):
    worker, sent = WorkerActor(), Sent()
    reruns = Reruns(sent)
    reruns.install(a_trainer(worker), 1 << 20)
    worker.run_step()

    reruns.take([order((REF, LOGP))])
    reruns.boundary(6, str(tmp_path), 1)

    receipt = sent.wait()
    assert (receipt["outcome"], receipt["first_step"], receipt["last_step"]) == ("complete", 5, 5)
    assert receipt["why"].startswith("run again before step 6 on the kept inputs of step 5")
    assert f"{REF}: its weights are those of step 5" in receipt["why"]
    assert f"{LOGP}: its weights HAVE CHANGED since" in receipt["why"]
    assert sorted(path.parts[-4] for path in tmp_path.rglob("dump.json")) == [LOGP, REF]
    assert hooks_on(worker.models()) == 0


def test_one_rank_without_the_inputs_and_no_rank_runs_anything(rank_zero, tmp_path):
    """Its collectives would leave the others waiting."""
    one, other, sent = WorkerActor(), WorkerActor(), Sent()
    reruns = Reruns(sent)
    reruns.install(a_trainer(one, other), 1 << 20)
    one.run_step()

    reruns.take([order()])
    reruns.boundary(6, str(tmp_path), 1)

    receipt = sent.wait()
    assert receipt["outcome"] == "refused"
    assert "not kept on every rank: rank 0: not called yet" in receipt["why"]
    assert not list(tmp_path.iterdir())


def test_ranks_that_hold_different_calls_run_nothing(rank_zero, tmp_path):
    one, other, sent = WorkerActor(), WorkerActor(), Sent()
    reruns = Reruns(sent)
    reruns.install(a_trainer(one, other), 1 << 20)
    one.run_step()
    other.run_step()
    other.run_step()

    reruns.take([order()])

    assert "ranks hold different calls" in sent.wait()["why"]


def test_a_boundary_that_comes_too_late_runs_nothing(rank_zero, tmp_path):
    worker, sent = WorkerActor(), Sent()
    reruns = Reruns(sent)
    reruns.install(a_trainer(worker), 1 << 20)
    worker.run_step()
    reruns.take([order(step=5)])

    reruns.boundary(7, str(tmp_path), 1)

    assert (sent.wait()["outcome"], sent.wait()["why"]) == (
        "skipped",
        "the inputs of step 5 are gone: step 7 has begun",
    )
    assert not list(tmp_path.iterdir())


def test_switched_off_the_workers_let_go(rank_zero):
    worker = WorkerActor()
    reruns = Reruns(Sent())
    trainer = a_trainer(worker)
    reruns.install(trainer, 1 << 20)
    worker.run_step()

    reruns.install(trainer, 0)

    assert not hasattr(worker, "_sentinel_flight")
    assert "infer_batch" not in vars(worker.main.ref)
