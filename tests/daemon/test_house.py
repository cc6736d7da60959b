"""The daemon put together: endpoint, clock, successors, and a real Prometheus that scrapes it."""

import json
import math
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest

from sentinel.daemon.house import House, settings_text
from sentinel.errors import SettingsError
from sentinel.trainer.orders import Order
from tests.support.watching import Clock, World

BAD = {"actor__grad_norm": math.nan}


@pytest.fixture
def start(tmp_path):
    """Daemons in one folder, ended afterwards."""
    houses = []

    def begin(text=None, **other):
        text = text if text is not None else json.dumps({"home": "home", "http": {"port": 0}, **other})
        house = House(text, str(tmp_path / "sentinel.yaml"))
        houses.append(house)
        return house

    yield begin
    for house in houses:
        house.close()


def watch(house, folder):
    """A world whose trainers report to this daemon."""
    world = World(folder / "world")
    world.watchdog = house.watchdog
    world.clock = Clock(time.time())
    return world


def get(house, path):
    with urllib.request.urlopen(house.endpoint + path, timeout=10) as answer:
        return answer.read().decode()


def test_an_incident_is_seen_on_every_page(start, tmp_path):
    """Page, JSON, metrics and report tell the same."""
    (tmp_path / "world").mkdir()
    house = start()
    trainer = watch(house, tmp_path).trainer("run <1>")
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    house.watchdog.deeds.wait(10)

    assert "run &lt;1&gt;" in get(house, "/")
    assert json.loads(get(house, "/api/v1/runs"))["runs"][0]["open_incidents"] == 1
    assert json.loads(get(house, "/api/v1/incidents?run=other"))["incidents"] == []
    (row,) = json.loads(get(house, "/api/v1/incidents"))["incidents"]
    assert json.loads(get(house, "/api/v1/incidents/run%20%3C1%3E%3A1"))["findings"][0]["value"] == "nan"
    assert row["id"] == "run <1>:1"
    assert 'sentinel_incidents_open{kind="non_finite",run="run <1>"' in get(house, "/metrics")
    assert "grad_norm" in get(house, "/reports/run%20%3C1%3E%3A1")


def test_a_closed_incident_keeps_the_plots_of_its_time(start, tmp_path):
    """A hundred steps later its report still shows the steps around it."""
    (tmp_path / "world").mkdir()
    house = start()
    trainer = watch(house, tmp_path).trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    trainer.steps(9, 20)  # the order of a dump expires meanwhile
    house.watchdog.deeds.wait(10)
    before = get(house, "/reports/r%3A1")
    for step in range(21, 120):
        trainer.step(step)
    house.watchdog.deeds.wait(10)

    assert get(house, "/reports/r%3A1") == before
    assert house.answers.answer("report", {"id": "r:1", "form": "markdown"})["text"].startswith("#")


def test_a_successor_answers_at_the_same_address(start):
    """Scrapers and bookmarks find it again, also where the port was a free one."""
    first = start()
    endpoint = first.endpoint
    first.close()
    second = start()

    assert second.endpoint == endpoint
    assert second.restarts == 1


def test_a_taken_port_and_settings_at_fault_are_remarks(start, tmp_path):
    """The runs are watched all the same."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        house = start(http={"port": port}) if port > 19999 else start(http={"port": 0})
        assert port < 19999 or f"port {port} is taken" in house.remarks["http"]
    other = start(json.dumps({"hom": "x"}))
    assert "did you mean 'home'" in other.remarks["settings"]
    other = start(json.dumps({"home": str(tmp_path / "h2"), "http": {"port": 0, "token_file": "/no/token"}}))
    assert other.endpoint is None
    assert "/no/token" in other.remarks["http"]
    assert other.answers.answer("status", {})["remarks"]


def test_a_home_that_cannot_be_written_is_a_remark_and_not_ready(start, tmp_path):
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("")
    house = start(home=str(tmp_path / "file"))

    assert "nothing survives" in house.remarks["home"]
    with pytest.raises(urllib.error.HTTPError, match="503"):
        get(house, "/-/ready")


@pytest.mark.parametrize(
    ("what", "question", "part"),
    [
        ("weather", {}, "does not know"),
        ("incident", {"id": "x"}, "no incident"),
        ("incident", {}, "id"),
        ("request", {"run": "r", "stages": ["rollout"]}, "rollout cannot be dumped"),
        ("request", {"run": "r", "stages": []}, "no stage"),
        ("request", {"run": "r", "stages": ["actor_update"], "level": "L9"}, "L9"),
        ("request", {"run": "r", "stages": ["actor_update"], "steps": 0}, "0 steps"),
        ("request", {"run": "x", "stages": ["actor_update"]}, "no run 'x' is watched (known: r)"),
        ("cancel", {"id": "r:m7"}, "no capture"),
        ("retire", {"run": "x"}, "no run"),
    ],
)
def test_a_question_at_fault_is_a_sentence(start, tmp_path, what, question, part):
    """Never an exception in the daemon."""
    (tmp_path / "world").mkdir()
    house = start()
    watch(house, tmp_path).trainer().step(1)

    assert part in house.answers.answer(what, question)["error"]


def test_a_dump_by_hand_is_ordered_and_taken_back(start, tmp_path):
    """From the next step on; a finished or retired run takes none."""
    (tmp_path / "world").mkdir()
    house = start()
    trainer = watch(house, tmp_path).trainer()
    trainer.steps(1, 3)
    ask = house.answers.answer
    made = ask("request", {"run": "r", "stages": ["actor_update"], "steps": 2, "ranks": [0]})

    assert (made["id"], made["order"]["first_step"], made["order"]["last_step"]) == ("r:m1", 4, 5)
    assert trainer.send()["orders"][0]["ranks"] == [0]
    assert ask("cancel", {"id": "r:m1"})["state"] == "cancelled"
    assert trainer.send()["cancelled"] == ["r:m1"]
    assert "nothing to cancel" in ask("cancel", {"id": "r:m1"})["error"]
    assert ask("retire", {"run": "r"})["state"] == "finished"
    assert "has finished" in ask("request", {"run": "r", "stages": ["actor_update"]})["error"]


def test_a_stage_that_the_run_does_not_have_is_refused(start, tmp_path):
    """The trainer said which of its stages can be dumped."""
    (tmp_path / "world").mkdir()
    house = start()
    watch(house, tmp_path).trainer(stages=["actor_update"]).step(1)

    error = house.answers.answer("request", {"run": "r", "stages": ["compute_values"]})["error"]
    assert error == "compute_values cannot be dumped (possible: actor_update)"


def test_a_golden_dump_is_made_to_order(start, tmp_path):
    """Steps and stages of the dump that was made, in a form that the trainer's side obeys."""
    (tmp_path / "world").mkdir()
    house = start()
    trainer = watch(house, tmp_path).trainer(rollout_data_dir="/rollouts")
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    trainer.obey()
    document = house.answers.answer("plan", {"id": "r:1"})
    order = Order.from_plain(document["orders"][0])

    assert (order.first_step, order.last_step, order.stages) == (9, 9, ("actor_update",))
    assert (document["incident"], document["rollouts"], document["checkpoint"]) == ("r:1", "/rollouts", None)
    assert "checkpoint of step 8" in document["how"]


def test_an_incident_without_a_capture_has_no_plan(start, tmp_path):
    """There is nothing to compare with."""
    (tmp_path / "world").mkdir()
    house = start()
    trainer = watch(house, tmp_path).trainer(trainer="attached")
    trainer.steps(1, 7)
    trainer.step(8, **BAD)

    assert "has no capture" in house.answers.answer("plan", {"id": "r:1"})["error"]


def test_settings_are_checked_before_a_daemon_is_started(tmp_path):
    """`up --config` refuses what the daemon could not use."""
    (tmp_path / "s.yaml").write_text("hom: x")

    assert settings_text(None) is None
    with pytest.raises(SettingsError, match="did you mean"):
        settings_text(tmp_path / "s.yaml")


def test_a_run_that_is_long_over_leaves_the_metrics(start, tmp_path):
    """Scrapes hold what goes on; the page and the lists still know it."""
    (tmp_path / "world").mkdir()
    house = start()
    trainer = watch(house, tmp_path).trainer()
    trainer.steps(1, 3)
    assert 'run="r"' in get(house, "/metrics")
    trainer.end()
    assert 'run="r"' in get(house, "/metrics")
    later = house.watchdog.clock() + 30 * 86400
    house.watchdog.clock = lambda: later

    assert 'run="r"' not in get(house, "/metrics")
    assert json.loads(get(house, "/api/v1/runs"))["runs"][0]["state"] == "finished"


@pytest.mark.live
@pytest.mark.timeout(90)
def test_a_real_prometheus_scrapes_it_and_its_linter_is_content(start, tmp_path, need):
    """promtool finds nothing to complain of; every exported value arrives; a finished run leaves."""
    need("prometheus", "promtool")
    (tmp_path / "world").mkdir()
    house = start()
    trainer = watch(house, tmp_path).trainer()
    trainer.steps(1, 7)
    trainer.step(8, **BAD)
    lint = subprocess.run(
        [shutil.which("promtool"), "check", "metrics"],
        input=get(house, "/metrics"),
        text=True,
        capture_output=True,
        check=False,
    )
    assert (lint.returncode, lint.stdout + lint.stderr) == (0, "")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    target = house.endpoint.removeprefix("http://")
    (tmp_path / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "500ms"},
                "scrape_configs": [{"job_name": "sentinel", "static_configs": [{"targets": [target]}]}],
            }
        )
    )
    command = [shutil.which("prometheus"), f"--config.file={tmp_path}/prometheus.yml", "--log.level=error"]
    command += [f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"]
    process = subprocess.Popen([*command, "--enable-feature=exemplar-storage"], stderr=subprocess.DEVNULL)
    try:

        def query(text):
            url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(text)}"
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    return json.load(answer)["data"]["result"]
            except OSError:
                return []

        end = time.monotonic() + 60
        while not query("sentinel_incidents_open") and time.monotonic() < end:
            time.sleep(0.2)
        (sample,) = query('sentinel_metric_value{metric="actor/grad_norm"}')
        assert sample["value"][1] == "NaN"
        assert query('sentinel_run_last_step{run="r"}')[0]["value"][1] == "8"
        assert query("sentinel_incidents_open")[0]["metric"]["stage"] == "actor_update"
        assert query("histogram_quantile(0.99, sentinel_verdict_seconds_bucket)")
        trainer.end()
        while query("sentinel_metric_value") and time.monotonic() < end:
            time.sleep(0.2)
        assert query("sentinel_metric_value") == []
    finally:
        process.terminate()
        process.wait(30)
