# SPDX-License-Identifier: Apache-2.0
"""From a metric that moved to the operation that moved it: real steps, real dumps, a real daemon, no cluster and no verl."""

import json
import math
import threading
import time

import pytest

torch = pytest.importorskip("torch", reason="real steps are trained")
pytest.importorskip("msprobe.pytorch", reason="the dumps are msprobe's")

from sentinel.daemon.planning import Planner  # noqa: E402
from sentinel.daemon.watchdog import Watchdog  # noqa: E402
from sentinel.settings import parse  # noqa: E402
from sentinel.trainer.loop import Loop  # noqa: E402
from sentinel.trainer.session import Outlets, Session  # noqa: E402
from tests.support.watching import CATALOGUE  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
STEPS, FAULT_AT, PLACE, LEAF = 16, 6, "blocks.3.norm", "blocks.3.up"
ALL = {"stages": ["actor_update"], "why": "test"}


class RMSNorm(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight, self.variance_epsilon = torch.nn.Parameter(torch.ones(size)), 1e-6

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon))


class Block(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = RMSNorm(size)
        self.up, self.act, self.down = torch.nn.Linear(size, 2 * size), torch.nn.GELU(), torch.nn.Linear(2 * size, size)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self, size=24, layers=8):
        super().__init__()
        self.embed = torch.nn.Embedding(32, size)
        self.blocks = torch.nn.ModuleList(Block(size) for _ in range(layers))
        self.head = torch.nn.Linear(size, 8)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(made_loop, spoil=None, settle=lambda: None, place=PLACE):
    """Train the same run again; from FAULT_AT on with a broken module, if `spoil` says how."""
    torch.manual_seed(0)
    model, ids = Model(), torch.arange(48).reshape(6, 8) % 32
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    loop = made_loop(model)
    module = model.get_submodule(place)
    original = module.forward
    losses = []
    for step in range(1, STEPS + 1):
        if spoil is not None and step == FAULT_AT:
            module.forward = lambda x: spoil(original(x))
        with loop.step(step):
            loss = model((ids + step) % 32).square().mean()
            loss.backward()
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
        if math.isfinite(norm):  # as verl does
            optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        loop.log(step, {"actor/pg_loss": losses[-1], "actor/grad_norm": norm})
        settle()
    loop.close()
    return losses


@pytest.fixture
def golden(tmp_path):
    """A recording of the healthy run with L0 dumps of steps 7 to 11."""
    orders = [{**ALL, "first_step": step, "last_step": step, "level": "L0"} for step in range(7, 12)]
    (tmp_path / "orders.json").write_text(json.dumps(orders))
    environment = {
        "SENTINEL_RECORD": str(tmp_path / "golden.jsonl"),
        "SENTINEL_ORDERS": str(tmp_path / "orders.json"),
    }
    losses = train(lambda model: Loop(model, environment=environment))
    return tmp_path / "golden.jsonl", losses


class Here:
    """An outlet that is the daemon itself."""

    def __init__(self, watchdog, config):
        self.watchdog, self.config = watchdog, config

    def send(self, records):
        return self.watchdog.report({"v": 1, "run": "r", "session": "s", "records": records})

    def close(self):
        pass


@pytest.fixture
def world(tmp_path, golden):
    """A daemon, and what makes a loop that reports to it."""
    text = json.dumps({"home": str(tmp_path / "home"), "baseline": str(golden[0]), "regime": "replayed"})
    settings = parse(text, str(tmp_path / "sentinel.yaml"))
    watchdog = Watchdog(settings, Planner(settings, CATALOGUE))

    def made_loop(model):
        loop = Loop(model, environment={"SENTINEL_RECORD": str(tmp_path / "unused.jsonl")})
        config = {"path": str(tmp_path / "sentinel.yaml"), "text": text}
        loop.session.close()
        loop.session = Session("r", Outlets(daemon=Here(watchdog, config)), str(tmp_path / "dumps"))
        loop.session.wait_seconds = 1.0
        loop.session.started({"trainer": "loop", "stages": ["actor_update"], "ranks": 1}, config)
        return loop

    def settle():
        """Between two steps of a real run there is time for triage."""
        for thread in threading.enumerate():
            if thread.name == "sentinel-collect":
                thread.join()
        time.sleep(0.2)  # the emitter's own thread sends the receipts
        assert watchdog.deeds.wait(60.0)

    yield watchdog, made_loop, settle
    watchdog.close()


def test_a_module_that_is_wrong_is_narrowed_down_to_the_operation(world, golden):
    watchdog, made_loop, settle = world

    losses = train(made_loop, spoil=lambda y: y * 1.5, settle=settle)

    (snapshot,) = watchdog.runs()
    (incident,) = snapshot.incidents
    assert losses[: FAULT_AT - 1] == golden[1][: FAULT_AT - 1], "up to the fault the same bits, watched or not"
    rungs = [(c.order.first_step, c.order.level, c.order.task, c.order.modules) for c in snapshot.captures]
    assert rungs[0] == (incident.opened_at_step + 1, "L0", "statistics", ()), incident
    assert [(level, task, modules) for _, level, task, modules in rungs[1:]] == [
        ("mix", "statistics", (PLACE,)),
        ("mix", "tensor", (PLACE,)),
    ], incident.notes
    assert FAULT_AT <= incident.opened_at_step <= FAULT_AT + 2
    assert incident.triage.first.module == PLACE
    assert "Tensor.__mul__" in incident.because, incident.notes
    assert "computed again in fp32" in incident.because
    assert incident.receipt.first_step == incident.opened_at_step + 1
    assert [c.receipt.outcome for c in snapshot.captures if c.order.modules] == ["complete", "complete"]


def test_a_nan_is_followed_to_the_operation_that_makes_it(world):
    watchdog, made_loop, settle = world

    train(made_loop, spoil=lambda y: y * float("nan"), settle=settle)

    (snapshot,) = watchdog.runs()
    incident = snapshot.incidents[-1]
    first, deeper = [c.order for c in snapshot.captures if c.incident == incident.id]
    assert (incident.kind, first.level, first.first_step) == ("non_finite", "L0", FAULT_AT + 1)
    assert (deeper.level, deeper.modules) == ("mix", (PLACE,))
    assert "Tensor.__mul__" in incident.because
    assert incident.triage.verdict == "non_finite"
    assert incident.triage.first.module == PLACE


@pytest.mark.parametrize(("factor", "kind"), [(1.5, "drift"), (float("nan"), "non_finite")])
def test_a_module_that_is_one_operation_needs_no_deeper_dump(world, factor, kind):
    watchdog, made_loop, settle = world

    train(made_loop, spoil=lambda y: y * factor, settle=settle, place=LEAF)

    (snapshot,) = watchdog.runs()
    (incident,) = [one for one in snapshot.incidents if one.triage is not None and one.triage.first is not None]
    orders = [c.order for c in snapshot.captures if c.incident == incident.id]
    assert [(order.level, order.modules) for order in orders] == [("L0", ())], incident.notes
    assert (incident.triage.first.module, incident.triage.first.operation) == (LEAF, "linear")
    assert "it is one operation, linear" in incident.because
    assert incident.kind == kind
