# SPDX-License-Identifier: Apache-2.0
"""Exported metrics: a collector that renders the last immutable snapshots when it is scraped.

Nothing is kept here between scrapes, so a run that is gone leaves no series behind, and the numbers cannot part from
what the status page shows. METRICS is the catalogue of every exported name: documentation, rules and tests read it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from sentinel import __version__
from sentinel.core.report.incidents import RANK
from sentinel.sinks import openmetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from sentinel.records import Incident, MetricState, RunSnapshot

STATES = ("waiting", "watching", "incident", "silent", "finished")
METRICS_A_RUN = 200
"""Metric keys exported for one run: first those that something is expected of, then in order of names."""
INCIDENTS_A_RUN = 20
"""Open incidents of one run that are exported by name: the newest."""
WARNINGS_A_RUN = 50
OUTCOMES = ("complete", "partial", "failed", "skipped", "refused", "cancelled", "expired")
"""What may become of a capture; each is exported from the beginning, so that its first increase is one."""
REASONS = ("budget", "other")
_EXEMPLAR_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Exported:
    """One exported name."""

    kind: str
    """gauge, counter or histogram; a counter is scraped with `_total` behind its name."""
    labels: tuple[str, ...]
    help: str


METRICS = {
    "sentinel_build_info": Exported("gauge", ("version",), "Always 1; the version of the daemon."),
    "sentinel_start_time_seconds": Exported("gauge", (), "Unix time at which the daemon started."),
    "sentinel_restarts": Exported("gauge", (), "How often the daemon was restarted since it was first started."),
    "sentinel_verdict_seconds": Exported("histogram", (), "From the arrival of a report to its verdict."),
    "sentinel_alerts_failed": Exported("counter", (), "Alerts that no receiver took."),
    "sentinel_daemon_warning": Exported("gauge", ("code",), "1: something is wrong with the daemon itself."),
    "sentinel_run_state": Exported("gauge", ("run", "state"), "1 for the state that the run is in, 0 for the others."),
    "sentinel_run_last_step": Exported("gauge", ("run",), "Newest step that was judged."),
    "sentinel_run_last_step_timestamp_seconds": Exported("gauge", ("run",), "Unix time of the newest step."),
    "sentinel_run_steps": Exported("counter", ("run",), "Steps that were judged."),
    "sentinel_run_baseline_usable": Exported(
        "gauge", ("run",), "1: the run is compared with a baseline. 0: none was named, or it cannot be read."
    ),
    "sentinel_run_warnings": Exported("gauge", ("run",), "Warnings that the status page shows."),
    "sentinel_run_warning": Exported("gauge", ("run", "code"), "1: a warning of this code is shown."),
    "sentinel_run_journal_writable": Exported("gauge", ("run",), "0: a restart of the daemon would lose steps."),
    "sentinel_metric_value": Exported("gauge", ("run", "metric", "stage"), "Last value of a metric of the run."),
    "sentinel_metric_expected_low": Exported("gauge", ("run", "metric", "stage"), "Lower edge of what is expected."),
    "sentinel_metric_expected_high": Exported("gauge", ("run", "metric", "stage"), "Upper edge of what is expected."),
    "sentinel_metric_deviation_ratio": Exported(
        "gauge", ("run", "metric", "stage"), "Deviation from the baseline in tolerances; above 1 is out."
    ),
    "sentinel_incidents_open": Exported("gauge", ("run", "kind", "stage", "severity"), "Incidents that are going on."),
    "sentinel_incident_opened_step": Exported(
        "gauge", ("run", "incident", "kind", "stage", "severity"), "Step at which an incident began that is going on."
    ),
    "sentinel_incidents": Exported("counter", ("run", "kind"), "Incidents opened since the run began."),
    "sentinel_captures": Exported("counter", ("run", "outcome"), "Dumps that are over, by what became of them."),
    "sentinel_captures_going_on": Exported("gauge", ("run",), "Dumps that are ordered or being written."),
    "sentinel_captures_refused": Exported(
        "counter", ("run", "reason"), "Incidents that were not dumped: the budget is spent, or nobody could obey."
    ),
    "sentinel_capture_bytes": Exported("counter", ("run",), "Bytes that were dumped."),
    "sentinel_capture_seconds": Exported("counter", ("run",), "Seconds that dumps added to steps."),
    "sentinel_trainer_dropped_steps": Exported("counter", ("run",), "Steps that the trainer's side had to drop."),
    "sentinel_trainer_fuse_burnt": Exported("gauge", ("run", "fuse"), "1: this part of the trainer's side is off."),
    "sentinel_trainer_wait_seconds": Exported("counter", ("run",), "Seconds the trainer waited for verdicts."),
    "sentinel_trainer_waits_expired": Exported("counter", ("run",), "Waits that ended without a verdict."),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class DaemonNumbers:
    """What the daemon says of itself."""

    started_at: float = 0.0
    restarts: int = 0
    alerts_failed: int = 0
    verdict_buckets: tuple[tuple[str, float], ...] = ()
    """(upper edge, cumulative count), `+Inf` last."""
    verdict_seconds: float = 0.0
    journal_unwritable: frozenset[str] = frozenset()
    """Runs whose journal cannot be written."""
    warnings: tuple[str, ...] = ()
    """Codes of what is wrong with the daemon itself."""


class SnapshotCollector(Collector):
    """Renders snapshots.

    Args:
        runs: returns the runs to show; called at each scrape.
        numbers: returns what the daemon says of itself.
    """

    def __init__(
        self, runs: Callable[[], Sequence[RunSnapshot]], numbers: Callable[[], DaemonNumbers] = DaemonNumbers
    ) -> None:
        self._runs = runs
        self._numbers = numbers

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the registry need not scrape at registration."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return every family of METRICS, rendered from the snapshots of this moment."""
        numbers = self._numbers()
        page = _Page()
        page.put("sentinel_build_info", 1, __version__)
        page.put("sentinel_start_time_seconds", numbers.started_at)
        page.put("sentinel_restarts", numbers.restarts)
        page.put("sentinel_alerts_failed", numbers.alerts_failed)
        for code in numbers.warnings:
            page.put("sentinel_daemon_warning", 1, code)
        for run in self._runs():
            _render_run(page, run)
            page.put("sentinel_run_journal_writable", run.run not in numbers.journal_unwritable, run.run)
        yield from page.families.values()
        if numbers.verdict_buckets:
            name = "sentinel_verdict_seconds"
            family = HistogramMetricFamily(name, METRICS[name].help, labels=())
            family.add_metric([], list(numbers.verdict_buckets), sum_value=numbers.verdict_seconds)
            yield family


def exposition(collector: Collector, accept: str) -> tuple[bytes, str]:
    """Return the body of `/metrics` and its content type, OpenMetrics where the scraper accepts it."""
    if "application/openmetrics-text" in accept:
        return openmetrics.text_of(collector.collect()), openmetrics.CONTENT_TYPE
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


class _Page:
    """The families of one scrape."""

    def __init__(self) -> None:
        self.families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}

    def put(self, name: str, value: float, *labels: str, exemplar: Exemplar | None = None) -> None:
        about = METRICS[name]
        family = self.families.get(name)
        if family is None:
            made = CounterMetricFamily if about.kind == "counter" else GaugeMetricFamily
            family = self.families[name] = made(name, about.help, labels=about.labels)
        clean = [label if label.isascii() else label.encode("utf-8", "replace").decode() for label in labels]
        if isinstance(family, CounterMetricFamily):
            family.add_metric(clean, float(value), exemplar=exemplar)
        else:
            family.add_metric(clean, float(value))


def _render_run(page: _Page, run: RunSnapshot) -> None:
    name = run.run
    for state in STATES:
        page.put("sentinel_run_state", state == run.state, name, state)
    if run.last_step is not None:
        page.put("sentinel_run_last_step", run.last_step, name)
    if run.last_step_at_seconds is not None:
        page.put("sentinel_run_last_step_timestamp_seconds", run.last_step_at_seconds, name)
    page.put("sentinel_run_steps", run.steps_seen, name)
    page.put("sentinel_run_baseline_usable", run.baseline is not None, name)
    page.put("sentinel_run_warnings", len(run.warnings), name)
    for code in sorted({warning.partition(":")[0] for warning in run.warnings})[:WARNINGS_A_RUN]:
        page.put("sentinel_run_warning", 1, name, code)
    if run.state != "finished":
        _render_metrics(page, run)
    _render_incidents(page, run)
    _render_captures(page, run)
    _render_trainer(page, run)


def _render_metrics(page: _Page, run: RunSnapshot) -> None:
    for metric in chosen(run.metrics):
        labels = (run.run, metric.metric, metric.stage)
        page.put("sentinel_metric_value", metric.value, *labels)
        if metric.expected is not None:
            page.put("sentinel_metric_expected_low", metric.expected.low, *labels)
            page.put("sentinel_metric_expected_high", metric.expected.high, *labels)
        if metric.score is not None:
            page.put("sentinel_metric_deviation_ratio", metric.score, *labels)


def chosen(metrics: Sequence[MetricState]) -> list[MetricState]:
    """Return the metrics that are exported: those with an expectation first, METRICS_A_RUN at most."""
    ranked = sorted(metrics, key=lambda m: (m.expected is None, m.metric))
    return ranked[:METRICS_A_RUN]


def _render_incidents(page: _Page, run: RunSnapshot) -> None:
    # Stage and severity may change while an incident grows; a counter must not lose a label set on the way. For the
    # same reason every kind is there from the beginning: an increase from nothing to one would not be seen.
    kinds: dict[str, list[Incident]] = {kind: [] for kind in RANK}
    for incident in run.incidents:
        kinds.setdefault(incident.kind, []).append(incident)
    for kind, incidents in kinds.items():
        exemplar = Exemplar({"incident": incidents[-1].id[-_EXEMPLAR_LENGTH:]}, 1.0) if incidents else None
        page.put("sentinel_incidents", len(incidents), run.run, kind, exemplar=exemplar)
    going_on = [incident for incident in run.incidents if incident.state == "open"]
    for labels, count in Counter((i.kind, i.stage, i.severity) for i in going_on).items():
        page.put("sentinel_incidents_open", count, run.run, *labels)
    for i in going_on[-INCIDENTS_A_RUN:]:
        page.put("sentinel_incident_opened_step", i.opened_at_step, run.run, i.id, i.kind, i.stage, i.severity)


def _render_captures(page: _Page, run: RunSnapshot) -> None:
    going_on = [capture for capture in run.captures if capture.state in ("ordered", "recording")]
    page.put("sentinel_captures_going_on", len(going_on), run.run)
    outcomes = Counter(dict.fromkeys(OUTCOMES, 0))
    for capture in run.captures:
        if capture not in going_on:
            outcomes[capture.receipt.outcome if capture.receipt else capture.state] += 1
    for outcome, count in outcomes.items():
        page.put("sentinel_captures", count, run.run, outcome)
    reasons = Counter(dict.fromkeys(REASONS, 0))
    for incident in run.incidents:
        if incident.receipt and incident.receipt.outcome == "refused":
            reasons["budget" if "budget" in incident.receipt.why else "other"] += 1
    for reason, count in reasons.items():
        page.put("sentinel_captures_refused", count, run.run, reason)
    receipts = [capture.receipt for capture in run.captures if capture.receipt]
    page.put("sentinel_capture_bytes", sum(receipt.bytes for receipt in receipts), run.run)
    page.put("sentinel_capture_seconds", sum(receipt.seconds for receipt in receipts), run.run)


def _render_trainer(page: _Page, run: RunSnapshot) -> None:
    said = run.trainer
    if not said:
        return
    page.put("sentinel_trainer_dropped_steps", said.get("dropped", 0.0), run.run)
    page.put("sentinel_trainer_wait_seconds", said.get("wait_seconds", 0.0), run.run)
    page.put("sentinel_trainer_waits_expired", said.get("waits_expired", 0.0), run.run)
    for key, value in said.items():
        group, _, fuse = key.partition(".")
        if group == "fuses":
            page.put("sentinel_trainer_fuse_burnt", value, run.run, fuse)
