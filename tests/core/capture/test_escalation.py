# SPDX-License-Identifier: Apache-2.0
"""The escalation: its table, and the engine that follows it line by line."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from sentinel.core.capture.escalation import (
    AFTERWARDS,
    AGAIN,
    ANSWERS,
    ELSEWHERE,
    FIRST,
    NEXT,
    RUNGS,
    SETTLED,
    answer_of,
    rung_of,
    table,
)
from sentinel.core.capture.policy import CaptureSettings
from sentinel.records import (
    CaptureReceipt,
    CaptureReported,
    Comparable,
    Divergence,
    GoldenDump,
    OrderCapture,
    TrainerDescribed,
    Triage,
    TriageArrived,
)
from tests.support.runs import (
    a_grpo_run,
    a_reference,
    an_engine,
    changed,
    events,
    incidents,
    repeated,
    replaced,
    scaled,
    watched,
)

RUN = a_grpo_run(steps=30)
REFERENCE = a_reference(RUN, twins=(repeated(RUN, seed=3),))
STAGE, MODULE = "ref_compute_log_prob", "model.layers.1.mlp.gate_proj"
FIRST_PLACE = Divergence(
    stage=STAGE,
    name=f"Module.{MODULE}.Linear.forward.0",
    module=MODULE,
    direction="forward",
    position="output.0",
    why="norm 2.4 where the golden has 2.0, its inputs equal",
    target={},
    golden={},
)
NO_TRIAGE = Triage(verdict="not_comparable", comparable=None, first=None, compared=0, step=6)
TRIAGE_OF = {
    "operation": replace(NO_TRIAGE, verdict="diverged", first=replace(FIRST_PLACE, name="Functional.linear.3.forward")),
    "module": replace(NO_TRIAGE, verdict="diverged", first=FIRST_PLACE, comparable=Comparable(True, True, True)),
    "weights": replace(NO_TRIAGE, verdict="diverged", first=replace(FIRST_PLACE, direction="parameters")),
    "cleared": replace(NO_TRIAGE, verdict="same"),
    "suspected": replace(NO_TRIAGE, suspects=(FIRST_PLACE,)),
    "nothing": NO_TRIAGE,
}


NAN_RUNGS = ("origin", "source")


def receipt_of(order):
    return CaptureReceipt(
        first_step=order.first_step,
        last_step=order.last_step,
        stages=order.stages,
        ranks=(0,),
        paths=tuple(f"/d/step_{order.first_step}/{stage}" for stage in order.stages),
        bytes=1000,
        seconds=0.5,
        outcome="complete",
    )


def at_the_fault(*, non_finite=False, **capture):
    """A run at step 7 with an incident and its first order."""
    change = replaced(actor__grad_norm=float("nan")) if non_finite else scaled("actor/kl_loss", 1.5)
    run = changed(RUN, at=5, change=change)
    engine = an_engine(capture=CaptureSettings(**capture))
    state, effects = watched(engine, run[:7], REFERENCE)
    return engine, state, next(effect.order for effect in effects if isinstance(effect, OrderCapture))


def answered(engine, state, order, answer, **more):
    """The state after an order was obeyed and its dump gave `answer`, and the orders that followed."""
    state, _ = engine.advance(state, CaptureReported(capture=order.id, receipt=receipt_of(order)))
    triage = replace(TRIAGE_OF[answer], **more)
    state, effects = engine.advance(state, TriageArrived(incident="run:1", capture=order.id, triage=triage))
    return state, [effect.order for effect in effects if isinstance(effect, OrderCapture)]


def climbed(rung, **capture):
    """A run whose incident stands on a rung."""
    engine, state, order = at_the_fault(non_finite=rung in NAN_RUNGS, **capture)
    if rung in ("source", "operations", "tensors"):
        state, (order,) = answered(engine, state, order, "module")
    if rung == "tensors":
        state, (order,) = answered(engine, state, order, "module")
    return engine, state, order


def test_the_table_says_something_of_every_rung_and_answer():
    assert set(NEXT) == set(itertools.product(RUNGS, ANSWERS))
    assert set(NEXT.values()) <= {*AFTERWARDS, *RUNGS}
    assert set(FIRST.values()) < set(RUNGS)


def test_the_table_only_ever_goes_deeper():
    depth = list(RUNGS)
    assert all(depth.index(after) > depth.index(rung) for (rung, _), after in NEXT.items() if after in RUNGS)


@pytest.mark.parametrize(("rung", "answer"), NEXT)
def test_the_engine_does_after_each_answer_what_the_table_says(rung, answer):
    engine, state, order = climbed(rung)

    _, orders = answered(engine, state, order, answer)

    following = NEXT[rung, answer]
    non_finite = rung in NAN_RUNGS
    assert rung_of(order, non_finite=non_finite) == rung
    if following == SETTLED:
        assert orders == []
    else:
        (then,) = orders
        assert rung_of(then, non_finite=non_finite) == (rung if following in (AGAIN, ELSEWHERE) else following)
        assert then.first_step == 9, "step 8 is judged before the order can be handed out"
        if following in RUNGS:
            assert then.stages == (STAGE,), "where the dump showed it"
        else:
            assert bool(set(then.stages) & set(order.stages)) == (following != ELSEWHERE)


@pytest.mark.parametrize("rung", RUNGS)
def test_an_order_is_as_narrow_as_its_rung_says(rung):
    _, _, order = climbed(rung)

    about = RUNGS[rung]
    assert (order.level, order.task) == (about.level, about.task)
    assert order.modules == ((MODULE,) if about.narrowed else ())
    assert len(order.stages) <= about.stages
    assert order.last_step - order.first_step + 1 <= about.steps
    assert order.ranks == ((0,) if about.one_rank else None)


def test_a_nan_goes_straight_to_what_its_origin_needs():
    """Its stage alone, which no golden dump is needed for; then the operations of the module, and no tensors."""
    engine, state, order = at_the_fault(non_finite=True)

    assert (order.first_step, order.stages, order.level) == (6, ("actor_update",), "L0")
    state, (deeper,) = answered(engine, state, order, "module")
    assert (deeper.level, deeper.modules, deeper.task) == ("mix", (MODULE,), "statistics")
    assert answered(engine, state, deeper, "module")[1] == []


def test_what_the_first_dump_named_stays_and_the_operation_is_added():
    engine, state, order = climbed("operations")
    operation = replace(FIRST_PLACE, name="Functional.linear.3.forward", why="computed again in fp32 it is 2.0")

    state, _ = answered(engine, state, order, "operation", first=operation)

    (incident,) = incidents(state)
    assert incident.triage.first == FIRST_PLACE
    assert incident.capture.id == "run:1/c1"
    assert incident.receipt.paths[0].startswith("/d/step_6/")
    assert "Functional.linear.3.forward" in incident.because
    assert any("Functional.linear.3.forward" in note for note in incident.triage.notes)


def test_a_late_answer_of_a_dump_that_was_followed_already_asks_nothing_twice():
    engine, state, first = at_the_fault()
    state, (second,) = answered(engine, state, first, "module")

    _, orders = answered(engine, state, first, "module")

    assert second.id == "run:1/c2"
    assert orders == []


@pytest.mark.parametrize("late", ["module", "weights", "cleared", "operation"])
@pytest.mark.parametrize("non_finite", [False, True])
def test_the_last_step_of_an_order_takes_nothing_back_that_its_first_step_asked_for(late, non_finite):
    """Both steps are dumped and answered; the deeper order is out when the second answer comes."""
    engine, state, order = at_the_fault(non_finite=non_finite)
    state, (then,) = answered(engine, state, order, "module")

    state, orders = answered(engine, state, order, late)

    (capture,) = [one for one in engine.snapshot(state).captures if one.id == then.id]
    assert (capture.state, orders) == ("ordered", [])


def test_an_answer_that_names_no_module_is_not_asked_deeper():
    engine, state, order = at_the_fault()

    state, orders = answered(engine, state, order, "module", first=replace(FIRST_PLACE, module=""))

    assert orders == []
    assert any(note.startswith("Not asked: which operation") for note in incidents(state)[0].notes)


@pytest.mark.parametrize(
    ("capture", "why"),
    [
        ({"most_bytes": 1100}, "the run's budget of 1100 has 100 left"),
        ({"incident_seconds": 0.6}, "the incident's budget of 1 has 0.1 left"),
        ({"day_steps": 2}, "the day's budget of 2 dumped steps is used up"),
        ({"most_ratio": 0.0002}, "0% of the training time: 0.72 s"),
    ],
)
def test_a_deeper_dump_that_does_not_fit_the_budget_is_refused_with_the_reason(capture, why):
    engine, state, order = at_the_fault(**capture)

    state, orders = answered(engine, state, order, "module")

    assert orders == []
    assert any(note.startswith("Not asked: which operation") and why in note for note in incidents(state)[0].notes)


def test_the_tensors_of_a_module_are_priced_by_the_shapes_in_the_dump():
    engine, state, order = climbed("operations", incident_bytes=10_000_000)

    state, orders = answered(engine, state, order, "module", tensor_bytes=50_000_000)

    assert orders == []
    assert any("5e+07 dumped bytes" in note for note in incidents(state)[0].notes)


def test_the_escalation_can_be_switched_off():
    engine, state, order = at_the_fault(escalate=False)

    assert answered(engine, state, order, "module")[1] == []


def test_a_closed_incident_is_not_asked_deeper():
    engine, state, order = at_the_fault()
    place = state.docket[0]
    closed = replace(state, docket=(replace(place, incident=replace(place.incident, state="closed")),))

    assert answered(engine, closed, order, "module")[1] == []


@pytest.mark.parametrize("answer", ANSWERS)
def test_triage_is_counted_as_the_answer_that_it_is(answer):
    assert answer_of(TRIAGE_OF[answer]) == answer


def test_the_documented_table_is_the_one_that_is_followed():
    page = (Path(__file__).parents[3] / "docs" / "captures.md").read_text(encoding="utf-8")

    assert table() in page


def going_on(engine, state, run):
    effects = []
    for event in events(run):
        state, more = engine.advance(state, event)
        effects += more
    return state, effects


def test_where_inputs_are_kept_the_step_itself_is_asked_for_beside_the_next_one():
    engine = an_engine()
    state = engine.initial("run", REFERENCE)
    state, _ = engine.advance(state, TrainerDescribed(ranks=8, parameters=5e8, recorder=True))
    state, effects = going_on(engine, state, changed(RUN, at=5, change=scaled("actor/kl_loss", 1.5))[:7])
    again, following = sorted(
        (effect.order for effect in effects if isinstance(effect, OrderCapture)), key=lambda order: order.first_step
    )

    assert (again.id, again.rerun, again.first_step, again.last_step, again.stages) == (
        "run:1/r1",
        True,
        5,
        5,
        (STAGE,),
    )
    assert (following.id, following.rerun, following.first_step) == ("run:1/c1", False, 6)
    assert (again.ranks, following.ranks) == (None, (0, 7))

    state, orders = answered(engine, state, again, "module")

    assert [(order.id, order.modules) for order in orders] == [("run:1/c2", (MODULE,))]
    assert engine.snapshot(state).captures[0].state == "cancelled"


@pytest.mark.parametrize("answer", ["nothing", "cleared"])
@pytest.mark.parametrize("non_finite", [True, False])
def test_a_rerun_that_shows_nothing_leaves_the_question_to_the_order_beside_it(answer, non_finite):
    engine = an_engine()
    state, _ = engine.advance(engine.initial("run", REFERENCE), TrainerDescribed(recorder=True))
    change = replaced(**{"actor/kl_loss": float("nan")}) if non_finite else scaled("actor/kl_loss", 1.5)
    state, effects = going_on(engine, state, changed(RUN, at=5, change=change)[:7])
    (again,) = [e.order for e in effects if isinstance(e, OrderCapture) and e.order.rerun]

    state, orders = answered(engine, state, again, answer)

    assert orders == []
    assert [c.state for c in engine.snapshot(state).captures if not c.order.rerun] == ["ordered"]


@pytest.mark.parametrize(("golden", "steps"), [(14, (14, 14)), (60, (9, 10))])
def test_a_second_capture_waits_for_a_step_that_has_a_golden_dump_if_one_is_near(golden, steps):
    dumps = (GoldenDump(step=golden, stage=STAGE, ranks=(0,), path="/g"),)
    engine = an_engine()
    state = engine.initial("run", replace(REFERENCE, dumps=dumps))
    state, effects = going_on(engine, state, changed(RUN, at=5, change=scaled("actor/kl_loss", 1.5))[:7])
    (order,) = [effect.order for effect in effects if isinstance(effect, OrderCapture)]

    _, (again,) = answered(engine, state, order, "nothing")

    assert (again.first_step, again.last_step) == steps
