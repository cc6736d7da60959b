# SPDX-License-Identifier: Apache-2.0
"""The daemon's log: what happened, one JSON object a line, bounded, without secrets, and never in the way."""

import datetime as dt
import json

import pytest

from sentinel.daemon.diary import FILE, Diary
from sentinel.daemon.house import House
from tests.support.watching import World


def lines(home):
    return [json.loads(line) for line in (home / FILE).read_text().splitlines()]


def test_a_day_of_a_daemon(tmp_path):
    house = House(
        json.dumps({"home": "home", "http": {"port": 0}, "alerts": {"webhook": "http://127.0.0.1:9/"}}),
        str(tmp_path / "s.yaml"),
    )
    (tmp_path / "world").mkdir()
    world = World(tmp_path / "world")
    world.watchdog = house.watchdog
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, actor__grad_norm=float("nan"))
    trainer.obey()
    trainer.steps(9, 12)
    world.settle()
    house.watchdog.tick()
    house.watchdog.tick()
    trainer.end()
    house.close()
    found = lines(tmp_path / "home")
    events = [(line["event"], line.get("change")) for line in found]

    assert events[0] == ("started", None)
    assert events[-1] == ("ended", None)
    for wanted in (("joined", None), ("incident", "opened"), ("order", None), ("incident", "closed"), ("left", None)):
        assert events.count(wanted) == 1, (wanted, events)
    opened = found[events.index(("incident", "opened"))]
    assert (opened["run"], opened["incident"], opened["stage"], opened["level"]) == (
        "r",
        "r:1",
        "actor_update",
        "warning",
    )
    faults = [line for line in found if line["event"] == "fault"]
    assert faults
    assert len({line["why"] for line in faults}) == len(faults)  # said once, not at each tick
    assert all(dt.datetime.fromisoformat(line["at"]).utcoffset() == dt.timedelta(0) for line in found)


def test_hostile_text_stays_on_its_line_and_secrets_stay_out(tmp_path):
    diary = Diary(tmp_path)
    diary.write(
        "x",
        run='a"\n{"event": "forged"}\u2028',
        why="see https://me:hunter2@host/?token=abcdefgh " + "y" * 9000,
        token="t0p",
    )
    diary.close()
    (line,) = (tmp_path / FILE).read_text().splitlines()

    assert json.loads(line)["event"] == "x"
    assert len(line) < 4000
    assert not any(secret in line for secret in ("hunter2", "abcdefgh", "t0p"))


def test_its_size_is_bounded(tmp_path):
    diary = Diary(tmp_path)
    for number in range(12_000):
        diary.write("x", why="y" * 1000, number=number)
    diary.close()

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 9 << 20
    assert lines(tmp_path)[-1]["number"] == 11_999


@pytest.mark.parametrize("home", ["missing", "file"])
def test_a_log_that_cannot_be_written_is_in_nobodys_way(tmp_path, home):
    (tmp_path / "file").write_text("")
    diary = Diary(tmp_path / home)
    diary.write("x")
    diary.close()
