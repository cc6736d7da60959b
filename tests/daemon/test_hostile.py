# SPDX-License-Identifier: Apache-2.0
"""Names and sizes that a hostile or broken trainer sends, from the report to every page that shows them."""

import json
import math
import re
import time
import urllib.parse
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from sentinel.daemon.house import House
from sentinel.daemon.protocol import KEYS_A_RUN

HOSTILE = {
    "markup": "<script>alert(1)</script>\"'`&{}",
    "lines": "a\nb\r\nc\u2028d\x00e",
    "unicode": "运行\u202e𝕏\ud800é" + "\u0301" * 50,
    "path": "../../../etc/passwd\\..\\x",
    "label": 'x"} 1\nsentinel_build_info{version="666',
    "long": "r" * 10_000,
    "blank": " \t ",
    "template": "{{7*7}}${HOME}%s%n",
}


@pytest.fixture
def house(tmp_path):
    made = House(json.dumps({"home": "home", "http": {"port": 0}}), str(tmp_path / "sentinel.yaml"))
    yield made
    made.close()


def get(house, path, **headers):
    request = urllib.request.Request(house.endpoint + path, headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read().decode()


def report(house, run, *records):
    return house.watchdog.report({"v": 1, "run": run, "session": run[:20], "records": list(records)})


def step(number, values):
    return {"t": "step", "step": number, "at": time.time(), "values": values}


def pages(house):
    """Everything that is served, as what reads it would; return the text of the pages for people."""
    families = {f.name: f for f in prometheus(get(house, "/metrics"))}
    # The library's parser stumbles over a quote in an exemplar; tests/live/test_dashboards.py lets Prometheus itself read one.
    text = re.sub(r" # \{.*$", "", get(house, "/metrics", Accept="application/openmetrics-text"), flags=re.MULTILINE)
    families |= {f.name: f for f in openmetrics(text)}
    assert sum(len(f.samples) for name, f in families.items() if name == "sentinel_build_info") == 1
    json.loads(get(house, "/api/v1/runs"))
    rows = json.loads(get(house, "/api/v1/incidents"))["incidents"]
    shown = [get(house, "/"), get(house, "/?lang=zh")]
    for row in rows:
        name = urllib.parse.quote(row["id"], safe="")
        json.loads(get(house, f"/api/v1/incidents/{name}"))
        shown.append(get(house, f"/reports/{name}"))
    return rows, shown


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_name_of_run_metric_and_words_is_shown_and_does_nothing(house, kind, tmp_path):
    name = HOSTILE[kind]
    run = name if name.strip() else "r"
    report(house, run, {"t": "start", "at": 1.0, "facts": {"trainer": name, name: name}, "config": None})
    for number in range(1, 9):
        bad = {f"actor/{name}"[:190]: math.nan, name: 1.0} if number == 8 else {}
        report(house, run, step(number, {"actor/grad_norm": math.nan if number == 8 else 1.0 + number / 100, **bad}))
    report(house, run, {"t": "said", "at": 1.0, "code": name, "text": name})
    report(house, run, {"t": "health", name: 1, "fuses": {name: 1}})
    assert house.watchdog.deeds.wait(20)

    rows, shown = pages(house)

    assert [row["kind"] for row in rows] == ["non_finite"]
    for text in shown:
        assert "<script" not in text
        assert 'etc/passwd"' not in text
    places = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert places == {"home"}
    assert all(len(path.name.encode()) < 200 and path.name.isascii() for path in tmp_path.rglob("*"))


def test_a_hundred_thousand_metrics_are_bounded_everywhere(house):
    """In one step, and as names that are for ever new; the daemon stays quick and its pages small."""
    report(house, "r", {"t": "start", "at": 1.0, "facts": {}, "config": None})
    began = time.monotonic()
    for number in range(1, 11):
        values = {"actor/grad_norm": 1.0} | {f"extra/{number}/{place}": 1.0 for place in range(10_000)}
        faults = report(house, "r", step(number, values))["faults"]
        assert any("10001 metrics" in fault for fault in faults)
    took = time.monotonic() - began
    (run,) = house.watchdog.runs()

    assert len(run.metrics) <= KEYS_A_RUN
    assert took < 20
    assert len(get(house, "/metrics")) < 300_000
    _, shown = pages(house)
    assert max(map(len, shown)) < 500_000
    report(house, "r", step(11, {"actor/grad_norm": math.nan}))
    assert [incident.kind for incident in house.watchdog.runs()[0].incidents] == ["non_finite"]
