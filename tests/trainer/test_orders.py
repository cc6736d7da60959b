# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.trainer.orders import Order, OrderBook

PLAIN = {
    "id": "run:1/c1",
    "first_step": 8,
    "last_step": 9,
    "stages": ["actor_update"],
    "level": "L0",
    "ranks": "all",
    "why": "x",
}


def an_order(first, last, name="o"):
    return Order(name, first, last, ("actor_update",), asked_first_step=first)


def test_the_contract_form_is_read():
    order = Order.from_plain(PLAIN)

    assert (order.id, order.first_step, order.last_step, order.stages, order.ranks) == (
        "run:1/c1",
        8,
        9,
        ("actor_update",),
        None,
    )
    assert Order.from_plain({**PLAIN, "ranks": [0, 3]}).ranks == (0, 3)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"first_step": "x", "stages": ["a"]},
        {"first_step": 3, "last_step": 2, "stages": ["a"]},
        {"first_step": 1, "stages": []},
        {"first_step": 1, "stages": None},
    ],
)
def test_a_malformed_order_is_refused_with_its_number(broken):
    with pytest.raises(ValueError, match="order"):
        Order.from_plain(broken, number=4)


def test_an_order_is_due_on_its_steps_only():
    book = OrderBook()
    book.offer([an_order(5, 6)])

    assert [[order.id for order in book.due(step)[0]] for step in (4, 5, 6, 7)] == [[], ["o"], ["o"], []]
    assert len(book) == 0


def test_an_order_that_comes_late_is_moved_as_a_whole_to_the_next_boundary():
    book = OrderBook()
    book.offer([an_order(5, 6)])

    ((moved,), _) = book.due(8)

    assert (moved.first_step, moved.last_step, moved.asked_first_step) == (8, 9, 5)
    assert [order.id for order in book.due(9)[0]] == ["o"]
    assert book.due(10) == ([], [])


def test_the_same_order_is_not_taken_twice_not_even_after_it_was_finished():
    book = OrderBook()
    book.offer([an_order(5, 5)])
    book.finish("o")
    book.offer([an_order(5, 5)])

    assert book.due(5) == ([], [])


def test_a_cancelled_order_is_gone_and_named():
    book = OrderBook()
    book.offer([an_order(5, 5), an_order(5, 5, "kept")])

    assert [order.id for order in book.cancel(["o", "never heard of"])] == ["o"]
    assert [order.id for order in book.due(5)[0]] == ["kept"]


@given(
    first=st.integers(1, 50),
    length=st.integers(0, 3),
    steps=st.lists(st.integers(1, 60), min_size=1, max_size=40, unique=True),
)
def test_an_order_covers_as_many_steps_as_asked_and_never_one_before_its_first(first, length, steps):
    book = OrderBook()
    book.offer([an_order(first, first + length)])

    covered = [step for step in sorted(steps) if book.due(step)[0]]

    assert len(covered) <= length + 1
    assert all(step >= first for step in covered)
    if any(step >= first for step in steps):
        assert covered, "an order whose step came or passed was never obeyed"


def test_an_exact_order_that_is_late_is_given_up_and_named():
    """A golden dump of another step would be compared with the wrong weights."""
    book = OrderBook()
    book.offer([Order("golden-1", 1, 1, ("actor_update",), asked_first_step=1, exact=True)])

    due, missed = book.due(2)

    assert (due, [order.id for order in missed]) == ([], ["golden-1"])
    assert len(book) == 0


def test_orders_of_one_manner_share_a_step_and_another_manner_waits_for_the_next():
    book = OrderBook()
    book.offer(
        [an_order(5, 5, "a"), an_order(5, 5, "b"), Order("m", 5, 5, ("actor_update",), level="mix", asked_first_step=5)]
    )

    assert [order.id for order in book.due(5)[0]] == ["a", "b"]
    book.finish("a")
    book.finish("b")
    assert [(order.id, order.first_step) for order in book.due(6)[0]] == [("m", 6)]
