# SPDX-License-Identifier: Apache-2.0
"""Following: readings of growing sources, each record once, over restarts of the follower."""

from __future__ import annotations

import json
import math
import os
import threading
import time

import pytest

from sentinel.sources import Follower, follow
from tests.sources.event_files import record, scalar


def line(step: int, value: float = 0.5) -> str:
    return f"(TaskRunner pid=7) step:{step} - actor/loss:{value} - actor/grad_norm:{value + 1} - training/global_step:{step}\n"


def append(path, text) -> None:
    with path.open("ab") as stream:
        stream.write(text.encode() if isinstance(text, str) else text)


def again(follower: Follower) -> Follower:
    """A new follower from the saved state of this one, as after a restart of the daemon."""
    follower.close()
    return Follower(follower.path, state=json.loads(json.dumps(follower.to_plain())))


def steps(result) -> list[tuple[int, int]]:
    return [(reading.attempt, reading.step) for reading in result.readings]


def codes(result) -> list[str]:
    return [warning.code for warning in result.warnings]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "run.log"


def test_a_source_that_does_not_exist_yet_is_missing_and_then_followed(log):
    follower = Follower(log)
    assert follower.poll(1.0).state == "missing"
    log.touch()
    assert follower.poll(2.0).state == "waiting"
    append(log, line(1))

    result = follower.poll(3.0)

    assert (result.state, result.format, steps(result)) == ("following", "verl_console", [(1, 1)])


def test_half_a_line_is_waited_for_and_not_counted_twice(log):
    follower = Follower(log)
    append(log, line(1) + line(2)[:60])
    assert steps(follower.poll(1.0)) == [(1, 1)]
    append(log, line(2)[60:])

    result = follower.poll(2.0)

    assert steps(result) == [(1, 2)]
    assert result.readings[0].metrics["actor/grad_norm"] == 1.5
    assert result.warnings == ()


def test_every_place_to_stop_and_go_on_gives_each_record_once(log):
    whole = (line(1) + "noise\n" + line(2) + line(3, math.nan)).encode()
    for cut in range(len(whole)):
        log.write_bytes(whole[:cut])
        follower = Follower(log)
        got = list(follower.poll(1.0).readings)
        follower = again(follower)
        append(log, whole[cut:])
        got += follower.poll(2.0).readings
        got += follower.poll(3.0).readings
        follower.close()
        log.unlink()

        assert [(r.step, len(r.metrics)) for r in got] == [(1, 3), (2, 3), (3, 3)], cut


def test_silence_is_measured_from_the_last_record_and_not_from_other_lines(log):
    follower = Follower(log)
    append(log, line(1))
    now = log.stat().st_mtime
    follower.poll(now)
    append(log, "still alive\n")

    assert follower.poll(now + 100.0).silent_seconds == pytest.approx(100.0, abs=1.0)
    append(log, line(2))
    assert follower.poll(now + 150.0).silent_seconds == 0.0


def test_the_silence_of_an_old_file_is_its_age(log):
    append(log, line(1))
    os.utime(log, (1_000_000, 1_000_000))

    assert Follower(log).poll(1_003_600.0).silent_seconds == 3600.0


def test_a_source_without_a_record_has_no_silence(log):
    append(log, "(TaskRunner pid=7) loading\n")

    result = Follower(log).poll(1.0)

    assert (result.state, result.silent_seconds) == ("waiting", None)


def test_a_worker_that_complains_before_the_first_step_is_heard(log):
    append(log, "(WorkerDict pid=4401) WARN: grad_norm is not finite: nan\n" * 3)
    follower = Follower(log)

    assert codes(follower.poll(1.0)) == ["worker_non_finite"]
    append(log, line(1) + "(WorkerDict pid=4401) WARN: grad_norm is not finite: nan\n")
    assert codes(follower.poll(2.0)) == ["worker_non_finite"]


def test_a_resume_that_rewrites_the_file_is_another_attempt(tmp_path):
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps({"step": s, "data": {"a/b": 1.0}}) + "\n" for s in (1, 2, 3)))
    follower = Follower(log)
    assert steps(follower.poll(1.0)) == [(1, 1), (1, 2), (1, 3)]
    log.write_text(json.dumps({"step": 3, "data": {"a/b": 2.0}}) + "\n")

    result = follower.poll(2.0)

    assert steps(result) == [(2, 3)]
    assert codes(result) == ["file_rewritten", "restart_detected"]


def test_the_rest_of_a_torn_line_at_a_rewrite_is_said_and_not_joined(log):
    follower = Follower(log)
    append(log, line(1) + line(2)[:62])
    follower.poll(1.0)
    log.write_text(line(1, 0.25))

    result = follower.poll(2.0)

    assert steps(result) == [(1, 2), (2, 1)]
    assert {"truncated_line", "file_rewritten", "restart_detected"} <= set(codes(result))
    assert "actor/grad_norm" not in result.readings[0].metrics


def test_rotation_by_renaming_is_no_restart(log):
    follower = Follower(log)
    append(log, line(1))
    follower.poll(1.0)
    append(log, line(2))
    log.rename(log.with_name("run.log.1"))
    append(log, line(3))

    result = follower.poll(2.0)

    assert steps(result) == [(1, 2), (1, 3)]
    assert result.warnings == ()


def test_a_format_that_shows_late_is_recognised(log):
    follower = Follower(log)
    for n in range(5):
        append(log, f"some preparation {n}\n" * 10)
        assert follower.poll(float(n)).format is None
    append(log, "step 0: {'train/loss': 0.5}\n")

    results = [follower.poll(10.0), follower.poll(11.0)]

    assert [reading.metrics for result in results for reading in result.readings] == [{"train/loss": 0.5}]
    assert results[-1].format == "slime"


def test_a_file_that_is_rotated_before_its_format_is_known_is_read_from_its_start(log):
    append(log, "some preparation\n")
    follower = Follower(log)
    assert follower.poll(1.0).format is None
    append(log, line(1))
    log.rename(log.with_name("run.log.1"))
    append(log, line(2))

    assert steps(follower.poll(2.0)) == [(1, 1), (1, 2)]


def test_a_given_format_is_not_guessed(log):
    append(log, "nothing yet\n")

    assert Follower(log, format="megatron").poll(1.0).format == "megatron"


def test_a_trainer_state_tells_each_step_once_over_checkpoints(tmp_path):
    state = tmp_path / "trainer_state.json"
    history = [{"step": s, "loss": 1.0 / s} for s in range(1, 7)]
    state.write_text(json.dumps({"log_history": history[:3]}, indent=2))
    follower = Follower(state)
    assert steps(follower.poll(1.0)) == [(1, 1), (1, 2), (1, 3)]
    state.write_text(json.dumps({"epoch": 0.5, "log_history": history}, indent=2))
    follower = again(follower)

    result = follower.poll(2.0)

    assert steps(result) == [(1, 4), (1, 5), (1, 6)]


def test_event_files_of_a_folder_are_followed_and_a_new_one_joins(tmp_path):
    follower = Follower(tmp_path)
    assert follower.poll(1.0).state == "missing"
    first, second = (tmp_path / f"events.out.tfevents.{time_}.host.1.0" for time_ in (100, 200))
    first.write_bytes(record(b"") + scalar(1, "a", 0.5) + scalar(1, "b", 1.5) + scalar(2, "a", 0.5)[:-3])
    assert steps(follower.poll(2.0)) == [(1, 1)]
    append(first, scalar(2, "a", 0.5)[-3:])
    assert steps(follower.poll(3.0)) == [(1, 2)]
    follower = again(follower)
    second.write_bytes(scalar(2, "a", 0.75))

    result = follower.poll(4.0)

    assert [(r.attempt, r.step, dict(r.metrics)) for r in result.readings] == [(1, 2, {"a": 0.75})]
    assert codes(result) == ["duplicate_step"]


def test_what_the_system_refuses_is_a_warning_and_is_said_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    follower = Follower(tmp_path / "pipe")

    assert codes(follower.poll(1.0)) == ["unreadable"]
    assert codes(follower.poll(2.0)) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_a_warning(log):
    append(log, line(1))
    log.chmod(0)

    assert codes(Follower(log).poll(1.0)) == ["unreadable"]


def test_a_state_of_another_version_is_ignored(log):
    append(log, line(1))
    follower = Follower(log, state={"version": 0, "source": {"kind": "from the future"}})

    assert steps(follower.poll(1.0)) == [(1, 1)]


def test_a_step_of_several_lines_arrives_as_one_reading_if_it_arrives_together(log):
    follower = Follower(log)
    append(log, "step:1 - a/b:1.0\nstep:1 - c/d:2.0\n")

    assert [dict(r.metrics) for r in follower.poll(1.0).readings] == [{"a/b": 1.0, "c/d": 2.0}]


def test_at_the_end_an_unfinished_line_is_judged_as_cut(log):
    append(log, line(1) + line(2)[:62])
    follower = Follower(log)
    assert steps(follower.poll(1.0)) == [(1, 1)]

    result = follower.finish(2.0)

    assert [(r.step, set(r.metrics)) for r in result.readings] == [(2, {"actor/loss"})]
    assert set(codes(result)) == {"truncated_line", "value_cut"}


class Loop:
    """The loop in a thread of its own."""

    def __init__(self, paths, **options):
        self.got = []
        self.stop = threading.Event()
        followers = {path.name: Follower(path) for path in paths}
        self._thread = threading.Thread(target=follow, args=(followers, self._take, self.stop), kwargs=options)

    def _take(self, name, result):
        self.got += [(name, reading.step, time.time()) for reading in result.readings]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self._thread.join(timeout=10)
        assert not self._thread.is_alive()

    def wait_for(self, count, seconds=10.0):
        deadline = time.time() + seconds
        while len(self.got) < count and time.time() < deadline:
            time.sleep(0.005)
        assert len(self.got) >= count


@pytest.mark.timeout(60)
@pytest.mark.parametrize("notices", [True, False], ids=["with notices", "polling only"])
def test_the_loop_brings_records_of_several_files_soon(tmp_path, notices):
    paths = [tmp_path / f"run{n}.log" for n in range(3)]
    for path in paths:
        append(path, "(TaskRunner pid=7) begins\n")
    delays = []
    with Loop(paths, notices=notices) as loop:
        for step in range(1, 9):
            written = time.time()
            append(paths[step % 3], line(step))
            loop.wait_for(step)
            delays.append(loop.got[-1][2] - written)

    assert [step for _, step, _ in loop.got] == list(range(1, 9))
    # the promise is 0.5 s at the 99th percentile on a machine with time to spare; here others run beside
    assert sorted(delays)[len(delays) // 2] < 0.5
    assert max(delays) < 3.0


def test_reading_a_file_does_not_wake_the_loop(tmp_path):
    path = tmp_path / "run.log"
    append(path, line(1))
    follower = Follower(path)
    looks = []
    poll = follower.poll
    follower.poll = lambda now: looks.append(now) or poll(now)
    stop = threading.Event()
    thread = threading.Thread(target=follow, args=({"run": follower}, lambda *_: None, stop))
    thread.start()
    time.sleep(1.0)
    stop.set()
    thread.join()

    assert len(looks) <= 8
