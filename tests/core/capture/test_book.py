# SPDX-License-Identifier: Apache-2.0
"""What became of captures."""

import pytest

from sentinel.core.capture.book import Book, cancelled, entered, receipted
from sentinel.records import CaptureOrder, CaptureReceipt

ORDER = CaptureOrder("c1", "run", "run:1", 5, 6, ("actor_update",), "L0", None, "why")


def a_receipt(outcome, paths=("/dump/step_5",)):
    return CaptureReceipt(
        first_step=5, last_step=5, stages=ORDER.stages, ranks=(0,), paths=paths, bytes=7, seconds=0.1, outcome=outcome, why=""
    )  # fmt: skip


@pytest.mark.parametrize(
    ("receipt", "state"),
    [
        (a_receipt("cancelled", paths=()), "cancelled"),
        (a_receipt("complete"), "done"),
        (a_receipt("partial"), "done"),
        (a_receipt("failed", paths=()), "cancelled"),
    ],
)
def test_a_capture_that_was_taken_back_is_cancelled_unless_a_step_of_it_was_dumped(receipt, state):
    book, _ = cancelled(entered(Book(), ORDER), "c1")
    book, capture = receipted(book, "c1", receipt)

    assert capture.state == state
    assert book.bytes == receipt.bytes


def test_what_is_over_cannot_be_taken_back():
    book, _ = receipted(entered(Book(), ORDER), "c1", a_receipt("complete"))

    assert cancelled(book, "c1") == (book, False)
