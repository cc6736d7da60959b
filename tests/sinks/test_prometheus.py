"""Exported metrics."""

import re
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from sentinel.core.capture import cost
from sentinel.core.capture.policy import CaptureSettings
from sentinel.records import Band, Capture, CaptureOrder, CaptureReceipt, Incident, MetricState, RunSnapshot
from sentinel.sinks import prometheus
from sentinel.sinks.prometheus import METRICS, DaemonNumbers, SnapshotCollector, exposition

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def incident(number=1, state="open", **other):
    given = {
        "id": f"r:{number}",
        "run": "r",
        "kind": "drift",
        "state": state,
        "opened_at_step": 3,
        "closed_at_step": None,
        "severity": "warning",
        "stage": "actor_update",
        "suspects": (),
        "findings": (),
    }
    return Incident(**{**given, **other})


def capture():
    order = CaptureOrder("r:1/c1", "r", "r:1", 4, 4, ("actor_update",), "L0", None, "why")
    receipt = CaptureReceipt(4, 4, ("actor_update",), (0,), ("/x",), 1000, 0.5, "complete")
    return Capture("r:1/c1", "r", "r:1", "done", order, receipt)


def snapshot(run="r", **other):
    given = {
        "run": run,
        "state": "watching",
        "regime": "replayed",
        "last_step": 7,
        "last_step_at_seconds": 1000.0,
        "baseline": "/b",
        "metrics": (
            MetricState("actor/grad_norm", "actor_update", 1.5, Band(1.0, 2.0), 0.5),
            MetricState("x", "unknown", float("nan"), None, None),
        ),
        "incidents": (incident(1, "closed"), incident(2)),
        "captures": (capture(),),
        "steps_seen": 7,
        "trainer": {"dropped": 2.0, "wait_seconds": 0.1, "waits_expired": 1.0, "fuses.capture": 1.0},
    }
    return RunSnapshot(**{**given, **other})


def registry(*runs, numbers=None):
    made = CollectorRegistry()
    made.register(SnapshotCollector(lambda: runs, lambda: numbers or DaemonNumbers()))
    return made


def test_values_bands_and_deviations_are_exported():
    """What the status page shows is what is scraped."""
    made = registry(snapshot())
    labels = {"run": "r", "metric": "actor/grad_norm", "stage": "actor_update"}

    assert made.get_sample_value("sentinel_metric_value", labels) == 1.5
    assert made.get_sample_value("sentinel_metric_expected_high", labels) == 2.0
    assert made.get_sample_value("sentinel_metric_deviation_ratio", labels) == 0.5
    assert made.get_sample_value("sentinel_run_state", {"run": "r", "state": "watching"}) == 1
    assert made.get_sample_value("sentinel_run_state", {"run": "r", "state": "silent"}) == 0
    assert made.get_sample_value("sentinel_trainer_fuse_burnt", {"run": "r", "fuse": "capture"}) == 1
    assert made.get_sample_value("sentinel_captures_total", {"run": "r", "outcome": "complete"}) == 1
    assert made.get_sample_value("sentinel_capture_bytes_total", {"run": "r"}) == 1000


def test_incidents_are_counted_and_open_ones_told_by_stage():
    """A closed incident counts, an open one also shows."""
    made = registry(snapshot())
    open_labels = {"run": "r", "kind": "drift", "stage": "actor_update", "severity": "warning"}

    assert made.get_sample_value("sentinel_incidents_total", {"run": "r", "kind": "drift"}) == 2
    assert made.get_sample_value("sentinel_incidents_open", open_labels) == 1


def test_an_unusable_baseline_shows():
    """A run without a baseline is told apart from a healthy one."""
    made = registry(snapshot(baseline=None))

    assert made.get_sample_value("sentinel_run_baseline_usable", {"run": "r"}) == 0


def test_a_run_that_is_gone_leaves_no_series():
    """Each scrape renders what is there, and finished runs lose their metric values."""
    runs = [snapshot("a"), snapshot("b")]
    collector = SnapshotCollector(lambda: runs)
    before = exposition(collector, "")[0].decode()
    runs[:] = [snapshot("a", state="finished")]
    after = exposition(collector, "")[0].decode()

    assert 'run="b"' in before
    assert 'run="b"' not in after
    assert "sentinel_metric_value{" not in after


def test_every_family_is_in_the_catalogue_and_the_other_way_round():
    """METRICS is complete and holds nothing that is not exported."""
    numbers = DaemonNumbers(verdict_buckets=(("0.1", 1.0), ("+Inf", 1.0)), verdict_seconds=0.1, warnings=("settings",))
    run = snapshot(warnings=("no_baseline: none is named",))
    families = {family.name: family for family in registry(run, numbers=numbers).collect()}

    assert set(families) == set(METRICS)
    for name, family in families.items():
        assert family.type == METRICS[name].kind
        assert re.fullmatch(r"sentinel_[a-z_]+", name)


@pytest.mark.parametrize(("accept", "parse"), [("", classic), (OPENMETRICS, openmetrics)])
def test_both_forms_parse_also_with_hostile_names(accept, parse):
    """Quotes, newlines, backslashes and lone surrogates in names do not break the page."""
    name = 'a"b\nc\\d\ud800é价'
    body, content_type = exposition(SnapshotCollector(lambda: [snapshot(name)]), accept)
    families = list(parse(body.decode()))

    assert any(sample.labels.get("run", "").startswith('a"b\nc\\d') for f in families for sample in f.samples)
    assert ("openmetrics" in content_type) == bool(accept)


def test_the_last_incident_is_an_exemplar():
    """From the counter to the incident, in OpenMetrics."""
    body, _ = exposition(SnapshotCollector(lambda: [snapshot()]), OPENMETRICS)

    assert 'sentinel_incidents_total{kind="drift",run="r"} 2.0 # {incident="r:2"} 1.0' in body.decode()


def test_cardinality_is_bounded_and_what_is_expected_comes_first():
    """Of ten thousand metrics the compared ones are exported, and a bounded number in all."""
    many = tuple(MetricState(f"m{i:05}", "unknown", 0.0, None, None) for i in range(10_000))
    compared = MetricState("zzz", "actor_update", 1.0, Band(0, 1), 0.1)

    chosen = prometheus.chosen((*many, compared))

    assert len(chosen) == prometheus.METRICS_A_RUN
    assert chosen[0] is compared


def test_every_kind_and_outcome_is_there_from_the_beginning():
    """Prometheus sees an increase only from a value that was there before."""
    made = registry(snapshot(incidents=(), captures=()))

    assert made.get_sample_value("sentinel_incidents_total", {"run": "r", "kind": "non_finite"}) == 0
    assert made.get_sample_value("sentinel_captures_total", {"run": "r", "outcome": "failed"}) == 0
    assert made.get_sample_value("sentinel_captures_refused_total", {"run": "r", "reason": "budget"}) == 0


def test_a_capture_that_is_going_on_is_no_count():
    """A counter must not fall when an order becomes a dump."""
    going_on = replace(capture(), state="recording", receipt=replace(capture().receipt, outcome="recording"))
    made = registry(snapshot(captures=(capture(), going_on)))

    assert made.get_sample_value("sentinel_captures_going_on", {"run": "r"}) == 1
    assert made.get_sample_value("sentinel_captures_total", {"run": "r", "outcome": "recording"}) is None
    assert made.get_sample_value("sentinel_captures_total", {"run": "r", "outcome": "complete"}) == 1


def test_an_open_incident_shows_its_name_and_first_step():
    """An alert can then lead to the incident's report."""
    made = registry(snapshot())
    labels = {"run": "r", "kind": "drift", "stage": "actor_update", "severity": "warning"}

    assert made.get_sample_value("sentinel_incident_opened_step", {**labels, "incident": "r:2"}) == 3
    assert made.get_sample_value("sentinel_incident_opened_step", {**labels, "incident": "r:1"}) is None


@pytest.mark.parametrize("spent", [{"steps": 40}, {"bytes": 10**12}, {"seconds": 1e5}])
def test_a_spent_budget_is_told_from_other_refusals(spent):
    """Somebody can raise a budget; that a log cannot be dumped is nobody's fault."""
    why = cost.over_budget(
        cost.Cost(**{"steps": 0, "bytes": 0, "seconds": 0.0, **spent}), None, CaptureSettings().bounds()[2]
    )
    receipt = replace(capture().receipt, outcome="refused", why=why)
    other = replace(receipt, why="the run is followed by its log: no trainer listens, nothing can be dumped")
    made = registry(snapshot(incidents=(incident(1, receipt=receipt), incident(2, receipt=other))))

    assert made.get_sample_value("sentinel_captures_refused_total", {"run": "r", "reason": "budget"}) == 1
    assert made.get_sample_value("sentinel_captures_refused_total", {"run": "r", "reason": "other"}) == 1


def test_warnings_are_exported_by_code():
    """The sentence is on the status page; an alert needs the code."""
    made = registry(snapshot(warnings=("settings: wrong", "settings: again", "no_baseline: none")))

    assert made.get_sample_value("sentinel_run_warning", {"run": "r", "code": "settings"}) == 1
    assert made.get_sample_value("sentinel_run_warning", {"run": "r", "code": "no_baseline"}) == 1
