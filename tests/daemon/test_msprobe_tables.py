# SPDX-License-Identifier: Apache-2.0
"""msprobe's own table and graph beside a report: made by real commands, within a time limit, and never waited for."""

import os
import sys
import threading
import time

import pytest

from sentinel.daemon.msprobe_tables import FOLDER, TableMaker, made, wanted
from sentinel.daemon.triaging import triage_paths
from sentinel.records import Triage
from tests.support.dumps import unpack
from tests.support.watching import World


@pytest.fixture
def pair(tmp_path):
    return triage_paths(str(unpack("mix-scaled", tmp_path / "target")), str(unpack("mix", tmp_path / "golden")))


def script(tmp_path, text):
    path = tmp_path / "command.py"
    path.write_text(text)
    return (sys.executable, str(path))


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_the_table_and_the_graph_of_a_pair_lie_beside_the_report(tmp_path, pair):
    pytest.importorskip("msprobe")
    assert wanted(pair)

    failures = TableMaker().make(pair, tmp_path / "incident" / FOLDER)

    assert failures == ()
    table, graph = made(tmp_path / "incident")
    assert table.startswith("msprobe/compare/")
    assert graph.endswith(".vis.db")
    assert "Linear.forward" in (tmp_path / "incident" / table).read_text()


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path, pair):
    hangs = script(tmp_path, "import subprocess, sys, time\nsubprocess.Popen(['sleep', '60'])\ntime.sleep(60)\n")
    before = time.monotonic()

    failures = TableMaker(hangs, limit_seconds=0.5).make(pair, tmp_path / "m")

    assert time.monotonic() - before < 20
    assert [failure.split(":")[1].strip() for failure in failures] == ["not done within 0.5 s"] * 2


def test_what_a_failing_command_said_is_passed_on(tmp_path, pair):
    fails = script(tmp_path, "import sys\nprint('first')\nsys.exit('no space left')\n")

    assert TableMaker(fails).make(pair, tmp_path / "m")[0] == "msprobe compare left nothing: no space left"
    assert made(tmp_path) == ()


def test_a_daemon_that_ends_takes_the_command_with_it(tmp_path, pair):
    marker = tmp_path / "begun"
    maker = TableMaker(script(tmp_path, f"import time\nopen({os.fspath(marker)!r}, 'w').close()\ntime.sleep(60)\n"))
    thread = threading.Thread(target=maker.make, args=(pair, tmp_path / "m"))
    thread.start()
    while not marker.exists() and thread.is_alive():
        time.sleep(0.01)

    maker.stop()

    thread.join(20)
    assert not thread.is_alive()


def test_dumps_that_are_gone_are_said(tmp_path):
    gone = Triage("diverged", None, None, 1, target=str(tmp_path / "a"), golden=str(tmp_path / "b"))

    assert TableMaker().make(gone, tmp_path / "m") == (
        f"msprobe compare was not run: {tmp_path / 'a'}: does not exist",
    )


def test_one_dump_alone_is_not_compared():
    assert not wanted(Triage("non_finite", None, None, 1, target="a"))


@pytest.mark.torch
@pytest.mark.timeout(240)
def test_a_daemon_links_them_in_the_report_once_they_are_there(tmp_path):
    pytest.importorskip("msprobe")
    world = World(tmp_path, msprobe_tables=True)
    world.start()
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, actor__grad_norm=50.0)
    trainer.obey(norm=3.0)
    world.settle()

    assert world.watchdog.deeds._aside.wait(120.0)
    world.settle()

    (folder,) = (world.watchdog.home / "incidents").iterdir()
    page = (folder / "report.html").read_text()
    table = next((folder / FOLDER / "compare").glob("*.csv"))
    assert f'href="{FOLDER}/compare/{table.name}"' in page
    assert "lm_head" in table.read_text()
    world.stop()
