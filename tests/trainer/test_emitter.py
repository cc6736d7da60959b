# SPDX-License-Identifier: Apache-2.0
import threading
import time

from sentinel.trainer.emitter import Emitter


class RecordingOutlet:
    """Answers at once, or when told to; can be made to fail."""

    def __init__(self):
        self.records = []
        self.open = threading.Event()
        self.open.set()
        self.failing = 0
        self.closed = threading.Event()
        self.sent = threading.Event()

    def send(self, records):
        self.open.wait(5)
        if self.failing:
            self.failing -= 1
            raise ConnectionError("gone")
        self.records += [record["n"] for record in records]
        self.sent.set()
        return {"step": len(self.records)}

    def close(self):
        self.closed.set()


def emitter_for(outlet, replies=None, **options):
    return Emitter(outlet, (replies if replies is not None else []).append, **options)


def until(condition, seconds=3.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()


def test_records_arrive_in_order_and_each_is_answered():
    outlet, replies = RecordingOutlet(), []
    emitter = emitter_for(outlet, replies)
    numbers = [emitter.put({"n": n}) for n in range(100)]

    assert until(lambda: len(outlet.records) == 100)
    emitter.close()

    assert outlet.records == list(range(100))
    assert numbers == list(range(1, 101))
    assert outlet.closed.is_set()


def test_an_outlet_that_hangs_costs_the_caller_nothing_and_the_oldest_records_are_dropped_and_counted():
    outlet = RecordingOutlet()
    outlet.open.clear()
    emitter = emitter_for(outlet, capacity=10)
    emitter.put({"n": 0})
    time.sleep(0.05)

    began = time.perf_counter()
    for n in range(1, 31):
        emitter.put({"n": n})
    cost = time.perf_counter() - began
    outlet.open.set()
    assert until(lambda: outlet.records[-1:] == [30])
    emitter.close()

    assert cost < 0.05
    assert outlet.records[-10:] == list(range(21, 31))
    assert emitter.dropped == 21


def test_the_wait_ends_with_the_answer_to_that_very_record():
    outlet = RecordingOutlet()
    emitter = emitter_for(outlet)
    emitter.put({"n": 0})
    assert until(lambda: emitter.prompt)
    outlet.open.clear()
    number = emitter.put({"n": 1})
    threading.Timer(0.05, outlet.open.set).start()

    assert emitter.wait(number, bound_seconds=2.0) is True
    assert 0.01 < emitter.wait_seconds < 1.0
    assert emitter.waits_expired == 0
    emitter.close()


def test_nobody_waits_for_an_outlet_that_never_answered():
    outlet = RecordingOutlet()
    outlet.open.clear()
    emitter = emitter_for(outlet)
    number = emitter.put({"n": 0})

    began = time.perf_counter()
    answered = emitter.wait(number, bound_seconds=1.0)

    assert not answered
    assert time.perf_counter() - began < 0.1
    outlet.open.set()
    emitter.close()


def test_an_outlet_that_falls_silent_costs_its_bound_once_and_then_nothing_until_it_answers_again():
    outlet = RecordingOutlet()
    emitter = emitter_for(outlet)
    emitter.put({"n": 0})
    assert until(lambda: emitter.prompt)
    outlet.open.clear()

    waits = []
    for n in range(1, 6):
        number = emitter.put({"n": n})
        began = time.perf_counter()
        assert not emitter.wait(number, bound_seconds=0.1)
        waits.append(time.perf_counter() - began)

    assert 0.08 <= waits[0] <= 0.5
    assert max(waits[1:]) < 0.05
    assert emitter.waits_expired == 1
    outlet.open.set()
    assert until(lambda: emitter.prompt)
    assert emitter.wait(emitter.put({"n": 9}), bound_seconds=1.0)
    emitter.close()


def test_a_record_that_could_not_be_sent_is_sent_again_and_none_is_lost_or_doubled():
    outlet = RecordingOutlet()
    outlet.failing = 2
    emitter = emitter_for(outlet)
    for n in range(5):
        emitter.put({"n": n})

    assert until(lambda: len(outlet.records) == 5, seconds=6)
    emitter.close()

    assert outlet.records == list(range(5))
    assert emitter.failures == 2
    assert emitter.last_error == "ConnectionError: gone"


def test_closing_waits_no_longer_than_it_says():
    outlet = RecordingOutlet()
    outlet.open.clear()
    emitter = emitter_for(outlet)
    emitter.put({"n": 0})
    began = time.perf_counter()

    emitter.close(timeout_seconds=0.2)

    assert time.perf_counter() - began < 1.0
    outlet.open.set()


def test_an_idle_emitter_asks_now_and_then_so_that_orders_made_by_hand_arrive():
    outlet, replies = RecordingOutlet(), []
    emitter = emitter_for(outlet, replies, heartbeat_seconds=0.02)
    emitter.put({"n": 0})

    assert until(lambda: len(replies) >= 4)
    emitter.close()
    assert outlet.records == [0]


def test_the_order_in_a_reply_is_there_before_the_wait_ends():
    """Otherwise the decision on step N would reach the workers one step late."""
    outlet = RecordingOutlet()
    seen_at_release = []
    replies = []

    def slow_reply(reply):
        time.sleep(0.02)
        replies.append(reply)

    emitter = Emitter(outlet, slow_reply)
    emitter.put({"n": 0})
    assert until(lambda: emitter.prompt)
    for n in range(1, 6):
        number = emitter.put({"n": n})
        assert emitter.wait(number, 2.0)
        seen_at_release.append(len(replies))
    emitter.close()

    assert seen_at_release == [2, 3, 4, 5, 6]
