"""`sentinel incidents` and `sentinel captures` where no daemon runs."""

import json

import pytest

from sentinel import cli
from sentinel.cli import cluster
from sentinel.cli.incidents import parse_ranks
from sentinel.errors import DaemonError
from sentinel.settings import parse
from tests.support.watching import World

BAD = {"actor__grad_norm": float("nan")}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of a daemon that found something and is gone."""
    monkeypatch.setattr(cluster, "find_address", lambda given: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    world = World(tmp_path)
    world.start()
    trainer = world.trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    world.settle()
    world.stop()
    return parse(world.config, world.config_path).home_folder


def run(capsys, *words):
    code = cli.main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_the_files_answer_where_no_daemon_runs(capsys, home):
    """Everything that was decided is kept, and it is said where it comes from."""
    code, out, err = run(capsys, "incidents", "list", "--home", str(home), "--json")

    assert code == 1
    assert [row["id"] for row in json.loads(out)["incidents"]] == ["r:1"]
    assert f"read from {home}" in err
    assert run(capsys, "incidents", "list", "--home", str(home), "--json", "--run", "x")[0] == 0
    assert run(capsys, "incidents", "list", "--home", str(home), "--json", "--state", "closed")[0] == 0


def test_one_incident_and_its_report(capsys, home, tmp_path):
    """show as JSON and as text, report as a file and on standard output."""
    code, out, _ = run(capsys, "incidents", "show", "r:1", "--home", str(home), "--json")
    assert (code, json.loads(out)["findings"][0]["value"]) == (1, "nan")
    assert "# Critical: non_finite" in run(capsys, "incidents", "show", "r:1", "--home", str(home))[1]
    page = tmp_path / "page.html"
    assert run(capsys, "incidents", "report", "r:1", "--home", str(home), "-o", str(page))[0] == 0
    assert "<html" in page.read_text()
    assert "<html" in run(capsys, "incidents", "report", "r:1", "--home", str(home))[1]


def test_an_unknown_incident_is_2(capsys, home):
    """One line."""
    code, _, err = run(capsys, "incidents", "show", "r:9", "--home", str(home))

    assert code == 2
    assert "no incident 'r:9'" in err


def test_damaged_files_are_passed_over(capsys, home):
    """One broken file does not hide the others."""
    (home / "incidents" / "zz").mkdir()
    (home / "incidents" / "zz" / "incident.json").write_text("{")
    code, out, _ = run(capsys, "incidents", "list", "--home", str(home), "--json")

    assert (code, len(json.loads(out)["incidents"])) == (1, 1)


@pytest.mark.parametrize("words", [("incidents", "list"), ("captures", "list"), ("captures", "cancel", "x")])
def test_without_daemon_and_files_the_answer_is_absent(capsys, tmp_path, monkeypatch, words):
    """Exit 1: the verb worked, and there is nobody."""
    monkeypatch.setattr(cluster, "find_address", lambda given: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    code, _, err = run(capsys, *words)

    assert code == 1
    assert "no Ray cluster" in err


def test_a_report_that_cannot_be_written_is_2(capsys, home):
    """The folder is missing."""
    code, _, err = run(capsys, "incidents", "report", "r:1", "--home", str(home), "-o", "/no/such/folder/x.html")

    assert code == 2
    assert "/no/such/folder/x.html" in err


def test_ranks():
    """Numbers with commas, or all."""
    assert parse_ranks("all") is None
    assert parse_ranks("2,0,2") == [0, 2]
    for text in ("", "x", "-1", "1;2"):
        with pytest.raises(DaemonError, match="--ranks"):
            parse_ranks(text)
