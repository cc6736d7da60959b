# SPDX-License-Identifier: Apache-2.0
"""A planted fault acts in its module, its stage and its steps, and looks from outside like a broken kernel."""

import asyncio
import types

import pytest

from sentinel.demo.kit import faults
from sentinel.demo.kit.faults import STAGES, Fault, planted

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def fault(kind, size, *, module="inner", stage="actor_update", step=4):
    return Fault(stage=stage, module=module, kind=kind, size=size, step=step)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(8, 8)
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(self.first(x))


def outputs_of(model, plan, old=None):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    clean = model(x)
    with planted(model.get_submodule(plan.module), plan, old):
        broken = model(x)
    assert torch.equal(model(x), clean), "the fault outlived its block"
    return clean, broken


def test_scale_multiplies_the_output():
    clean, broken = outputs_of(Model(), fault("scale", 1.5))

    assert torch.allclose(broken, clean * 1.5)


def test_bias_adds_a_share_of_the_root_mean_square():
    clean, broken = outputs_of(Model(), fault("bias", 0.1))

    added = 0.1 * clean.square().mean().sqrt()
    assert torch.allclose(broken - clean, added.expand_as(clean), atol=1e-6)


def test_mask_zeroes_the_same_share_of_features_in_every_row():
    clean, broken = outputs_of(Model(), fault("mask", 0.25))

    gone = (broken == 0).all(0)
    assert int(gone.sum()) == 2
    assert torch.equal(broken[:, ~gone], clean[:, ~gone])


def test_mantissa_drops_bits_and_passes_the_gradient():
    model = Model()
    clean, broken = outputs_of(model, fault("mantissa", 16))

    assert torch.equal(broken.view(torch.int32) & 0xFFFF, torch.zeros_like(broken, dtype=torch.int32))
    assert 0 < float(((clean - broken) / clean).detach().abs().max()) < 2**-7
    with planted(model.inner, fault("mantissa", 16)):
        model(torch.ones(1, 8)).sum().backward()
    assert float(model.inner.weight.grad.abs().sum()) > 0


def test_stale_computes_with_older_weights_and_trains_the_present_ones():
    model = Model()
    old = faults._weights(model.inner)
    x = torch.ones(2, 8)
    before = model(x).detach()
    with torch.no_grad():
        model.inner.weight.add_(1.0)

    with planted(model.inner, fault("stale", 1), old):
        broken = model(x)
    broken.sum().backward()

    assert torch.equal(broken, before)
    assert not torch.equal(model(x), before)
    assert float(model.inner.weight.grad.abs().sum()) > 0
    assert isinstance(model.inner.weight, torch.nn.Parameter)


def test_nan_grad_leaves_the_forward_alone_and_hooks_see_where_the_nan_arises():
    model = Model()
    seen = {}
    for name in ("first", "inner"):
        model.get_submodule(name).register_full_backward_hook(
            lambda _, into, out, name=name: seen.update({name: (into[0], out[0])})
        )
    x = torch.ones(2, 8, requires_grad=True)
    clean = model(x)

    with planted(model.inner, fault("nan_grad", 3)):
        out = model(x)
        out.sum().backward()

    assert torch.equal(out, clean)
    gradient_of_input, gradient_of_output = seen["inner"]
    assert torch.isfinite(gradient_of_output).all()
    assert torch.isnan(gradient_of_input).any()
    assert torch.isnan(seen["first"][1]).any()
    assert torch.isnan(model.inner.weight.grad).any()


def test_nan_grad_of_an_embedding_reaches_its_weight():
    table = torch.nn.Embedding(4, 3)

    with planted(table, fault("nan_grad", 1)):
        table(torch.tensor([0, 1])).sum().backward()

    assert torch.isnan(table.weight.grad).any()


@pytest.mark.parametrize("form", [tuple, list])
def test_the_first_tensor_of_a_sequence_is_changed_and_its_form_stays(form):
    class Pair(torch.nn.Module):
        def forward(self, x):
            return form((None, x, x))

    module = Pair()
    with planted(module, fault("scale", 2.0)):
        out = module(torch.ones(2))

    assert type(out) is form
    assert out[0] is None
    assert torch.equal(out[1], torch.full((2,), 2.0))
    assert torch.equal(out[2], torch.ones(2))


def test_a_model_output_keeps_its_form():
    modeling = pytest.importorskip("transformers.modeling_outputs")

    class Body(torch.nn.Module):
        def forward(self, x):
            return modeling.BaseModelOutput(last_hidden_state=x)

    module = Body()
    with planted(module, fault("scale", 2.0)):
        out = module(torch.ones(2))

    assert torch.equal(out.last_hidden_state, torch.full((2,), 2.0))


def test_an_own_forward_of_the_instance_comes_back():
    module = torch.nn.Identity()
    module.forward = lambda x: x + 1

    with planted(module, fault("scale", 2.0)):
        assert float(module(torch.zeros(1))) == 2.0

    assert float(module(torch.zeros(1))) == 1.0


def test_a_nan_is_over_after_its_steps_and_every_other_fault_stays():
    assert [fault("nan_grad", 3).active(n) for n in range(3, 8)] == [False, True, True, True, False]
    assert [fault("scale", 2.0).active(n) for n in range(3, 8)] == [False, True, True, True, True]


# --------------------------------------------------------------------------- in verl's worker


def fake_worker_module():
    """A worker in the form of verl's hybrid worker."""

    class Worker:
        def __init__(self):
            self.actor = types.SimpleNamespace(engine=types.SimpleNamespace(module=Model()))
            self.ref = types.SimpleNamespace(engine=types.SimpleNamespace(module=Model()))

        def _stage(self, part):
            return getattr(self, part).engine.module(torch.ones(1, 8)).sum()

        def compute_log_prob(self, data):
            return self._stage("actor")

        def compute_ref_log_prob(self, data):
            return self._stage("ref")

        def update_actor(self, data):
            return self._stage("actor")

        async def update_weights(self, global_steps=None, mode="auto"):
            with torch.no_grad():
                self.actor.engine.module.inner.weight.add_(1.0)
            return "sent"

    Worker.compute_log_prob.marked_by_verl = {"dispatch_mode": 1}
    return types.SimpleNamespace(ActorRolloutRefWorker=Worker)


def run_steps(worker, steps):
    """The three stages of each step, as verl calls them."""
    seen = {}
    assert asyncio.run(worker.update_weights(global_steps=0)) == "sent"
    for step in range(1, steps + 1):
        for method, stage in ((m, s) for s, (m, _) in STAGES.items()):
            seen[step, stage] = float(getattr(worker, method)(None).detach())
        asyncio.run(worker.update_weights(global_steps=step))
    return seen


def install(monkeypatch, plan):
    module = fake_worker_module()
    if plan is None:
        monkeypatch.delenv(faults.VARIABLE, raising=False)
    else:
        monkeypatch.setenv(faults.VARIABLE, plan.to_json())
    faults.install(module)
    return module.ActorRolloutRefWorker


@pytest.mark.parametrize("stage", STAGES)
def test_the_fault_is_there_in_its_stage_and_from_its_step_on(monkeypatch, stage):
    clean = run_steps(install(monkeypatch, None)(), 5)

    broken = run_steps(install(monkeypatch, fault("scale", 2.0, stage=stage, step=3))(), 5)

    differing = {key for key in clean if clean[key] != broken[key]}
    assert differing == {(step, stage) for step in (3, 4, 5)}


def test_stale_weights_are_as_old_as_the_plan_says(monkeypatch):
    clean = run_steps(install(monkeypatch, None)(), 6)

    broken = run_steps(install(monkeypatch, fault("stale", 2, stage="actor_compute_log_prob", step=4))(), 6)

    for step in (4, 5, 6):
        assert broken[step, "actor_compute_log_prob"] == clean[step - 2, "actor_compute_log_prob"]
        assert broken[step, "actor_update"] == clean[step, "actor_update"]


def test_verls_marks_on_the_method_are_kept(monkeypatch):
    worker = install(monkeypatch, fault("scale", 2.0, stage="actor_compute_log_prob"))

    assert worker.compute_log_prob.marked_by_verl == {"dispatch_mode": 1}
    assert asyncio.iscoroutinefunction(worker.update_weights)


def test_without_a_plan_nothing_is_wrapped(monkeypatch):
    worker = install(monkeypatch, None)

    assert not hasattr(worker.update_actor, "__wrapped__")


def test_a_stage_that_fails_leaves_no_fault_behind():
    model = Model()
    with pytest.raises(RuntimeError), planted(model.inner, fault("scale", 2.0)):
        raise RuntimeError

    assert "forward" not in vars(model.inner)


def critic_worker(model, *, kind="value_model"):
    """A class as verl's TrainingWorker, whose calls return what the model computes."""

    class TrainingWorker:
        def __init__(self):
            self.config = types.SimpleNamespace(model_type=kind)
            self.engine = types.SimpleNamespace(module=model)

        def infer_batch(self, data):
            return self.engine.module(data)

        def train_mini_batch(self, data):
            return self.engine.module(data)

    return TrainingWorker


@pytest.mark.parametrize(
    ("stage", "broken_call"), [("compute_values", "infer_batch"), ("critic_update", "train_mini_batch")]
)
def test_a_fault_of_the_critic_acts_in_its_stage_from_its_step_on(monkeypatch, stage, broken_call):
    monkeypatch.setenv(faults.VARIABLE, fault("scale", 2.0, stage=stage, step=2).to_json())
    model, data = Model(), torch.ones(1, 8)
    worker = critic_worker(model)
    faults.install(types.SimpleNamespace(TrainingWorker=worker))
    critic, clean = worker(), model(data)

    seen = [
        (getattr(critic, call)(data) / clean).mean().round().item()
        for _ in range(3)
        for call in ("infer_batch", "train_mini_batch")
    ]

    broken = (broken_call == "infer_batch", broken_call == "train_mini_batch")
    assert seen == [1, 1, *(1 + int(is_broken) for is_broken in broken * 2)]


def test_a_fault_of_the_critic_leaves_the_actor_alone(monkeypatch):
    monkeypatch.setenv(faults.VARIABLE, fault("scale", 2.0, stage="compute_values", step=1).to_json())
    model, data = Model(), torch.ones(1, 8)
    worker = critic_worker(model, kind="language_model")
    faults.install(types.SimpleNamespace(TrainingWorker=worker))

    assert torch.equal(worker().infer_batch(data), model(data))


def test_a_fault_of_the_rollouts_is_not_planted_in_a_worker(monkeypatch):
    monkeypatch.setenv(faults.VARIABLE, fault("scale", 2.0, stage="rollout", step=1).to_json())

    faults.install(types.SimpleNamespace())
