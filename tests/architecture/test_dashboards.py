# SPDX-License-Identifier: Apache-2.0
"""The dashboards are what grafana/build.py makes, speak of metrics that exist, and say what they show."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sentinel.sinks.prometheus import METRICS
from tests.support import dashboards

ROOT = Path(__file__).parents[2]
FROM_PROMETHEUS = {"up", "ALERTS", "scrape_duration_seconds", "scrape_samples_scraped"}


def known_series():
    for name, about in METRICS.items():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(about.kind, ("",))
        yield from (name + suffix for suffix in suffixes)
    recording = yaml.safe_load((ROOT / "deploy/prometheus/recording.yml").read_text(encoding="utf-8"))
    yield from (rule["record"] for group in recording["groups"] for rule in group["rules"])


KNOWN = set(known_series()) | FROM_PROMETHEUS


def series_in(expression):
    return set(re.findall(r"(?:\w+:)?sentinel_\w+(?::\w+)?|\bup\b|\bALERTS\b|\bscrape_\w+", expression))


ALL = [*dashboards.queries(), *((n, f"variable {v['name']}", v["query"], True) for n, v in dashboards.variables())]


def test_the_addresses_of_the_dashboards_stay():
    """Bookmarks and links of runbooks depend on them."""
    assert {board["uid"] for board in dashboards.BOARDS.values()} == {
        "sentinel-runs",
        "sentinel-run",
        "sentinel-captures",
        "sentinel-daemon",
    }
    assert all(name == board["uid"] for name, board in dashboards.BOARDS.items())


@pytest.mark.parametrize(("board", "what", "expression", "instant"), ALL, ids=lambda v: str(v)[:40])
def test_every_query_names_series_that_exist(board, what, expression, instant):
    assert series_in(expression)
    assert series_in(expression) - KNOWN == set()


@pytest.mark.parametrize(
    ("board", "panel"), list(dashboards.panels()), ids=lambda v: v["title"] if isinstance(v, dict) else v
)
def test_every_panel_says_what_it_shows(board, panel):
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"
    assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


@pytest.mark.parametrize("name", dashboards.BOARDS)
def test_titles_are_told_apart_and_places_do_not_overlap(name):
    panels = dashboards.BOARDS[name]["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len({(panel["title"], panel["type"]) for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("name", dashboards.BOARDS)
def test_variables_that_a_query_uses_are_defined_before(name):
    board = dashboards.BOARDS[name]
    defined = [variable["name"] for variable in board["templating"]["list"]]
    used = set(re.findall(r"\$\{?(?!__)(\w+)", json.dumps(board["panels"]) + json.dumps(board["annotations"])))

    assert used <= set(defined)
    for place, variable in enumerate(board["templating"]["list"]):
        assert set(re.findall(r"\$(\w+)", str(variable["query"]))) <= set(defined[:place])


def test_every_exported_metric_is_on_a_dashboard_or_in_a_rule():
    """What nobody looks at need not be exported."""
    rules = "".join((ROOT / f"deploy/prometheus/{name}.yml").read_text() for name in ("alerts", "recording"))
    text = rules + " ".join(expression for _, _, expression, _ in ALL)

    assert [name for name in METRICS if not re.search(rf"\b{name}(_total|_bucket)?\b", text)] == []


def test_provisioning_points_at_the_dashboards():
    provider = yaml.safe_load((ROOT / "grafana/provisioning/dashboards/sentinel.yaml").read_text(encoding="utf-8"))
    source = yaml.safe_load((ROOT / "grafana/provisioning/datasources/sentinel.yaml").read_text(encoding="utf-8"))
    compose = (ROOT / "deploy/compose.yaml").read_text(encoding="utf-8")

    assert provider["apiVersion"] == source["apiVersion"] == 1
    assert f"../grafana/dashboards:{provider['providers'][0]['options']['path']}:ro" in compose
    assert source["datasources"][0]["url"] == "http://prometheus:9090"


@pytest.mark.live
def test_the_files_are_what_the_script_makes_and_grafanas_own_models_lose_nothing_of_them():
    """The models are those of the published SDK; what they do not know they would drop."""
    done = subprocess.run(
        [sys.executable, ROOT / "grafana/build.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    for board in dashboards.BOARDS.values():
        again = json.loads(json.dumps(Dashboard.from_json(json.loads(json.dumps(board))), cls=JSONEncoder))
        assert lost(board, again) <= {"/annotations/list/titleFormat", "/annotations/list/textFormat"}


def lost(before, after, where=""):
    """Places where something of `before` is missing or other in `after`; added defaults do not count."""
    if isinstance(before, dict) and isinstance(after, dict):
        return {place for key in before for place in lost(before[key], after.get(key), f"{where}/{key}")}
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return {place for one, other in zip(before, after, strict=True) for place in lost(one, other, where)}
    return set() if before == after else {where}
