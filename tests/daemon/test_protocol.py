"""What trainer and daemon say to each other."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.daemon import protocol


def message(*records, **other):
    return {"v": 1, "run": "r", "session": "s", "records": list(records), **other}


def test_a_step_is_read_with_what_is_not_finite():
    """NaN and the infinities are values like others."""
    (step,) = protocol.parse(
        message({"t": "step", "step": 3, "at": 1.5, "values": {"a": 1, "b": math.inf, "c": math.nan}})
    ).records

    assert (step.step, step.at, step.values["a"], step.values["b"]) == (3, 1.5, 1.0, math.inf)
    assert math.isnan(step.values["c"])


def test_text_arrays_and_none_are_unreadable_and_nothing_else_is_lost():
    """A metric that is no number is named; the others of the step are judged."""
    (step,) = protocol.parse(
        message(
            {"t": "step", "step": 3, "at": 0, "values": {"a": 1.0, "b": "x", "c": [1], "d": None}, "unreadable": ["e"]}
        )
    ).records

    assert step.values == {"a": 1.0}
    assert set(step.unreadable) == {"b", "c", "d", "e"}


def test_a_broken_record_does_not_take_the_others_along():
    """Each record is read for itself."""
    told = protocol.parse(
        message({"t": "step"}, {"no": "kind"}, 7, {"t": "step", "step": 1, "at": 0, "values": {"a": 1.0}})
    )

    assert [r.step for r in told.records] == [1]
    assert len(told.faults) == 3


def test_a_record_of_a_later_version_is_passed_over():
    """Kinds that are not known are no fault."""
    told = protocol.parse(message({"t": "from_the_future", "x": 1}))

    assert (told.records, told.faults) == ((), ())


def test_another_version_is_said():
    """A trainer side of another version is heard as well as it can be, and it is said."""
    told = protocol.parse(message({"t": "end", "at": 1.0, "finished": True}, v=2))

    assert told.records[0].finished
    assert "version 2" in told.faults[0]


def test_receipts_take_all_for_ranks():
    """The contract writes `all` where no ranks are named."""
    told = protocol.parse(
        message(
            {
                "t": "receipt",
                "capture": "r:1/c1",
                "at": 2.0,
                "receipt": {"first_step": 2, "last_step": 2, "stages": ["actor_update"], "outcome": "complete"},
            }
        )
    )

    assert told.records[0].receipt.outcome == "complete"
    assert told.records[0].receipt.bytes == 0


def test_health_is_flattened():
    """Fuses are told by name."""
    (health,) = protocol.parse(message({"t": "health", "dropped": 2, "fuses": {"capture": 1}})).records

    assert health.numbers == {"dropped": 2.0, "fuses.capture": 1.0}


def test_hostile_names_become_one_bounded_line():
    """A run's name of 10 kB with newlines is cut and cleaned, not refused."""
    told = protocol.parse(message(run="a\n\x1b[31m" + "b" * 10_000))

    assert len(told.run) == protocol.RUN_LENGTH
    assert told.run.startswith("a [31m")


def test_a_hundred_thousand_metrics_are_bounded_and_said():
    """Cardinality is bounded at the door."""
    told = protocol.parse(message({"t": "step", "step": 1, "at": 0, "values": {f"m{i}": 0.0 for i in range(100_000)}}))

    assert len(told.records[0].values) == protocol.KEYS_A_STEP
    assert "100000 metrics" in told.faults[0]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
record = st.fixed_dictionaries(
    {"t": st.sampled_from(["start", "step", "receipt", "health", "end", "?"])},
    optional=dict.fromkeys(
        ("at", "facts", "config", "step", "values", "unreadable", "capture", "receipt", "finished", "fuses"), anything
    ),
)


@settings(max_examples=60, deadline=None)
@given(
    anything
    | st.fixed_dictionaries({"v": anything, "run": anything, "records": st.lists(record | anything, max_size=4)})
)
def test_nothing_that_comes_over_the_wire_raises(message):
    """Whatever a trainer sends is a message, with faults where it cannot be read."""
    told = protocol.parse(message)

    assert len(told.run) <= protocol.RUN_LENGTH
