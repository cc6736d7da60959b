# SPDX-License-Identifier: Apache-2.0
"""Policies of steps: merging, doubles, late lines, restarts, vanished keys."""

from __future__ import annotations

import json
import math

import pytest

from sentinel.sources.ledger import WINDOW, Ledger, Record, kind_of
from sentinel.sources.lines import Notes


def judge(*records: Record) -> tuple[list[tuple[int, int]], tuple[str, ...]]:
    notes = Notes()
    ledger = Ledger(notes)
    places = [(reading.attempt, reading.step) for reading in map(ledger.add, records)]
    ledger.finish()
    return places, notes.codes


def steps(*numbers: int, key: str = "a", value: float = 1.0) -> list[Record]:
    return [Record(number, {key: value + number}) for number in numbers]


def test_steps_in_order_raise_nothing():
    assert judge(*steps(0, 1, 5, 9)) == ([(1, 0), (1, 1), (1, 5), (1, 9)], ())


def test_a_lower_step_begins_an_attempt():
    assert judge(*steps(4, 5, 4, 5)) == ([(1, 4), (1, 5), (2, 4), (2, 5)], ("restart_detected",))


def test_a_lower_step_with_only_new_keys_is_late():
    places, codes = judge(*steps(1, 2), Record(1, {"b": 3.0}))

    assert places[-1] == (1, 1)
    assert codes == ("late_line",)


def test_a_late_line_that_holds_one_known_key_is_a_restart():
    places, codes = judge(*steps(1, 2), Record(1, {"a": 2.0, "b": 3.0}))

    assert places[-1] == (2, 1)
    assert codes == ("restart_detected",)


def test_another_value_for_a_known_key_is_a_double():
    assert judge(Record(1, {"a": 1.0}), Record(1, {"a": 2.0}))[1] == ("duplicate_step",)


@pytest.mark.parametrize("value", [1.0, math.nan, -math.inf])
def test_the_same_value_again_is_harmless(value):
    assert judge(Record(1, {"a": value}), Record(1, {"a": value, "b": 1.0}))[1] == ()


def test_a_sign_of_the_source_begins_an_attempt_even_where_steps_go_on():
    places, codes = judge(*steps(1, 2), Record(3, {"a": 1.0}, restart=True))

    assert places[-1] == (2, 3)
    assert codes == ("restart_detected",)


def test_a_sign_before_the_first_record_begins_nothing():
    assert judge(Record(3, {"a": 1.0}, restart=True)) == ([(1, 3)], ())


def test_a_rewritten_file_begins_an_attempt_with_its_first_record():
    notes = Notes()
    ledger = Ledger(notes)
    ledger.add(Record(1, {"a": 1.0}))
    ledger.rewritten()
    ledger.rewritten()
    assert notes.codes == ()

    assert ledger.add(Record(2, {"a": 1.0})).attempt == 2
    assert ledger.add(Record(3, {"a": 1.0})).attempt == 2


def vanishing(present: int, absent: int = 1, *, cut: bool = False, extra: tuple[str, ...] = ()) -> tuple[str, ...]:
    records = [Record(step, {"a": 1.0, "b": 1.0}) for step in range(1, present + 1)]
    records += [
        Record(step, {"a": 1.0} | dict.fromkeys(extra, 1.0), cut=cut)
        for step in range(present + 1, present + absent + 1)
    ]
    return judge(*records)[1]


def test_a_key_of_two_earlier_steps_that_is_missing_has_vanished():
    assert vanishing(2) == ("key_vanished",)


def test_a_key_of_one_earlier_step_has_not_vanished():
    assert vanishing(1) == ()


def test_a_cut_explains_a_missing_key():
    assert vanishing(3, cut=True) == ()


def test_a_cut_step_does_not_end_the_watch_for_a_key():
    records = [Record(step, {"a": 1.0, "b": 1.0}) for step in (1, 2)]
    records += [Record(3, {"a": 1.0}, cut=True), Record(4, {"a": 1.0})]

    assert judge(*records)[1] == ("key_vanished",)


def test_periodic_keys_do_not_vanish():
    records = [Record(step, {"a": 1.0} | ({"val/x": 1.0} if step % 2 else {})) for step in range(1, 7)]

    assert judge(*records)[1] == ()


def test_validation_steps_are_not_asked_for_train_keys():
    records = [Record(0, {"val-core/x": 1.0}), *steps(1, 2, 3), Record(4, {"val-core/x": 1.0}), *steps(5)]

    assert judge(*records)[1] == ()


def test_a_step_is_judged_only_when_the_one_after_it_has_begun():
    records = []
    for step in range(1, 5):
        records += (
            [Record(step, {"a": 1.0}), Record(step - 1, {"late": 1.0})] if step > 1 else [Record(step, {"a": 1.0})]
        )

    assert judge(*records)[1] == ("late_line", "key_vanished")  # only the last step still lacks its late line


def test_memory_is_bounded():
    ledger = Ledger(Notes())
    for record in steps(*range(3 * WINDOW)):
        ledger.add(record)

    assert len(ledger._recent) == WINDOW
    assert len(ledger._unchecked) <= 2


def test_a_saved_state_goes_on():
    one, two = Ledger(Notes()), Ledger(notes := Notes())
    for record in [*steps(1, 2), Record(2, {"b": math.nan})]:
        one.add(record)
    two.restore(json.loads(json.dumps(one.to_plain())))

    assert two.add(Record(1, {"c": 1.0})).attempt == 1
    assert two.add(Record(2, {"b": math.nan})).attempt == 1
    assert two.add(Record(1, {"a": 5.0})).attempt == 2
    assert notes.codes == ("late_line", "restart_detected")


def test_kinds():
    assert kind_of({"val-core/a": 1.0, "val/b": 1.0, "eval_loss": 1.0, "test_score/x": 0.0}) == "val"
    assert kind_of({"val-core/a": 1.0, "timing_s/testing": 1.0}) == "train"
    assert kind_of({}) == "train"
