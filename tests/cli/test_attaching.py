"""`sentinel attach`: a run is watched by its log, with no change to it."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sentinel import cli
from sentinel.cli import cluster
from tests.support.watching import metrics, write_baseline

ROOT = Path(__file__).parents[2]
BAD = {"actor__grad_norm": math.nan}


def write_log(path, first, last, mode="w", **bad_at):
    """verl's `file` logger: one JSON object a step, null where a number is not finite."""
    with path.open(mode) as log:
        for step in range(first, last + 1):
            data = metrics(step, **(BAD if step == bad_at.get("bad_at") else {}))
            data = {key: value if math.isfinite(value) else None for key, value in data.items()}
            log.write(json.dumps({"step": step, "data": data}) + "\n")
            log.flush()


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(cluster, "find_address", lambda given: None)
    write_baseline(tmp_path / "golden.jsonl")
    return tmp_path


def attach(capsys, place, *words):
    code = cli.main(
        ["attach", str(place / "run.jsonl"), "--run", "r", "--baseline", str(place / "golden.jsonl"), "--json", *words]
    )
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def test_a_healthy_log_is_0(capsys, place):
    """All steps are read, and nothing is found."""
    write_log(place / "run.jsonl", 1, 20)
    code, document, _ = attach(capsys, place)

    assert (code, document["steps"], document["incidents"]) == (0, 20, [])


def test_an_incident_is_1_with_capture_null_and_a_refusal(capsys, place):
    """Nothing can be dumped there, and the receipt says why."""
    write_log(place / "run.jsonl", 1, 12, bad_at=8)
    code, document, _ = attach(capsys, place)
    (incident,) = document["incidents"]

    assert code == 1
    assert (incident["opened_at_step"], incident["stage"], incident["capture"]) == (8, "actor_update", None)
    assert incident["receipt"]["outcome"] == "refused"
    assert "no trainer listens" in incident["receipt"]["why"]
    assert (place / ".sentinel" / "incidents" / "r:1" / "report.html").is_file()


def test_the_second_time_it_goes_on_where_it_was(capsys, place):
    """A log that has grown is read from there; what was found before is still known."""
    write_log(place / "run.jsonl", 1, 12, bad_at=8)
    attach(capsys, place)
    write_log(place / "run.jsonl", 13, 15, mode="a")
    code, document, _ = attach(capsys, place)

    assert (code, document["steps"]) == (1, 3)
    assert [incident["id"] for incident in document["incidents"]] == ["r:1"]


def test_a_place_that_was_lost_makes_nothing_double(capsys, place):
    """Read from the beginning again: the same steps are the same."""
    write_log(place / "run.jsonl", 1, 12, bad_at=8)
    attach(capsys, place)
    for file in (place / ".sentinel" / "attached").iterdir():
        file.unlink()
    _, document, _ = attach(capsys, place)

    assert [incident["id"] for incident in document["incidents"]] == ["r:1"]


@pytest.mark.parametrize("content", [None, b"", b"\x00\x01\x02 nothing that is known\n" * 10])
def test_a_log_that_cannot_be_read_is_2(capsys, place, content):
    """Missing, empty, or of no known format: one line."""
    if content is not None:
        (place / "run.jsonl").write_bytes(content)
    code, document, err = attach(capsys, place)

    assert (code, document) == (2, None)
    assert err.splitlines()[-1].startswith("sentinel: ")


def test_a_missing_baseline_is_2(capsys, place):
    """Said before anything is watched without it."""
    write_log(place / "run.jsonl", 1, 3)
    (place / "golden.jsonl").unlink()
    code, _, err = attach(capsys, place)

    assert code == 2
    assert "golden.jsonl: no such file" in err


def test_the_settings_of_a_file_hold(capsys, place):
    """Another home folder."""
    write_log(place / "run.jsonl", 1, 3)
    (place / "sentinel.yaml").write_text("home: elsewhere\n")
    code, _, _ = attach(capsys, place, "--config", str(place / "sentinel.yaml"))

    assert code == 0
    assert (place / "elsewhere" / "journal").is_dir()
    assert (place / "elsewhere" / "attached").is_dir()
    assert not (place / ".sentinel").exists()


@pytest.mark.timeout(90)
def test_following_goes_on_until_it_is_interrupted(place):
    """Steps that come later are judged; the incident is said when it happens; Ctrl-C ends it with what was found."""
    write_log(place / "run.jsonl", 1, 3)
    code = (
        # A test run in the background of a shell ignores Ctrl-C, and so would its children.
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from sentinel.cli import cluster, main; cluster.find_address = lambda given: None; sys.exit(main(sys.argv[1:]))"
    )
    words = ["attach", str(place / "run.jsonl"), "--run", "r", "--baseline", str(place / "golden.jsonl"), "--follow"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words, "--json"],
        env={**os.environ, "HOME": str(place), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("following"):
            write_log(place / "run.jsonl", 4, 9, mode="a", bad_at=8)
        if line.startswith(("open: non_finite", "closed: non_finite")):
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)

    assert process.returncode == 1
    assert [incident["kind"] for incident in json.loads(out)["incidents"]] == ["non_finite"]
    assert any("status page" in line for line in said)
