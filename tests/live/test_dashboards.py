# SPDX-License-Identifier: Apache-2.0
"""Every query of every dashboard, asked of a real Prometheus that scraped a real daemon watching real faulty verl runs.

The runs were recorded once (`tests/support/verl_runs.py`) and are told again by Sentinel's emitter, dumps included. What a
run of seven steps does not go through (a burnt fuse, a spent budget, a hostile name) is made up, in runs beside them.
"""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sentinel.daemon.house import House
from tests.support import dashboards
from tests.support.monitoring import Prometheus, report
from tests.support.verl_runs import DRIFT, FAULT_AT, NAN, RecordedRun
from tests.support.watching import Clock, World

HOSTILE = 'x"} 1\n# {a="<b>\\\\'
pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """A daemon with two real verl runs that go wrong, and beside them a calm one, one without a baseline, and odd ones."""
    folder = tmp_path_factory.mktemp("dashboards")
    (folder / "world").mkdir()
    budget = {"engine": {"capture": {"most_steps": 1, "cool_down_steps": 0}}}
    world = World(folder / "world", **budget)
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1] if not 10002 <= taken.getsockname()[1] <= 19999 else 0
    begun = []
    try:
        # The port is taken, so that the daemon has something to say about itself.
        config = json.dumps({"home": "home", "http": {"port": port}})
        house = House(config, str(folder / "sentinel.yaml"))
        begun.append(house)
        assert house.remarks
        world.watchdog, world.clock = house.watchdog, Clock(time.time())
        made = Prometheus(folder, house.endpoint.removeprefix("http://"))
        begun.append(made)
        made.wait("sentinel_build_info")
        real = [RecordedRun(name, house, folder / "dumps") for name in (NAN, DRIFT)]
        tell_the_story(world, real, made)
        yield made
    finally:
        for thing in reversed(begun):
            thing.close()
        taken.close()


def tell_the_story(world, real, prometheus):
    """Faults come after scrapes of healthy steps, as they do in life."""
    odd, calm, alone = (world.trainer(name, f"s{place}") for place, name in enumerate(("odd", "calm", "alone")))
    alone.config = {"path": None, "text": "{}"}
    alone.introduce()
    health = {"dropped": 0, "fuses": {"metrics": 0, "capture": 0}, "wait_seconds": 0.1, "waits_expired": 0}
    for trainer in (odd, calm, alone):
        report(trainer, 1, 7)
        trainer.send({"t": "health", **health})
    hostile = world.trainer(HOSTILE, "s9")
    report(hostile, 1, 7)
    report(hostile, 8, actor__grad_norm=float("nan"))
    for run in real:
        run.until(FAULT_AT - 1)
        run.health()
    scraped(prometheus, FAULT_AT - 1)
    report(odd, 8, actor__grad_norm=50.0)
    odd.send({"t": "said", "at": time.time(), "code": "out_of_memory", "text": "a worker ran out of memory"})
    for step in range(FAULT_AT, FAULT_AT + 3):
        for run in real:
            orders = run.until(step)
            assert orders or step > FAULT_AT  # the first dump is ordered again; what it names is one operation
        scraped(prometheus, step)
    odd.obey(norm=3.0)
    world.settle()
    report(odd, 9, 12, actor__grad_norm=float("nan"), actor__entropy=5.0)
    report(calm, 8, 12)
    odd.send({"t": "health", **health, "dropped": 3, "fuses": {"metrics": 0, "capture": 1}, "waits_expired": 6})
    # A rate over a minute needs scrapes on both sides of the change, and an alert its two seconds.
    time.sleep(6)


def scraped(prometheus, step):
    prometheus.wait(f'sentinel_run_last_step{{run="{NAN}"}} == {step}')
    time.sleep(2)


@pytest.fixture(scope="module")
def values(prometheus):
    """Board -> values of its variables, asked in their order; `run` is the real one that became NaN."""
    found = {name: {} for name in dashboards.BOARDS}
    for name, variable in dashboards.variables():
        selector, label = dashboards.label_of(dashboards.filled(variable["query"], found[name]))
        series = prometheus.ask("series", **{"match[]": selector})
        there = sorted({labels[label] for labels in series if label in labels})
        several = variable.get("multi") and variable["name"] != "metric"  # a panel is repeated for each metric
        found[name][variable["name"]] = there if several else [v for v in there if v == NAN] or there[:1]
    return found


def test_every_variable_has_values(prometheus, values):
    empty = [(name, v["name"]) for name, v in dashboards.variables() if not values[name][v["name"]]]

    assert empty == []


def test_no_panel_and_no_mark_is_empty(prometheus, values):
    """One that would be empty here shows nothing of a faulty run either."""
    now = time.time()
    empty = []
    for board, what, expression, instant in dashboards.queries():
        text = dashboards.filled(expression, values[board])
        if instant:
            found = prometheus.query(text)
        else:
            found = prometheus.ask("query_range", query=text, start=now - 60, end=now, step="1")["result"]
        if not found:
            empty.append(f"{board} / {what}: {text}")
    restarts = [line for line in empty if "marks Restarts" in line]  # nobody restarted the daemon

    assert [line for line in empty if line not in restarts] == []


def test_a_query_for_what_does_not_exist_is_seen_to_be_empty(prometheus):
    """The check above can fail."""
    assert prometheus.query("sentinel_metric_valeu") == []


def test_the_faulty_runs_look_faulty(prometheus):
    """Numbers behind the panels, as a person would read them: stage, step and dumps are those of the real runs."""
    (deviation,) = prometheus.query(f'run:sentinel_metric_deviation_ratio:max{{run="{DRIFT}"}}')
    (calm,) = prometheus.query('run:sentinel_incidents_open:sum{run="calm"}')
    opened = prometheus.query("sentinel_incident_opened_step")
    found = {(at["metric"]["run"], at["metric"]["stage"], at["value"][1]) for at in opened}
    (dumped,) = prometheus.query(f'sum(sentinel_capture_bytes_total{{run="{NAN}"}})')

    assert float(deviation["value"][1]) > 1
    assert calm["value"][1] == "0"
    assert found >= {(NAN, "critic_update", str(FAULT_AT)), (DRIFT, "actor_update", str(FAULT_AT))}
    assert float(dumped["value"][1]) > 300_000


def test_an_incident_can_be_found_from_its_counter(prometheus):
    """Prometheus keeps the exemplar of the OpenMetrics page."""
    now = time.time()
    found = prometheus.ask(
        "query_exemplars", query=f'sentinel_incidents_total{{run="{NAN}"}}', start=now - 300, end=now
    )

    assert {e["labels"]["incident"] for series in found for e in series["exemplars"]} >= {f"{NAN}:1"}


def test_a_hostile_name_does_not_keep_prometheus_from_reading_the_page(prometheus):
    """Quotes, braces and a line break, also in the exemplar of its incident."""
    now = time.time()
    found = prometheus.query("sum by (run) (sentinel_incidents_total) > 0")
    kept = prometheus.ask("query_exemplars", query="sentinel_incidents_total", start=now - 300, end=now)
    name = " ".join(HOSTILE.split())

    assert name in {series["metric"]["run"] for series in found}
    # Prometheus keeps an exemplar's label as it is written.
    written = f"{name}:1".replace("\\", "\\\\").replace('"', '\\"')
    assert written in {e["labels"]["incident"] for series in kept for e in series["exemplars"]}


@pytest.mark.parametrize("board", dashboards.BOARDS)
def test_a_dashboard_can_be_drawn_from_its_queries(prometheus, tmp_path, board):
    """Each panel has its place in the picture, which says whose drawing it is."""
    script = Path(__file__).parents[2] / "grafana/picture.py"
    out = tmp_path / "out.svg"
    command = [sys.executable, script, prometheus.url, board, out, f"run={NAN}", "--minutes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    texts = {element.text for element in ET.parse(out).iter("{http://www.w3.org/2000/svg}text")}
    titles = {panel["title"] for name, panel in dashboards.panels() if name == board} - {"$metric"}
    assert texts >= titles
    assert "our rendering of the dashboard's queries, not Grafana" in texts
    assert ("actor/grad_norm" in texts) == (board == "sentinel-run")
