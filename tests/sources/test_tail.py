# SPDX-License-Identifier: Apache-2.0
"""The bytes of a growing path, each once, whatever happens to the file."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from sentinel.errors import UnreadableLog
from sentinel.sources.tail import COPIED, REWRITTEN, ROTATED, Tail


class Watched:
    """A path, what a tail saw of it, and a restart of the tail."""

    def __init__(self, path):
        self.path = path
        self.tail = Tail(path)
        self.bytes = b""
        self.kinds = []

    def look(self):
        for piece in self.tail.look():
            self.bytes += piece.data
            if piece.kind != "data":
                self.kinds.append(piece.kind)
        return self.bytes

    def restart(self):
        state = json.loads(json.dumps(self.tail.to_plain()))
        self.tail.close()
        self.tail = Tail(self.path)
        self.tail.restore(state)


@pytest.fixture
def log(tmp_path):
    watched = Watched(tmp_path / "run.log")
    yield watched
    watched.tail.close()


def append(path, data):
    with path.open("ab") as stream:
        stream.write(data)


def test_a_file_that_does_not_exist_yet_is_waited_for(log):
    assert log.look() == b""
    assert log.tail.missing
    log.path.write_bytes(b"one\n")

    assert log.look() == b"one\n"
    assert not log.tail.missing


@pytest.mark.parametrize("restarted", [False, True])
def test_appended_bytes_come_once(log, restarted):
    for n in range(5):
        append(log.path, b"%d\n" % n)
        log.look()
        log.look()
        if restarted:
            log.restart()

    assert log.look() == b"0\n1\n2\n3\n4\n"
    assert log.kinds == []


@pytest.mark.parametrize("restarted", [False, True])
def test_the_rest_of_a_renamed_file_comes_before_the_new_one(log, restarted):
    append(log.path, b"one\n")
    log.look()
    append(log.path, b"two\n")
    if restarted:
        log.restart()
    log.path.rename(log.path.with_name("run.log.1"))
    log.path.write_bytes(b"three\n")

    assert log.look() == b"one\ntwo\nthree\n"
    assert log.kinds == [ROTATED]


@pytest.mark.parametrize("restarted", [False, True])
def test_files_that_came_and_went_between_two_looks_are_read_in_order(log, restarted):
    append(log.path, b"0\n")
    log.look()
    if restarted:
        log.restart()
    for n in range(1, 4):
        for old in range(3, 0, -1):
            if (rotated := log.path.with_name(f"run.log.{old}")).exists():
                rotated.rename(log.path.with_name(f"run.log.{old + 1}"))
        log.path.rename(log.path.with_name("run.log.1"))
        log.path.write_bytes(b"%d\n" % n)

    assert log.look() == b"0\n1\n2\n3\n"
    assert log.kinds == [ROTATED] * 3


def test_a_writer_that_keeps_the_renamed_file_is_still_read(log):
    append(log.path, b"one\n")
    log.look()
    moved = log.path.with_name("run.log.1")
    log.path.rename(moved)
    append(moved, b"two\n")
    assert log.look() == b"one\ntwo\n"
    log.path.touch()  # what logrotate's `create` leaves
    assert log.look() == b"one\ntwo\n"
    append(moved, b"three\n")
    assert log.look() == b"one\ntwo\nthree\n"
    append(log.path, b"four\n")

    assert log.look() == b"one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_shorter_file_is_read_from_its_start(log, restarted):
    append(log.path, b"one\ntwo\n")
    log.look()
    if restarted:
        log.restart()
    log.path.write_bytes(b"1\n")

    assert log.look() == b"one\ntwo\n1\n"
    assert log.kinds == [REWRITTEN]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_written_anew_and_longer_is_noticed_by_its_beginning(log, restarted):
    append(log.path, b"one\n")
    log.look()
    if restarted:
        log.restart()
    log.path.write_bytes(b"uno\ndos\ntres\n")

    assert log.look() == b"one\nuno\ndos\ntres\n"
    assert log.kinds == [REWRITTEN]


def test_a_file_written_anew_with_the_same_head_is_noticed_by_what_stood_before_the_place(log):
    head = b"the same configuration\n" * 100
    append(log.path, head + b"step:1\n")
    log.look()
    log.restart()
    log.path.write_bytes(head + b"step:9\nstep:10\n")

    assert log.look().endswith(b"step:1\n" + head + b"step:9\nstep:10\n")
    assert log.kinds == [REWRITTEN]


def test_a_replaced_file_is_rewritten_and_not_rotated(log):
    append(log.path, b"one\n")
    log.look()
    fresh = log.path.with_name("fresh")
    fresh.write_bytes(b"two\n")
    os.replace(fresh, log.path)

    assert log.look() == b"one\ntwo\n"
    assert log.kinds == [REWRITTEN]


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_copied_away_before_a_truncation_is_found(log, restarted):
    append(log.path, b"one\n")
    log.look()
    append(log.path, b"two\nthr")
    if restarted:
        log.restart()
    shutil.copy(log.path, log.path.with_name("run.log.1"))
    log.path.write_bytes(b"")
    append(log.path, b"ee\n")

    assert log.look() == b"one\ntwo\nthree\n"
    assert log.kinds == [COPIED]


def test_other_files_beside_it_are_not_taken_for_rotated_ones(log):
    append(log.path, b"one\n")
    log.look()
    log.path.rename(log.path.with_name("run.log.1"))
    log.path.with_name("run.log.err").write_bytes(b"not ours\n")
    log.path.with_name("run.jsonl").write_bytes(b"not ours\n")
    log.path.write_bytes(b"two\n")

    assert log.look() == b"one\ntwo\n"


def test_an_older_rotated_file_is_not_read_even_if_its_time_is_the_same(log):
    older = log.path.with_name("run.log.1")
    older.write_bytes(b"from before\n")
    os.utime(older, ns=(10**18, 10**18))
    append(log.path, b"one\n")
    log.look()
    older.rename(log.path.with_name("run.log.2"))
    log.path.rename(older)
    os.utime(older, ns=(10**18, 10**18))
    log.path.write_bytes(b"two\n")

    assert log.look() == b"one\ntwo\n"


def test_a_rotated_file_is_opened_by_what_it_is_and_not_by_the_name_it_had(log):
    append(log.path, b"0\n")
    log.look()
    append(log.path, b"")
    log.path.rename(log.path.with_name("run.log.2"))
    log.path.with_name("run.log.1").write_bytes(b"1\n")
    log.path.write_bytes(b"2\n")
    listing, looks = log.tail._siblings, []

    def shifting(named):
        found = listing(named)
        looks.append(named)
        if len(looks) == 3:  # the moment between the last listing and the opening
            for number in (2, 1):
                name = log.path.with_name(f"run.log.{number}")
                name.rename(log.path.with_name(f"run.log.{number + 1}"))
            log.path.with_name("run.log.1").write_bytes(b"a stranger\n")
        return found

    log.tail._siblings = shifting

    assert log.look() == b"0\n1\n2\n"


def test_a_deleted_file_that_comes_again_is_read_again(log):
    append(log.path, b"one\n")
    log.look()
    log.path.unlink()
    assert log.look() == b"one\n"
    assert log.tail.missing
    log.path.write_bytes(b"two\n")

    assert log.look() == b"one\ntwo\n"


def test_a_look_is_limited(log):
    log.path.write_bytes(b"x" * (3 << 20))
    pieces = list(log.tail.look(limit=1 << 20))

    assert sum(len(piece.data) for piece in pieces) == 1 << 20
    assert not log.tail.at_end


def test_a_folder_or_pipe_is_refused(tmp_path):
    with pytest.raises(UnreadableLog):
        list(Tail(tmp_path).look())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableLog):
        list(Tail(tmp_path / "pipe").look())


def test_no_file_is_left_open(log):
    before = len(os.listdir("/proc/self/fd"))
    for n in range(20):
        log.path.write_bytes(b"%d\n" % n * (n % 3 + 1))
        log.look()
        log.path.rename(log.path.with_name(f"run.log.{n}"))
        log.look()
    log.tail.close()

    assert len(os.listdir("/proc/self/fd")) == before
