# SPDX-License-Identifier: Apache-2.0
import pytest

from sentinel.trainer.fuse import Fuse, attempt


def explode():
    raise ValueError("boom")


def test_an_action_that_works_gives_its_own_result():
    assert Fuse("metrics").run(lambda: 3, otherwise=0) == 3


def test_a_failure_gives_the_other_result_and_is_counted():
    fuse = Fuse("metrics", allowed=2)

    assert fuse.run(explode, otherwise="kept") == "kept"
    assert (fuse.failures, fuse.burnt) == (1, False)
    assert fuse.last_error == "ValueError: boom"


def test_a_burnt_fuse_runs_nothing_any_more():
    fuse = Fuse("metrics", allowed=1)
    fuse.run(explode, otherwise=None)
    ran = []

    assert fuse.burnt
    assert fuse.run(lambda: ran.append(1), otherwise="off") == "off"
    assert ran == []


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_passes_through(signal):
    def end():
        raise signal

    with pytest.raises(signal):
        Fuse("metrics").run(end, otherwise=None)


def test_a_failure_is_logged_once_each_and_never_after_the_fuse_has_burnt(caplog):
    fuse = Fuse("capture", allowed=2)
    for _ in range(5):
        fuse.run(explode, otherwise=None)

    assert len(caplog.records) == 2
    assert "off from now on" in caplog.records[-1].getMessage()


def test_attempt_returns_the_failure_instead_of_raising_it():
    assert attempt(lambda: None) is None
    assert isinstance(attempt(explode), ValueError)
