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


def test_a_job_that_fails_is_said_and_the_next_runs():
    """One failure does not end the others."""
    faults, done = [], []
    chores = Chores(faults.append)
    chores.do("bad", lambda: 1 / 0)
    chores.do("good", done.append, 1)
    chores.wait(5.0)

    assert done == [1]
    assert faults == ["ZeroDivisionError: division by zero"]
    chores.close()


def test_after_closing_nothing_is_begun():
    """A late wish is dropped."""
    done = []
    chores = Chores(print)
    chores.close()
    chores.do("late", done.append, 1)

    assert done == []
