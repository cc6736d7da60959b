"""Which trainer process may report a run, and what came already."""

import json

from sentinel.daemon.sessions import TAKEOVER_SECONDS, Sessions


def nobody_knows(host, pid):
    return None


def test_what_is_sent_again_is_no_news():
    """A step that was told, with the same time, came again because an answer was lost."""
    sessions = Sessions()
    trainer = sessions.greet("s", {}, 0.0)

    assert sessions.is_news(trainer, 1, 10.0)
    assert not sessions.is_news(trainer, 1, 10.0)
    assert sessions.attempt == 1


def test_a_second_log_call_of_a_step_is_news_of_the_same_attempt():
    """verl may log twice in one step."""
    sessions = Sessions()
    trainer = sessions.greet("s", {}, 0.0)
    sessions.is_news(trainer, 1, 10.0)

    assert sessions.is_news(trainer, 1, 10.5)
    assert sessions.attempt == 1


def test_a_step_that_goes_back_begins_an_attempt():
    """Also within one process."""
    sessions = Sessions()
    trainer = sessions.greet("s", {}, 0.0)
    for step, at in ((1, 1.0), (2, 2.0), (1, 3.0)):
        sessions.is_news(trainer, step, at)

    assert sessions.attempt == 2


def test_another_process_begins_an_attempt_with_its_first_step():
    """A restart from a checkpoint goes on with the next step, and is another attempt all the same."""
    sessions = Sessions()
    sessions.is_news(sessions.greet("one", {}, 0.0), 5, 1.0)
    other = sessions.greet("two", {}, 100.0)
    sessions.is_news(other, 6, 101.0)
    sessions.is_news(other, 7, 102.0)

    assert sessions.attempt == 2


def test_a_name_is_taken_while_its_process_is_heard():
    """Two runs of one name at once: the second does not get it."""
    sessions = Sessions()
    sessions.greet("one", {"host": "a", "pid": 1}, 0.0)

    assert sessions.free_for("one", 1.0, nobody_knows)
    assert not sessions.free_for("two", 1.0, nobody_knows)
    assert sessions.free_for("two", TAKEOVER_SECONDS + 1, nobody_knows)


def test_a_name_is_free_when_its_process_died_on_this_host():
    """A crashed run that is started again at once keeps its name."""
    sessions = Sessions()
    sessions.greet("one", {"host": "a", "pid": 1}, 0.0)

    assert sessions.free_for("two", 1.0, lambda host, pid: False)
    assert not sessions.free_for("two", TAKEOVER_SECONDS * 10, lambda host, pid: True)


def test_a_name_is_free_after_goodbye():
    """A run that ended gives its name back at once."""
    sessions = Sessions()
    sessions.end(sessions.greet("one", {}, 0.0))

    assert sessions.free_for("two", 0.0, nobody_knows)


def test_the_daemons_own_absence_is_nobodys_silence():
    """After a restart of the daemon a process has time to be heard again."""
    sessions = Sessions()
    sessions.greet("one", {}, 0.0)
    sessions.spare(1000.0)

    assert not sessions.free_for("two", 1001.0, nobody_knows)


def test_it_survives_being_written():
    """Attempt, marks and the holder of the name are the same after a restart."""
    sessions = Sessions()
    trainer = sessions.greet("one", {"host": "a", "pid": 3}, 5.0)
    sessions.is_news(trainer, 4, 1.25)

    back = Sessions.from_plain(json.loads(json.dumps(sessions.to_plain())))

    assert back.to_plain() == sessions.to_plain()
    assert not back.is_news(back.greet("one", {}, 6.0), 4, 1.25)
