# SPDX-License-Identifier: Apache-2.0
"""No stream of events makes the engine raise, and a watch goes on from any stored step as if nothing had happened."""

import json
import math
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel.core.engine import from_plain, to_plain
from sentinel.core.report.incidents import IncidentSettings
from sentinel.records import (
    CaptureCancelled,
    CaptureOrder,
    CaptureReceipt,
    CaptureReported,
    CaptureRequested,
    StepReported,
    Tick,
    TrainerLeft,
    Triage,
    TriageArrived,
    WorkerSaid,
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

ENGINE = an_engine()
RUN = a_grpo_run(steps=12)
REFERENCES = {
    "none": None,
    "replayed": a_reference(RUN, twins=(repeated(RUN, seed=3),)),
    "free": a_reference(*[a_grpo_run(steps=12, seed=seed) for seed in (2, 3, 4)]),
    "broken": a_reference(
        changed(RUN, at=3, until=5, change=replaced(actor__entropy=math.nan, actor__grad_norm=math.inf))
    ),
    "one step": a_reference(RUN[:1]),
    "constant": a_reference(changed(RUN, at=1, change=lambda metrics: dict.fromkeys(metrics, 1.0))),
    "empty": a_reference(()),
    "other keys": a_reference(
        changed(RUN, at=1, change=lambda metrics: {f"x/{key}": value for key, value in metrics.items()})
    ),
    "huge": a_reference(
        changed(RUN, at=1, change=lambda metrics: {key: value * 1e300 for key, value in metrics.items()})
    ),
}
KEYS = (*RUN[0].metrics, "critic/vf_loss", "val-core/acc", "never seen", "actor/metric")
NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 1e300, -1e300, 5e-324, 1.0, math.nan, math.inf, -math.inf]),
    st.sampled_from(["0.25", "text", None, True, 3, 10**400]),
)
STEPS = st.builds(
    StepReported,
    step=st.integers(-2, 15),
    values=st.dictionaries(st.sampled_from(KEYS), NUMBERS, max_size=8),
    kind=st.sampled_from(["train", "val"]),
    attempt=st.integers(1, 3),
    at_seconds=st.floats(0, 1e9),
    unreadable=st.sampled_from([(), ("actor/entropy",)]),
)
RECEIPTS = st.builds(
    CaptureReceipt,
    first_step=st.integers(0, 20),
    last_step=st.integers(0, 20),
    stages=st.sampled_from([(), ("actor_update",)]),
    ranks=st.just((0,)),
    paths=st.sampled_from([(), ("/dumps/step_6/actor_update",)]),
    bytes=st.integers(0, 10**9),
    seconds=st.floats(0, 100),
    outcome=st.sampled_from(
        ["complete", "partial", "failed", "skipped", "refused", "recording", "expired", "cancelled", "?"]
    ),
)
NAMES = st.sampled_from(["run:1/c1", "run:1/c2", "run:m1", "nobody"])
ORDERS = st.builds(
    CaptureOrder,
    id=st.sampled_from(["", "run:m1"]),
    run=st.just("run"),
    incident=st.none(),
    first_step=st.integers(0, 20),
    last_step=st.integers(0, 20),
    stages=st.just(("actor_update",)),
    level=st.just("L0"),
    ranks=st.none(),
    why=st.just("by hand"),
)
TRIAGES = st.builds(
    Triage,
    verdict=st.sampled_from(["same", "diverged", "not_comparable", "clean", "non_finite"]),
    comparable=st.none(),
    first=st.none(),
    compared=st.integers(0, 9),
)
EVENTS = st.one_of(
    STEPS,
    st.builds(CaptureReported, capture=NAMES, receipt=RECEIPTS),
    st.builds(CaptureRequested, order=ORDERS),
    st.builds(CaptureCancelled, capture=NAMES),
    st.builds(TriageArrived, incident=st.sampled_from(["run:1", "nobody"]), capture=NAMES, triage=TRIAGES),
    st.builds(Tick, at_seconds=st.floats(0, 1e9)),
    st.builds(TrainerLeft, finished=st.booleans()),
    st.builds(WorkerSaid, code=st.sampled_from(["worker_non_finite", "other"]), text=st.just("line")),
)


@pytest.mark.parametrize("name", REFERENCES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stream=st.lists(EVENTS, max_size=20))
@pytest.mark.timeout(120)
def test_no_stream_makes_the_engine_raise(name, stream):
    state = ENGINE.initial("run", REFERENCES[name])
    for event in [*events(RUN[:3]), *stream]:
        state, _ = ENGINE.advance(state, event)
        ENGINE.snapshot(state)
    ENGINE.charts(state, KEYS)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stream=st.lists(EVENTS, max_size=12), at=st.integers(0, 11), name=st.sampled_from(sorted(REFERENCES)))
@pytest.mark.timeout(120)
def test_a_stored_watch_goes_on_as_if_nothing_had_happened(stream, at, name):
    """Also where what the baseline teaches is another watch's."""
    reference = REFERENCES[name]
    blank = ENGINE.initial("another", reference)
    bad = changed(RUN, at=4, change=scaled("actor/entropy", 1.3, "actor/grad_norm", 9))
    whole = [*events(bad)[:7], *stream, *events(bad)[7:]]

    straight = ENGINE.initial("run", reference)
    effects = []
    for event in whole:
        straight, more = ENGINE.advance(straight, event)
        effects.append(more)
    stored = ENGINE.initial("run", reference)
    for place, event in enumerate(whole):
        if place == at:
            stored = ENGINE.revived(json.loads(json.dumps(to_plain(stored))), blank)
        stored, more = ENGINE.advance(stored, event)

        assert repr(more) == repr(effects[place])

    assert json.dumps(to_plain(stored)) == json.dumps(to_plain(straight))


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_a_watch_that_has_just_begun_anew_is_stored_with_all_its_columns(name):
    """A run that is resumed clears its memory: no rows, which a stored list does not tell from no columns."""
    reference = REFERENCES[name]
    state = ENGINE.initial("run", reference)
    resumed = StepReported(step=0, values={"prompt_length/mean": 0.0})
    for event in [*events(RUN)[:4], resumed]:
        state, _ = ENGINE.advance(state, event)
    revived = ENGINE.revived(json.loads(json.dumps(to_plain(state))), ENGINE.initial("another", reference))

    assert shapes(revived) == shapes(state)
    for event in events(RUN):
        state, expected = ENGINE.advance(state, event)
        revived, got = ENGINE.advance(revived, event)
        assert repr(got) == repr(expected)


def shapes(state):
    """Of every array that a detector remembers."""
    return {
        (name, field.name): getattr(kept, field.name).shape
        for name, kept in state.memory.items()
        if is_dataclass(kept)
        for field in fields(kept)
        if isinstance(getattr(kept, field.name), np.ndarray)
    }


def test_quiet_steps_are_counted_on_after_a_restart():
    engine = an_engine(incidents=IncidentSettings(close_after_steps=5))
    once = changed(RUN, at=4, until=4, change=replaced(training__rollout_probs_diff_mean=0.9))
    state, _ = watched(engine, once[:7])

    state = from_plain(json.loads(json.dumps(to_plain(state))), None)
    for event in events(once)[7:9]:
        state, _ = engine.advance(state, event)

    assert incidents(state)[0].closed_at_step == 9


def test_charts_mark_where_something_was_found():
    state, _ = watched(ENGINE, changed(RUN, at=6, change=scaled("actor/entropy", 3)), REFERENCES["replayed"])

    (chart,) = ENGINE.charts(state, ["actor/entropy", "no such metric"])

    assert (chart.steps[0], chart.steps[-1], chart.marked) == (1, 12, (6,))
    assert chart.low[0] < chart.reference[0] < chart.high[0]
    assert chart.reference[0] == RUN[0].metrics["actor/entropy"]


def test_a_state_is_never_written_in_place():
    state, _ = watched(ENGINE, RUN[:6], REFERENCES["replayed"])
    before = json.dumps(to_plain(state))

    for event in events(changed(RUN, at=7, change=scaled("actor/entropy", 3)))[6:]:
        ENGINE.advance(state, event)

    assert json.dumps(to_plain(state)) == before


def test_a_run_that_resumes_is_one_run():
    resumed = [*events(RUN[:8]), *events(RUN[5:])]
    state = ENGINE.initial("run", REFERENCES["replayed"])
    for event in resumed[:8]:
        state, _ = ENGINE.advance(state, event)
    again = StepReported(
        step=6, values={**RUN[5].metrics, "actor/entropy": RUN[5].metrics["actor/entropy"] + 1e-9}, attempt=2
    )

    state, effects = ENGINE.advance(state, again)
    for event in events(RUN[6:]):
        state, more = ENGINE.advance(state, event)
        effects += more

    assert state.last_step == 12
    assert incidents(state) == []
    assert "step_went_back" in dict(state.warned)


def test_a_repeated_step_changes_nothing():
    state, _ = watched(ENGINE, RUN[:6], REFERENCES["replayed"])

    again, effects = ENGINE.advance(state, events(RUN)[5])

    assert effects == ()
    assert json.dumps(to_plain(again)) == json.dumps(to_plain(state))


def test_a_late_step_is_judged_and_does_not_turn_the_run_back():
    order = [*events(RUN[:4]), events(RUN)[5], StepReported(step=5, values={**RUN[4].metrics, "actor/entropy": 9.0})]
    state = ENGINE.initial("run", REFERENCES["replayed"])
    for event in order:
        state, _ = ENGINE.advance(state, event)

    assert state.last_step == 6
    assert [incident.opened_at_step for incident in incidents(state)] == [5]


def test_keys_that_come_later_belong_to_their_step():
    first, rest = dict(list(RUN[3].metrics.items())[:20]), dict(list(RUN[3].metrics.items())[20:])
    state, _ = watched(ENGINE, RUN[:3])
    state, _ = ENGINE.advance(state, StepReported(step=4, values=first))

    state, effects = ENGINE.advance(state, StepReported(step=4, values={**rest, "critic/vf_loss": math.nan}))

    assert [effect.incident.opened_at_step for effect in effects[:1]] == [4]
    assert "step_went_back" not in dict(state.warned)


def test_what_is_no_number_is_said_once():
    state = ENGINE.initial("run", None)
    first = StepReported(step=1, values={"actor/entropy": 0.3}, unreadable=("actor/kl_loss",))
    state, effects = ENGINE.advance(state, first)
    state, more = ENGINE.advance(state, StepReported(step=2, values={"actor/entropy": "abc"}))

    assert [effect.code for effect in effects] == ["unreadable_values"]
    assert more == ()


def test_a_number_as_text_is_a_number_and_a_missing_one_is_not_finite():
    state = ENGINE.initial("run", None)

    state, _ = ENGINE.advance(state, StepReported(step=1, values={"actor/entropy": "0.25", "actor/grad_norm": None}))

    assert [metric.value for metric in ENGINE.snapshot(state).metrics if metric.metric == "actor/entropy"] == [0.25]
    assert incidents(state)[0].findings[0].metric == "actor/grad_norm"


def test_a_baseline_of_another_metric_set_is_never_healthy():
    state, effects = watched(ENGINE, RUN, REFERENCES["other keys"])

    assert state.regime == "alone"
    assert state.comparable is False
    assert any(
        "25 metrics" in getattr(effect, "text", "") or "only 0" in getattr(effect, "text", "") for effect in effects
    )


def test_a_baseline_with_a_metric_more_says_what_is_missing():
    more = changed(RUN, at=1, change=replaced(critic__vf_loss=0.1))

    state, _ = watched(ENGINE, RUN, a_reference(more, twins=(repeated(more, seed=3),)))

    assert state.regime == "replayed"
    assert "critic/vf_loss" in dict(state.warned)["missing_metrics"]


def test_longer_prompts_are_another_task():
    state, _ = watched(ENGINE, changed(RUN, at=1, change=scaled("prompt_length/mean", 3)), REFERENCES["free"])

    assert state.comparable is False
    assert "prompts have 180 tokens" in dict(state.warned)["not_comparable"]


def test_a_run_that_falls_silent_is_an_incident_and_its_next_step_ends_it():
    state = ENGINE.initial("run", None)
    for reading in RUN[:3]:
        state, _ = ENGINE.advance(
            state, StepReported(step=reading.step, values=reading.metrics, at_seconds=60.0 * reading.step)
        )
    state, none = ENGINE.advance(state, Tick(at_seconds=600.0))
    state, effects = ENGINE.advance(state, Tick(at_seconds=5000.0))

    assert none == ()
    assert effects[0].incident.kind == "silence"
    assert ENGINE.snapshot(state).state == "silent"

    state, effects = ENGINE.advance(state, TrainerLeft(finished=True))

    assert ENGINE.snapshot(state).state == "finished"


def test_another_baseline_keeps_incidents_and_never_gives_an_id_twice():
    bad = changed(RUN, at=4, change=scaled("actor/kl_loss", 1.5))
    state, _ = watched(ENGINE, bad[:5], REFERENCES["replayed"])

    state = ENGINE.carried_over(state, ENGINE.initial(state.run, REFERENCES["free"]))
    for event in events(changed(a_grpo_run(steps=12, seed=5), at=6, change=replaced(actor__grad_norm=math.nan)))[5:]:
        state, _ = ENGINE.advance(state, event)

    assert state.regime == "free"
    assert [incident.id for incident in incidents(state)] == ["run:1", "run:2"]


def test_a_stored_watch_can_be_shown_before_its_next_step():
    state, _ = watched(ENGINE, RUN[:6], REFERENCES["replayed"])

    stored = from_plain(to_plain(state), REFERENCES["replayed"])

    assert ENGINE.snapshot(stored).regime == "replayed"
    assert len(ENGINE.charts(stored, ["actor/entropy"])[0].steps) == 6


def test_another_batch_size_is_another_recipe():
    def sized(rows):
        return lambda metrics: (
            metrics
            | {"perf/total_num_tokens": rows * (metrics["prompt_length/mean"] + metrics["response_length/mean"])}
        )

    reference = a_reference(*[changed(a_grpo_run(steps=12, seed=seed), at=1, change=sized(128)) for seed in (2, 3, 4)])

    other, _ = watched(ENGINE, changed(RUN, at=1, change=sized(64)), reference)
    same, _ = watched(ENGINE, changed(RUN, at=1, change=sized(128)), reference)

    assert "a step has 64 responses where the baseline's have 128" in dict(other.warned)["not_comparable"]
    assert same.comparable is True
