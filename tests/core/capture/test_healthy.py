# SPDX-License-Identifier: Apache-2.0
"""A run beside itself while it was healthy: asked for once, and only where nothing better is there."""

import random

import pytest

from sentinel.core.capture.healthy import standing_out
from sentinel.core.capture.policy import CaptureSettings
from sentinel.records import CancelCapture, GoldenDump, LayerStat, OrderCapture, Reference, TrainerDescribed
from tests.support.runs import a_grpo_run, an_engine, changed, events, replaced

STAGES = ("actor_compute_log_prob", "actor_update")
RUN = a_grpo_run(steps=16)


def orders(run=RUN, reference=None, told=True, **capture):
    engine = an_engine(capture=CaptureSettings(healthy_step=5, **capture))
    state = engine.initial("run", reference)
    if told:
        state, _ = engine.advance(state, TrainerDescribed(ranks=4, stages=STAGES))
    found = []
    for event in events(run):
        state, effects = engine.advance(state, event)
        found += [effect.order for effect in effects if isinstance(effect, OrderCapture)]
    return found


def test_a_healthy_run_without_golden_dumps_dumps_itself_once():
    (order,) = orders()

    assert (order.id, order.incident, order.first_step, order.last_step) == ("run:healthy", None, 5, 5)
    assert (order.stages, order.level, order.ranks) == (STAGES, "L0", (0, 3))


def test_it_is_asked_again_of_no_run_whose_watch_was_stored(tmp_path):
    from sentinel.core.engine import from_plain, to_plain

    engine = an_engine(capture=CaptureSettings(healthy_step=5))
    state, _ = engine.advance(engine.initial("run", None), TrainerDescribed(ranks=4, stages=STAGES))
    found = []
    for event in events(RUN):
        state, effects = engine.advance(from_plain(to_plain(state), None), event)
        found += [effect for effect in effects if isinstance(effect, OrderCapture)]

    assert len(found) == 1


def test_a_healthy_dump_that_an_incident_overtakes_is_taken_back():
    """It would hold the fault, and whoever obeys one order at a time would make the incident's wait for it."""
    engine = an_engine(capture=CaptureSettings(healthy_step=5))
    state, _ = engine.advance(engine.initial("run", None), TrainerDescribed(ranks=4, stages=STAGES))
    effects = []
    for event in events(changed(RUN, at=5, change=replaced(actor__grad_norm=float("nan")))):
        state, more = engine.advance(state, event)
        effects += more

    taken_back = [effect.capture for effect in effects if isinstance(effect, CancelCapture)]
    asked = [effect.order.id for effect in effects if isinstance(effect, OrderCapture)]
    assert asked[0] == "run:healthy"
    assert taken_back[0] == "run:healthy"
    assert asked[1] != "run:healthy"


@pytest.mark.parametrize(
    "why_not",
    [
        {"told": False},
        {"enabled": False},
        {"most_ratio": 0.0, "most_steps": 0},
        {"run": changed(RUN, at=3, change=replaced(actor__grad_norm=float("nan"))), "non_finite_level": "L0"},
    ],
)
def test_nothing_is_asked_where_nobody_obeys_it_costs_too_much_or_the_run_is_not_healthy(why_not):
    assert [order for order in orders(**why_not) if order.id == "run:healthy"] == []


def test_golden_dumps_are_better_than_ones_own():
    golden = GoldenDump(step=5, stage="actor_update", ranks=(0,), path="/g")
    reference = Reference(name="r", runs=(), dumps=(golden,))

    assert orders(reference=reference) == []


def rows(scale=None, seed=0, noise=0.05, modules=12, rows_a_step=8):
    """Module outputs of a dump: sizes as in a model, moved by other rows, one of them scaled."""
    rng = random.Random(seed)
    found = []
    for number in range(modules):
        size = (1 + number) * (1 + rng.uniform(-noise, noise)) * (scale or {}).get(number, 1.0)
        found.append(
            LayerStat(
                name=f"Module.layers.{number}.Linear.forward.0",
                module=f"layers.{number}",
                direction="forward",
                position="output.0",
                order=number,
                norm=size * (rows_a_step * 4) ** 0.5,
                mean=0.0,
                max=1.0,
                min=-1.0,
                dtype="float32",
                shape=(rows_a_step, 4),
            )
        )
    return found


def test_the_module_that_grew_beside_the_others_stands_out():
    (first, second) = standing_out("actor_update", rows({3: 3.0, 7: 3.0}, seed=1, rows_a_step=5), rows(), 10)

    assert (first.module, second.module) == ("layers.3", "layers.7")
    assert "times as large as at healthy step 10" in first.why


def test_a_model_that_grew_as_a_whole_has_no_module_that_stands_out():
    assert standing_out("actor_update", rows(dict.fromkeys(range(12), 4.0), seed=1), rows(), 10) == ()


@pytest.mark.parametrize("seed", range(20))
def test_other_rows_alone_are_no_sign(seed):
    assert standing_out("actor_update", rows(seed=seed + 1, noise=0.2), rows(noise=0.2), 10) == ()


def test_few_modules_say_nothing():
    assert standing_out("actor_update", rows({1: 9.0}, seed=1, modules=3), rows(modules=3), 10) == ()
