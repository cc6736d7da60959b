# SPDX-License-Identifier: Apache-2.0
"""Every alert has a runbook section, a firing and a silent case, and speaks of metrics that exist."""

import argparse
import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sentinel import cli
from sentinel.core.report.incidents import RANK
from sentinel.sinks.prometheus import METRICS

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = {
    name: yaml.safe_load((DEPLOY / f"prometheus/{name}.yml").read_text(encoding="utf-8"))
    for name in ("alerts", "recording")
}
ALERTS = {rule["alert"]: rule for group in RULES["alerts"]["groups"] for rule in group["rules"]}
RECORDED = {rule["record"]: rule for group in RULES["recording"]["groups"] for rule in group["rules"]}
TESTS = yaml.safe_load((DEPLOY / "prometheus/alerts_test.yml").read_text(encoding="utf-8"))["tests"]
RUNBOOK = (DEPLOY / "runbook.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOK, re.MULTILINE | re.DOTALL))
ALERTMANAGER = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text(encoding="utf-8"))


def exported_series():
    """Every name that a scrape may bring."""
    for name, about in METRICS.items():
        if about.kind == "histogram":
            yield from (f"{name}_bucket", f"{name}_sum", f"{name}_count")
        else:
            yield name + ("_total" if about.kind == "counter" else "")


SERIES = set(exported_series()) | set(RECORDED) | {"up"}


def named(text):
    """Names of Sentinel's series in a PromQL expression or template."""
    return set(re.findall(r"(?:[a-z_]+:)?sentinel_\w+(?::\w+)?", text)) - {"sentinel_url"}


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_section_with_all_its_parts(alert):
    section = SECTIONS[alert]

    assert [
        part for part in ("Meaning", "First look", "What to do", "Silence") if f"- **{part}.** " not in section
    ] == []
    assert re.match(r"\n[^\n]*[\u4e00-\u9fff]{4}[^\n]*。\n", section), "the first line is a summary in Chinese"
    assert ALERTS[alert]["annotations"]["runbook_url"].endswith(f"deploy/runbook.md#{alert.lower()}")


def test_every_section_is_of_an_alert():
    assert set(SECTIONS) == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_firing_and_a_silent_case(alert):
    cases = [case for test in TESTS for case in test.get("alert_rule_test", ()) if case["alertname"] == alert]

    assert any(case["exp_alerts"] for case in cases)
    assert any(not case["exp_alerts"] for case in cases)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_how_grave_it_is_and_where_to_look(alert):
    rule = ALERTS[alert]
    labels = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    known = {label for name in named(rule["expr"]) for label in METRICS[base(name)].labels} if labels else set()
    aggregated = re.search(r"by \(([^)]*)\)", rule["expr"])
    kept = set(aggregated[1].replace(" ", "").split(",")) if aggregated else known | {"instance", "job"}

    assert "severity" in kept or rule["labels"]["severity"] in ("critical", "warning", "info")
    assert {"summary", "description", "runbook_url"} <= set(rule["annotations"])
    assert labels <= kept
    assert "report_url" in rule["annotations"] or alert == "SentinelDaemonAbsent"


def base(series):
    """The catalogue's name of a series."""
    if series in RECORDED:
        return base(min(named(RECORDED[series]["expr"])))
    return series if series in METRICS else re.sub(r"_(total|bucket|sum|count)$", "", series)


@pytest.mark.parametrize(
    "text",
    [
        *(pytest.param(yaml.dump(rule), id=name) for name, rule in {**ALERTS, **RECORDED}.items()),
        *(pytest.param(yaml.dump(test["input_series"]), id=f"case: {test['name']}") for test in TESTS),
    ],
)
def test_rules_and_their_cases_name_series_that_exist(text):
    assert named(text) - SERIES == set()


def test_every_kind_of_incident_has_an_alert():
    text = " ".join(rule["expr"] for rule in ALERTS.values())

    assert [kind for kind in RANK if f'kind="{kind}"' not in text] == []


def test_routes_and_inhibitions_name_alerts_that_exist():
    used = set(re.findall(r"Sentinel[A-Z]\w+", yaml.dump(ALERTMANAGER)))

    assert used - set(ALERTS) == set()


def verbs(parser, words=()):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield (*words, name)
                yield from verbs(below, (*words, name))


def test_the_runbook_speaks_of_verbs_that_exist():
    known = set(verbs(cli.build_parser()))
    groups = {words[0] for words in known if len(words) > 1}

    for used in re.findall(r"`sentinel ([^`]+)`", RUNBOOK):
        words = tuple(itertools.takewhile(lambda word: re.fullmatch("[a-z]+", word), used.split()))
        assert words[: 2 if words[0] in groups else 1] in known, used


# ---------------------------------------------------------------------------- the real programs


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.live
def test_promtool_accepts_the_rules_and_every_case_holds(need):
    need("promtool")
    files = [str(DEPLOY / f"prometheus/{name}.yml") for name in ("alerts", "recording")]

    for command in (
        ("promtool", "check", "rules", "--lint=all", "--lint-fatal", *files),
        ("promtool", "check", "config", str(DEPLOY / "prometheus/prometheus.yml")),
        ("promtool", "test", "rules", str(DEPLOY / "prometheus/alerts_test.yml")),
    ):
        done = run(*command)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.live
def test_an_alert_that_never_fires_fails_its_case(need, tmp_path):
    """Each case depends on its rule."""
    need("promtool")
    for path in (DEPLOY / "prometheus").glob("*.yml"):
        shutil.copy(path, tmp_path)
    rules = yaml.safe_load((tmp_path / "alerts.yml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = f"({rule['expr']}) and on () vector(0) > 0"
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    done = run("promtool", "test", "rules", str(tmp_path / "alerts_test.yml"))

    assert set(re.findall(r"alertname: (\w+)", done.stdout + done.stderr)) == set(ALERTS)


@pytest.mark.live
def test_amtool_accepts_the_configuration(need):
    need("amtool")
    done = run("amtool", "check-config", str(DEPLOY / "alertmanager/alertmanager.yml"))

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.live
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("alertname=SentinelNonFinite", "severity=critical"), "urgent"),
        (("alertname=SentinelDrift", "severity=warning"), "chat"),
        (("alertname=SentinelNoBaseline", "severity=info"), "nobody"),
    ],
)
def test_alerts_reach_who_they_should(need, labels, receiver):
    need("amtool")
    file = f"--config.file={DEPLOY / 'alertmanager/alertmanager.yml'}"
    done = run("amtool", "config", "routes", "test", file, f"--verify.receivers={receiver}", *labels)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.live
def test_the_linter_finds_nothing_but_the_receiver_that_is_meant_to_be_empty():
    """It reads routes and inhibitions beside the rules."""
    linter = str(Path(sys.executable).parent / "amlint")
    rules = ("--rules", str(DEPLOY / "prometheus/alerts.yml"))
    done = run(linter, "check", "--format", "json", *rules, str(DEPLOY / "alertmanager/alertmanager.yml"))

    found = {finding["code"] for finding in json.loads(done.stdout) if finding["level"] != "info"}
    assert found == {"empty-receiver"}, done.stdout + done.stderr
