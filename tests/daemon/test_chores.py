"""Work beside the watch."""

import threading

from sentinel.daemon.chores import Chores


def test_jobs_run_and_are_waited_for():
    """`wait` returns when everything is done, also what a job has asked for."""
    faults, done = [], []
    chores = Chores(faults.append)
    chores.do("a", lambda: chores.do("b", done.append, 2))

    assert chores.wait(5.0)
    assert (done, faults) == ([2], [])
    chores.close()


def test_a_job_that_waits_is_not_queued_twice():
    """Ten wishes for the same report are one report."""
    gate, done = threading.Event(), []
    chores = Chores(print)
    for number in range(4):
        chores.do(("blocker", number), gate.wait)
    for _ in range(10):
        chores.do("report", done.append, 1)
    gate.set()

    assert chores.wait(5.0)
    assert done == [1]
    chores.close()


def test_jobs_of_one_key_never_run_side_by_side():
    """What was asked for while its predecessor ran comes after it: a report never replaces a newer one."""
    gate, begun, done = threading.Event(), threading.Event(), []
    chores = Chores(print)

    def slow():
        begun.set()
        gate.wait(5)
        done.append("old")

    chores.do("report", slow)
    begun.wait(5)
    chores.do("report", done.append, "newer")
    chores.do("report", done.append, "newest")
    chores.do("other", gate.set)  # another key does not wait

    assert chores.wait(5.0)
    assert done == ["old", "newest"]
    chores.close()


def test_waiting_has_an_end():
    """A job that hangs is not waited for beyond the bound."""
    gate = threading.Event()
    chores = Chores(print)
    chores.do("hanging", gate.wait)

    assert not chores.wait(0.05)
    gate.set()
    chores.close()


def test_a_job_that_fails_is_said_and_the_next_runs():
    """One failure does not end the others; what failed is told, for a full disk has no name."""
    faults, done = [], []
    chores = Chores(faults.append)
    chores.do(("report", "r:1"), lambda: 1 / 0)
    chores.do("good", done.append, 1)
    chores.wait(5.0)

    assert done == [1]
    assert faults == ["report r:1: ZeroDivisionError: division by zero"]
    chores.close()


def test_after_closing_nothing_is_begun():
    """A late wish is dropped."""
    done = []
    chores = Chores(print)
    chores.close()
    chores.do("late", done.append, 1)

    assert done == []
